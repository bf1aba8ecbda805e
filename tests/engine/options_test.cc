// The environment chooses for engines that do not choose for themselves.
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "sim_device.h"
#include "support.h"
#include "tests/folder.h"
#include "windrow/engine/internal/system_limits.h"
#include "windrow/engine/parallel.h"
#include "windrow/engine/reduction.h"

namespace windrow::testing {
namespace {

TEST(Environment, ChoosesThePolicy) {
  for (const Policy policy : {Policy::serial, Policy::pool, Policy::per_device, Policy::chaos}) {
    const Environment set("WINDROW_POLICY", std::string(to_string(policy)).c_str());
    EXPECT_EQ(EngineOptions().policy, policy);
  }
}

TEST(Environment, ChoosesTheNumberOfWorkers) {
  const Environment set("WINDROW_WORKERS", "3");
  EXPECT_EQ(Engine().workers(), 3);
  EXPECT_EQ(Engine({.policy = Policy::pool}).workers(), 3);
}

TEST(Environment, ChoosesNothingWhereItIsNotSetOrEmpty) {
  for (const char* value : {static_cast<const char*>(nullptr), ""}) {
    const Environment policy("WINDROW_POLICY", value), workers("WINDROW_WORKERS", value);
    EXPECT_EQ(EngineOptions().policy, Policy::pool);
    EXPECT_EQ(EngineOptions().workers, default_workers());
  }
}

TEST(Environment, ChoosesNothingForWhoChoosesAtOnceOrLater) {
  const Environment policy("WINDROW_POLICY", "no policy"), workers("WINDROW_WORKERS", "no number");
  EngineOptions chosen;
  chosen.policy = Policy::serial;
  chosen.workers = 2;
  for (const EngineOptions& options : {EngineOptions{.policy = Policy::serial, .workers = 2}, chosen}) {
    Engine engine(options);
    EXPECT_EQ(engine.workers(), 2);
    bool ran = false;
    engine.push([&] { ran = true; }, {});
    EXPECT_TRUE(ran);
  }
  EXPECT_THROW(Engine{EngineOptions()}, MisuseError);
}

TEST(Environment, IsRefusedWithItsNameItsValueAndWhatWasExpected) {
  {
    const Environment set("WINDROW_POLICY", "Pool");
    EXPECT_EQ(error_of<MisuseError>([] { Engine engine; }),
              "the environment variable WINDROW_POLICY is 'Pool'; expected serial, pool, per_device or chaos");
  }
  for (const std::string value : {"0", "-1", "two", "2x", " 2", "1.5", "99999999999"}) {
    const Environment set("WINDROW_WORKERS", value.c_str());
    EXPECT_EQ(error_of<MisuseError>([] { Engine engine; }),
              "the environment variable WINDROW_WORKERS is '" + value + "'; expected a whole number, 1 or more");
  }
}

// The largest and smallest numbers that options can hold are taken as what they mean, or refused; none overflows.

constexpr std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();
using Nanoseconds = std::chrono::nanoseconds;
using TimePoint = std::chrono::steady_clock::time_point;

class ExtremeOptions : public EachPolicy {
 protected:
  /// Ops that push, wait, hold loops, and are launched as a graph.
  static void use(EngineOptions options) {
    Engine engine(std::move(options));
    const Var a = engine.new_var("a"), b = engine.new_var("b");
    std::atomic<int> calls = 0;
    engine.push(
        [&] {
          parallel_for(10, 1, [&](std::size_t, std::size_t) { ++calls; });
          engine.push([&] { ++calls; }, {mutate(b)});
          engine.wait(b);
        },
        {mutate(a)});
    engine.wait(a);
    const Graph graph = engine.capture([&] { engine.push([&] { ++calls; }, {mutate(a)}); });
    graph.launch();
    engine.wait_all();
    EXPECT_EQ(calls, 12);
  }
};
WINDROW_EACH_POLICY(ExtremeOptions);

TEST_P(ExtremeOptions, AnyNumberOfWorkersAndSpareThreadsWorks) {
  for (const int workers : {2, 40'000, INT_MAX / 2 + 1, INT_MAX}) {
    for (const int spares : {0, 256, INT_MAX - 1, INT_MAX}) {
      use({.policy = GetParam(), .workers = workers, .max_spare_threads = spares});
    }
  }
}

TEST_P(ExtremeOptions, AnyLimitAndAnyTimeWorks) {
  use({.policy = GetParam(),
       .workers = 2,
       .max_pending_ops = largest,
       .max_pending_bytes = largest,
       .push_patience = Nanoseconds::max(),
       .watchdog = Nanoseconds::max(),
       .fork_patience = Nanoseconds::max()});
  use({.policy = GetParam(),
       .workers = 2,
       .max_pending_ops = 1,
       .max_pending_bytes = 1,
       .fork_patience = Nanoseconds::min()});
}

TEST_P(ExtremeOptions, AnyTimeLimitOfAWaitWorks) {
  Engine engine({.policy = GetParam(), .workers = 2});
  const Var var = engine.new_var("var");
  engine.push([] {}, {mutate(var)});
  EXPECT_TRUE(engine.wait_for({read(var)}, Nanoseconds::max()));
  EXPECT_TRUE(engine.wait_all_for(Nanoseconds::max()));
  EXPECT_TRUE(engine.wait_for({read(var)}, Nanoseconds::min()));
  EXPECT_TRUE(engine.wait_all_for(Nanoseconds::min()));
  EXPECT_TRUE(engine.shutdown_for(Nanoseconds::max()));
}

TEST_P(ExtremeOptions, AnyDeadlineOfAnOpWorks) {
  Engine engine({.policy = GetParam(), .workers = 2});
  const Var var = engine.new_var("var");
  bool ran = false;
  engine.push([&] { ran = true; }, {mutate(var)}, {.deadline = TimePoint::max()});
  engine.wait(var);
  EXPECT_TRUE(ran);
  engine.push([] {}, {mutate(var)}, {.deadline = TimePoint::min()});
  const std::string text = expect_error<OpError>([&] { engine.wait(var); }, "deadline");
  EXPECT_EQ(text.find("by -"), std::string::npos) << text;
}

TEST_P(ExtremeOptions, BytesOfOpsDoNotOverflowTheirSum) {
  Engine engine({.policy = GetParam(), .workers = 2, .max_pending_bytes = 1000});
  const Var var = engine.new_var("var");
  int ran = 0;
  engine.push(
      [&] {
        for (int i = 0; i < 4; ++i) engine.push([&] { ++ran; }, {mutate(var)}, {.bytes = largest});
        EXPECT_GE(engine.stats().pending_bytes, std::uint64_t{1000});
      },
      {mutate(var)}, {.bytes = largest});
  engine.wait_all();
  EXPECT_EQ(ran, 4);
  EXPECT_EQ(engine.stats().pending_bytes, 0u);
}

TEST_P(ExtremeOptions, AnyOptionsOfLanesAndTracesWork) {
  Engine engine({.policy = GetParam(), .workers = 2});
  engine.trace().start({.max_ops_per_thread = largest});
  const LaneId copies = engine.add_lane(HostLane{.name = "copies", .threads = INT_MAX});
  const LaneId device = engine.add_lane(std::make_shared<SimLane>("device"), {.max_in_flight = UINT32_MAX});
  std::atomic<int> ran = 0;
  for (const LaneId lane : {copies, device}) engine.push([&] { ++ran; }, {}, {.priority = INT_MIN, .lane = lane});
  engine.push([&] { ++ran; }, {}, {.priority = INT_MAX});
  engine.wait_all();
  EXPECT_EQ(ran, 3);
}

TEST_P(ExtremeOptions, AReductionOfTooManyPartsIsRefused) {
  Engine engine({.policy = GetParam(), .workers = 2});
  for (const int ways : {INT_MIN, 0, ReductionOptions::most_ways + 1, INT_MAX}) {
    expect_error<MisuseError>([&] { Reduction<int>(engine, 0, {}, {.ways = ways}); },
                              "ways = " + std::to_string(ways) + "; expected 1");
  }
}

// The limits of containers, read from made-up files of the system.

/// A folder that stands for the root of the system.
class SystemLimitsTest : public ::testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = root_.file(file);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
  }
  /// The process is in this group of version 2, whose tree is mounted with this root.
  void be_in(const std::string& group, const std::string& mounted = "/") const {
    write("proc/self/cgroup", "0::" + group);
    write("proc/self/mountinfo", "22 1 0:20 / /proc rw - proc proc rw\n31 22 0:28 " + mounted +
                                     " /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate");
  }
  SystemLimits limits() const { return system_limits(root_.file("")); }
  /// With many cores, so that only the quota counts.
  int threads_of_64() const {
    SystemLimits found = limits();
    found.cores = 64;
    return found.threads();
  }

