// Checking mode: EngineOptions::check and Engine::watch.
#include <sys/mman.h>
#include <unistd.h>

#include <csetjmp>
#include <csignal>
#include <cstdlib>
#include <span>

#include "sim_device.h"
#include "support.h"

namespace windrow::testing {
namespace {

std::span<std::byte> bytes_of(std::vector<int>& values) { return std::as_writable_bytes(std::span(values)); }

class AccessCheckTest : public EveryPolicy {
 protected:
  static EngineOptions checking() { return options({.check = true}); }
  /// What the only op that failed is blamed for.
  std::string offence() {
    const std::string text = error_of<OpError>([&] { engine.wait_all(); });
    const std::string_view says = ") failed: ";
    const std::size_t place = text.find(says);
    return place == std::string::npos ? text : text.substr(place + says.size());
  }

  Engine engine{checking()};
  std::vector<int> x = std::vector<int>(100, 1), y = std::vector<int>(101, 2);
  Var a = engine.new_var("a"), b = engine.new_var("b");

  void SetUp() override {
    engine.watch(a, bytes_of(x));
    engine.watch(b, bytes_of(y));
  }
};
WINDROW_EVERY_POLICY(AccessCheckTest);

TEST_P(AccessCheckTest, WhoKeepsToItsAccessesIsLeftAlone) {
  engine.push([&] { x[3] = 7; }, {mutate(a)});
  engine.push([&] { y[100] = x[3]; }, {read(a), overwrite(b)});
  engine.push(engine.declare([&] { ++y[0], ++x[0]; }, {mutate(a), mutate(b)}));
  engine.wait_all();
  x[5] = 8;  // between ops the program may write
  engine.push([] {}, {});
  engine.wait_all();
  EXPECT_EQ(y[100], 7);
}

TEST_P(AccessCheckTest, AnUndeclaredChangeFailsTheOpAndNamesItAndTheVariable) {
  const int line = __LINE__ + 1;
  engine.push([&] { x[3] = 7; }, {mutate(b)}, {.name = "sly"});
  const std::string op = "op 'sly' (pushed at " + std::string(__FILE__) + ":" + std::to_string(line) + ")";
  EXPECT_EQ(error_of<OpError>([&] { engine.wait(b); }),
            op + " failed: changed variable 'a', which it did not declare: add mutate(a)");
  expect_root<MisuseError>([&] { engine.wait(b); });
}

TEST_P(AccessCheckTest, EachChangedVariableIsNamedAndLaterOpsAreNotBlamed) {
  engine.push([&] { x[0] = y[0] = 9; }, {read(b)});
  engine.push([] {}, {read(b)});
  EXPECT_EQ(
      offence(),
      "changed variable 'a', which it did not declare: add mutate(a); changed variable 'b', which it declared only "
      "to read: declare overwrite(b), or mutate(b) if it needs the old value");
  EXPECT_EQ(engine.stats().failed, 1u);
}

TEST_P(AccessCheckTest, AnyByteIsSeen) {
  for (std::size_t i = 0; i < bytes_of(y).size(); ++i) {
    engine.push([&] { bytes_of(y)[i] ^= std::byte{0x80}; }, {});
  }
  EXPECT_THROW(engine.wait_all(), OpError);
  EXPECT_EQ(engine.stats().failed, bytes_of(y).size());
}

TEST_P(AccessCheckTest, OpsThatWaitInsideAreNotBlamedForOthers) {
  std::vector<int> z(100, 3);
  const Var own = engine.new_var("own");
  engine.watch(own, bytes_of(z));
  engine.push(
      [&] {
        engine.push([&] { x[1] = 5; }, {mutate(a)});
        engine.wait(a);
        z[1] = x[1];
        engine.push([&] { y[1] = 6; }, {mutate(a)}, {.name = "sly"});
        EXPECT_THROW(engine.wait(a), OpError);
        z[2] = x[1];
      },
      {mutate(own)}, {.name = "waits"});
  const std::string text = error_of<OpError>([&] { engine.wait_all(); });
  EXPECT_EQ(text.find("waits"), std::string::npos) << text;
  EXPECT_EQ(engine.stats().failed, 1u);
  EXPECT_EQ(z[2], 5);
}

TEST_P(AccessCheckTest, AsyncOpsMayWriteUntilTheyAreDone) {
  HeldOp held(engine, {mutate(a)});
  x[0] = 6;
  engine.push([] {}, {mutate(b)});
  x[0] = 7;
  engine.push([] {}, {mutate(b)});
  held.complete();
  engine.push([] {}, {mutate(b)});
  engine.wait_all();
  engine.push_async([&](OnComplete done) { x[0] = 8, done(); }, {mutate(b)});
  EXPECT_EQ(offence(), "changed variable 'a', which it did not declare: add mutate(a)");
}

TEST_P(AccessCheckTest, WhatADeviceStillWritesIsNobodysOffence) {
  const auto lane = std::make_shared<SimLane>("sim");
  const LaneId id = engine.add_lane(lane);
  Gate written;
  lane->hold();
  const auto issue = [&](OnComplete done) { lane->launch([&] { x[0] = 9, written.open(); }), done(); };
  engine.push_async(issue, {mutate(a)}, {.lane = id});
  engine.push([&] { lane->let_go(), written.await(); }, {mutate(b)}, {.name = "innocent"});
  engine.push([] {}, {read(a)});
  engine.wait_all();
  engine.push([&] { x[0] = 10; }, {mutate(b)});
  EXPECT_EQ(offence(), "changed variable 'a', which it did not declare: add mutate(a)")
      << "an op has come after the device";
}

TEST_P(AccessCheckTest, AnOpMayWatchWhatItHoldsButNoEarlierLifeOfIt) {
  std::vector<int> z(10, 1);
  const Var old = engine.new_var("old");
  engine.retire(old);
  engine.wait_all();
  const Var fresh = engine.new_var("fresh");  // in the same place
  engine.push([&] { EXPECT_THROW(engine.watch(old, bytes_of(z)), MisuseError); }, {mutate(fresh)});
  engine.push([&] { EXPECT_NO_THROW(engine.watch(fresh, bytes_of(z))); }, {mutate(fresh)});
  engine.wait_all();
  engine.push([&] { z[0] = 2; }, {});
  EXPECT_EQ(offence(), "changed variable 'fresh', which it did not declare: add mutate(fresh)");
}

TEST_P(AccessCheckTest, ARetiredVariableIsWatchedNoMore) {
  auto gone = std::make_unique<std::vector<int>>(100, 3);
  const Var v = engine.new_var("v");
  engine.watch(v, bytes_of(*gone));
  engine.retire(v, [&] { gone.reset(); });
  engine.push([&] { x[0] = 4; }, {mutate(a)});
  engine.wait_all();
  EXPECT_EQ(gone, nullptr);
  EXPECT_THROW(engine.watch(v, bytes_of(x)), MisuseError);
  EXPECT_THROW(engine.watch(Var(), bytes_of(x)), MisuseError);
}

TEST_P(AccessCheckTest, SkippedAndFailingOpsAreNotBlamed) {
  engine.push([] { throw std::runtime_error("boom"); }, {mutate(a)});
  engine.push([&] { y[0] = 1; }, {read(a)});
  EXPECT_TRUE(error_of<OpError>([&] { engine.wait_all(); }).ends_with("failed: boom"));
  EXPECT_EQ(y[0], 2);
}

TEST_P(AccessCheckTest, WithoutCheckNothingIsWatched) {
  Engine plain(options());
  const Var v = plain.new_var();
  plain.watch(v, bytes_of(x));
  plain.push([&] { x[0] = 4; }, {});
  plain.wait_all();
}

/// Whole pages of ints.
class Pages {
 public:
  explicit Pages(std::size_t pages) : bytes_(pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  ~Pages() { munmap(memory_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  volatile int& operator[](std::size_t i) { return static_cast<volatile int*>(memory_)[i]; }
  std::span<std::byte> bytes() { return {static_cast<std::byte*>(memory_), bytes_}; }

 private:
  const std::size_t bytes_;
  void* memory_;
};

TEST_P(AccessCheckTest, AnUndeclaredReadOfWholePagesFailsTheOp) {
  Pages pages(3), others(1);
  const Var p = engine.new_var("p"), q = engine.new_var("q");
  engine.watch(p, pages.bytes());
  engine.watch(q, others.bytes());
  int seen = 0;
  engine.push([&] { pages[2000] = 5; }, {mutate(p)});
  engine.push([&] { seen = pages[2000]; }, {read(p)});
  engine.push([&] { others[0] = pages[2000]; }, {read(p), overwrite(q)});
  engine.wait_all();
  EXPECT_EQ(seen, 5);
  seen = 0;
  engine.push([&] { seen = pages[2000]; }, {mutate(q)});
  EXPECT_EQ(offence(), "read variable 'p', which it did not declare: add read(p)");
  EXPECT_EQ(seen, 5);  // it went on
  EXPECT_EQ(pages[2000], 5);
}

TEST_P(AccessCheckTest, AnUndeclaredWriteToWholePagesIsAChange) {
  Pages pages(1);
  const Var p = engine.new_var("p");
  engine.watch(p, pages.bytes());
  engine.push([&] { pages[0] = 5; }, {mutate(a)});
  EXPECT_EQ(offence(), "changed variable 'p', which it did not declare: add mutate(p)");
  EXPECT_EQ(pages[0], 5);
}

TEST_P(AccessCheckTest, VariablesWhoseReadsItCannotSeeAreToldAtOnceAndOncePerName) {
  Engine other(checking());
  Pages pages(1);
  const Var v = other.new_var("v"), again = other.new_var("v"), w = other.new_var("w"), whole = other.new_var("whole");
  const std::string told = stderr_of([&] {
    other.watch(v, bytes_of(x));
    other.watch(v, bytes_of(y));
    other.watch(again, bytes_of(x));
    other.watch(whole, pages.bytes());
    other.watch(w, {});
    other.watch(w, bytes_of(y));
  });
  EXPECT_EQ(std::ranges::count(told, '\n'), 2) << told;
  for (const char* const part : {"reads of variable 'v'", "reads of variable 'w'", "page_allocator()"}) {
    EXPECT_NE(told.find(part), std::string::npos) << part << " is not in: " << told;
  }
}

TEST_P(AccessCheckTest, PagesThatAnAsynchronousOpUsesStayOpenToSystemCalls) {
  Pages pages(1);
  const Var p = engine.new_var("p");
  engine.watch(p, pages.bytes());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const auto written = [&] { return write(ends[1], pages.bytes().data(), 1); };
  HeldOp held(engine, {read(p)});
  engine.push([&] { EXPECT_EQ(written(), 1); }, {mutate(a)});  // in place of another thread of the held op
  held.complete();
  engine.push([&] { EXPECT_EQ(written(), -1); }, {mutate(a)});
  engine.wait_all();
  for (const int end : ends) close(end);
}

TEST_P(AccessCheckTest, OtherThreadsMayReadPagesWhileAnOpRuns) {
  Pages pages(1);
  const Var p = engine.new_var("p");
  engine.watch(p, pages.bytes());
  engine.push([&] { std::thread([&] { EXPECT_EQ(pages[0], 0); }).join(); }, {mutate(a)});
  engine.wait_all();
}

TEST_P(AccessCheckTest, PagesAreOpenAfterTheirVariableIsRetiredAndAfterTheEngine) {
  Pages pages(1), kept(1);
  {
    Engine other(checking());
    const Var p = other.new_var("p"), q = other.new_var("q");
    other.watch(p, pages.bytes());
    other.watch(q, kept.bytes());
    other.retire(p, [&] { pages[0] = 6; });
    other.push([&] { pages[0] = pages[0] + 1; }, {});
    other.wait_all();
  }
  EXPECT_EQ(pages[0], 7);
  kept[0] = 1;
  EXPECT_EQ(kept[0], 1);
}

sigjmp_buf back;
volatile std::sig_atomic_t strays = 0;
void on_stray(int) {
  strays = strays + 1;
  siglongjmp(back, 1);
}

TEST(PageGuardDeathTest, FaultsElsewhereGoToTheHandlerBefore) {
  // In a process of its own, where no guard has come before the handler.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto play = [] {
    struct sigaction action {};
    action.sa_handler = on_stray;
    action.sa_flags = SA_NODEFER;
    sigaction(SIGSEGV, &action, nullptr);
    Engine engine({.policy = Policy::serial, .check = true});
    Pages pages(1), stray(1);
    const Var p = engine.new_var("p");
    engine.watch(p, pages.bytes());
    mprotect(stray.bytes().data(), stray.bytes().size(), PROT_NONE);
    if (sigsetjmp(back, 1) == 0) stray[0] = 1;
    std::_Exit(strays == 1 ? 0 : 1);
  };
  EXPECT_EXIT(play(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace windrow::testing
