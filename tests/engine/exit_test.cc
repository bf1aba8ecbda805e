// Processes that exit while ops are pending which use static objects of a library.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <optional>
#include <thread>

#include "tests/engine/support.h"
#include "windrow/engine/internal/process_exit.h"

namespace windrow::testing {
namespace {

constexpr int used_after_its_end = 3, op_left_out = 4;

/// A library that makes a static object on first use, on whichever thread that is.
std::atomic<bool> library_has_ended{false};
void use_library() {
  struct Object {
    ~Object() { library_has_ended = true; }
  };
  static const Object object;
  static_cast<void>(&object);
  static const bool noted = (rest_before_statics_end(), true);
  static_cast<void>(noted);
  for (int i = 0; i < 20; ++i) {
    if (library_has_ended) ::_exit(used_after_its_end);
    std::this_thread::sleep_for(20us);
  }
}

std::atomic<int> ran{0};

/// Ends after the engine, and ends the process if not all ops have run.
struct ExpectsToRun {
  int ops = 0;
  ~ExpectsToRun() {
    if (ran < ops) ::_exit(op_left_out);
  }
};

/// An engine in static storage, with pending ops that use the library. Some depend on others.
Engine& busy_engine(Policy policy, int expected) {
  static ExpectsToRun expects;
  static Engine engine({.policy = policy, .workers = 3});
  expects.ops = expected;
  static const Var var = engine.new_var();
  for (int i = 0; i < 100; ++i) {
    engine.push([] { use_library(), ++ran; }, i % 2 == 0 ? AccessList({mutate(var)}) : AccessList({}));
  }
  return engine;
}

class Exit : public EachPolicy {
 protected:
  Exit() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  /// The program ends the process with status 0.
  template <class F>
  static void expect_end(F&& program) {
    EXPECT_EXIT(program(), ::testing::ExitedWithCode(0), "");
  }
};
WINDROW_EACH_POLICY(Exit);

TEST_P(Exit, ByMainRunsWhatIsPendingBeforeLibrariesEnd) {
  expect_end([] {
    busy_engine(GetParam(), 100);
    std::exit(0);
  });
}

TEST_P(Exit, ByAnotherThreadRunsWhatIsPendingBeforeLibrariesEnd) {
  expect_end([] {
    busy_engine(GetParam(), 100);
    std::thread([] { use_library(), std::exit(0); }).join();
  });
}

TEST_P(Exit, InsideAnOpEndsTheProcess) {
  expect_end([] {
    Engine& engine = busy_engine(GetParam(), 0);
    const Var var = engine.new_var();
    engine.push([] { use_library(), std::exit(0); }, {mutate(var)});
    engine.push([] { ::_exit(op_left_out); }, {mutate(var)});  // behind the op that never finishes
    engine.wait({mutate(var)});
  });
}

TEST_P(Exit, InsideAnOpOfAnEngineThatIsNotStaticEndsTheProcess) {
  expect_end([] {
    Engine engine({.policy = GetParam(), .workers = 3});
    for (int i = 0; i < 100; ++i) engine.push(use_library, {});
    engine.push([] { use_library(), std::exit(0); }, {});
    for (int i = 0; i < 100; ++i) engine.push(use_library, {});
    engine.wait_all();
  });
}

TEST_P(Exit, DoesNotDisturbThreadsThatPushMeanwhile) {
  expect_end([] {
    auto* const engine = new Engine({.policy = GetParam(), .workers = 3, .max_pending_ops = 64});
    std::thread([engine] {
      while (true) engine->push(use_library, {});
    }).detach();
    std::this_thread::sleep_for(5ms);
    std::exit(0);
  });
}

TEST_P(Exit, ThatDestroysNothingWaitsForNothing) {
  expect_end([] {
    busy_engine(GetParam(), 0);
    std::quick_exit(0);
  });
}

TEST_P(Exit, LeavesWhatCanNeverFinish) {
  expect_end([] {
    static Engine* const engine = new Engine({.policy = GetParam(), .workers = 2});  // static: no leak
    static std::optional<OnComplete> kept;
    Gate kept_now;
    const Var var = engine->new_var();
    engine->push_async([&](OnComplete done) { kept.emplace(std::move(done)), kept_now.open(); }, {mutate(var)});
    if (!kept_now.pass()) ::_exit(op_left_out);
    engine->push([] { ::_exit(op_left_out); }, {mutate(var)});
    engine->push([] { std::exit(0); }, {});
    std::this_thread::sleep_for(patience);
  });
}

}  // namespace
}  // namespace windrow::testing