  const TestFolder root_;
};

TEST_F(SystemLimitsTest, AreNoneWhereNoFileStatesThem) {
  EXPECT_FALSE(limits().cpus || limits().memory);
  be_in("/");
  EXPECT_FALSE(limits().cpus || limits().memory);
  write("sys/fs/cgroup/cpu.max", "max 100000");
  write("sys/fs/cgroup/memory.max", "max");
  EXPECT_FALSE(limits().cpus || limits().memory);
  EXPECT_EQ(limits().threads(), limits().cores);
}

TEST_F(SystemLimitsTest, RoundQuotasUpToAtLeastOneThread) {
  be_in("/");
  for (const auto& [text, threads] :
       {std::pair("50000 100000", 1), std::pair("100000 100000", 1), std::pair("100001 100000", 2),
        std::pair("250000 100000", 3), std::pair("1000 1000000", 1), std::pair("9000000000 1", 64)}) {
    write("sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(threads_of_64(), threads) << text;
  }
}

TEST_F(SystemLimitsTest, AreTheSmallestOfAllGroupsAroundTheProcess) {
  be_in("/outer/inner");
  write("sys/fs/cgroup/cpu.max", "900000 100000");
  write("sys/fs/cgroup/outer/cpu.max", "200000 100000");
  write("sys/fs/cgroup/outer/inner/cpu.max", "400000 100000");
  write("sys/fs/cgroup/outer/memory.max", "5000000000");
  write("sys/fs/cgroup/outer/inner/memory.max", "3000000000");
  EXPECT_EQ(threads_of_64(), 2);
  EXPECT_EQ(limits().cpus->file, "/sys/fs/cgroup/outer/cpu.max");
  EXPECT_EQ(limits().memory->limit, 3'000'000'000u);
  EXPECT_EQ(limits().memory->file, "/sys/fs/cgroup/outer/inner/memory.max");
}

TEST_F(SystemLimitsTest, AreFoundWhereTheContainersGroupIsAllThatIsMounted) {
  be_in("/machine/c1/job", "/machine/c1");
  write("sys/fs/cgroup/job/cpu.max", "300000 100000");
  EXPECT_EQ(threads_of_64(), 3);
}

TEST_F(SystemLimitsTest, AreReadFromVersion1AsWell) {
  write("proc/self/cgroup", "5:memory:/box\n2:cpu,cpuacct:/box/inner\n1:name=systemd:/");
  write("proc/self/mountinfo",
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000");
  write("sys/fs/cgroup/cpu,cpuacct/box/inner/cpu.cfs_quota_us", "-1");
  write("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "150000");
  write("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(threads_of_64(), 2);
  EXPECT_FALSE(limits().memory);
  write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "1073741824");
  EXPECT_EQ(limits().memory->limit, 1u << 30);
}

TEST_F(SystemLimitsTest, SayNothingWhereFilesAreBroken) {
  for (const char* text : {"", "x", "100000", "-5 100000", "100000 0", "1e5 1e5", "99999999999999999999 1"}) {
    be_in("/");
    write("sys/fs/cgroup/cpu.max", text);
    write("sys/fs/cgroup/memory.max", text);
    EXPECT_FALSE(limits().cpus) << text;
  }
  write("proc/self/cgroup", "no group\n::\n:");
  write("proc/self/mountinfo", "31\n- cgroup2\n");
  EXPECT_EQ(limits().threads(), limits().cores);
}

TEST(DefaultWorkers, AreThoseThatTheSystemAllows) { EXPECT_EQ(default_workers(), system_limits().threads()); }

}  // namespace
}  // namespace windrow::testing
