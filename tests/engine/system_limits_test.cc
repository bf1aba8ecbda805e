// The limits of containers, read from made-up files of the system.
#include "windrow/engine/internal/system_limits.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "windrow/engine/engine.h"

namespace windrow {
namespace {

namespace fs = std::filesystem;

/// A folder that stands for the root of the system.
class SystemLimitsTest : public ::testing::Test {
 protected:
  SystemLimitsTest() : root_(fs::temp_directory_path() / ("windrow_limits_" + std::to_string(::getpid()))) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~SystemLimitsTest() override { fs::remove_all(root_); }

  void write(const std::string& file, const std::string& text) const {
    const fs::path path = root_ / file;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
  }
  /// The process is in this group of version 2, whose tree is mounted with this root.
  void be_in(const std::string& group, const std::string& mounted = "/") const {
    write("proc/self/cgroup", "0::" + group);
    write("proc/self/mountinfo", "22 1 0:20 / /proc rw - proc proc rw\n31 22 0:28 " + mounted +
                                     " /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate");
  }
  SystemLimits limits() const { return system_limits(root_.string()); }
  /// With many cores, so that only the quota counts.
  int threads_of_64() const {
    SystemLimits found = limits();
    found.cores = 64;
    return found.threads();
  }

  const fs::path root_;
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
}  // namespace windrow
