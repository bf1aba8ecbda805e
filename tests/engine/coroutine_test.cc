// Coroutines that await variables.
#include "windrow/engine/coroutine.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "support.h"

namespace windrow::testing {
namespace {

/// A coroutine that starts at once, and opens a gate when it has ended.
class Task {
 public:
  struct promise_type {
    Task get_return_object() { return Task(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_never initial_suspend() { return {}; }
    auto final_suspend() noexcept {
      struct End {
        bool await_ready() noexcept { return false; }
        void await_suspend(std::coroutine_handle<promise_type> coroutine) noexcept {
          coroutine.promise().ended->open();
        }
        void await_resume() noexcept {}
      };
      return End{};
    }
    void return_void() {}
    void unhandled_exception() { error = std::current_exception(); }

    std::exception_ptr error;
    const std::shared_ptr<Gate> ended = std::make_shared<Gate>();
  };

  explicit Task(std::coroutine_handle<promise_type> coroutine) : coroutine_(coroutine) {}
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  ~Task() { destroy(); }

  /// Throws what the coroutine let pass. False if it does not end.
  bool ends() {
    if (!coroutine_.promise().ended->pass()) return false;
    if (coroutine_.promise().error) std::rethrow_exception(coroutine_.promise().error);
    return true;
  }
  void destroy() {
    if (coroutine_) std::exchange(coroutine_, nullptr).destroy();
  }

 private:
  std::coroutine_handle<promise_type> coroutine_;
};

class CoroutineTest : public EngineOnEveryPolicy {};
WINDROW_EVERY_POLICY(CoroutineTest);

Task add_up(Engine& engine, Var var, int& value, int& sum) {
  for (int i = 0; i < 3; ++i) {
    engine.push([&] { ++value; }, {mutate(var)});
    co_await engine.ready(var);
    sum += value;
  }
}

TEST_P(CoroutineTest, AReadyVariableHoldsAllThatWasPushedBefore) {
  int value = 0, sum = 0;
  Task task = add_up(engine, a, value, sum);
  ASSERT_TRUE(task.ends());
  EXPECT_EQ(sum, 1 + 2 + 3);
}

TEST_P(CoroutineTest, ItMayEndTheLastOwnerOfTheEngine) {
  for (int i = 0; i < 10; ++i) {
    Gate ended;
    Task task = [](std::shared_ptr<Engine> mine) -> Task {
      co_await mine->ready(mine->new_var());
      mine.reset();
    }(std::make_shared<Engine>(opens_at_its_end(options(), ended)));
    ASSERT_TRUE(task.ends());
    ASSERT_TRUE(ended.pass());
  }
}

TEST_P(CoroutineTest, ALongLoopNeedsNoDeepStack) {
  int value = 0;
  Task task = [](Engine& of, Var var, int& count) -> Task {
    for (int i = 0; i < 5000; ++i) {
      co_await of.ready(var);
      ++count;
    }
  }(engine, a, value);
  ASSERT_TRUE(task.ends());
  EXPECT_EQ(value, 5000);
}

TEST_P(CoroutineTest, ManyWaitWithoutThreadsOfTheirOwn) {
  // Far more than there are workers and spare threads.
  constexpr int many = 1000;
  HeldOp held(engine, {mutate(a)});
  std::atomic<int> resumed{0};
  const auto wait = [](Engine& of, Var var, std::atomic<int>& count) -> Task {
    co_await of.ready(var);
    ++count;
  };
  std::vector<std::unique_ptr<Task>> tasks;
  for (int i = 0; i < many; ++i) tasks.emplace_back(new Task(wait(engine, a, resumed)));
  EXPECT_EQ(resumed, 0);
  held.complete();
  for (const auto& task : tasks) ASSERT_TRUE(task->ends());
  EXPECT_EQ(resumed, many);
  EXPECT_LE(engine.stats().spare_threads, 1u);  // the one of policy serial
}

TEST_P(CoroutineTest, ShutdownForResumesThoseWhoseAccessesAreGranted) {
  HeldOp held(engine, {mutate(a)});
  Task task = [](Engine& of, Var var) -> Task { co_await of.ready(var); }(engine, a);
  const bool in_time = engine.shutdown_for(0s, [&](const std::string&) { held.complete(); });
  EXPECT_TRUE(in_time || engine.shutdown_for(patience));
  EXPECT_TRUE(task.ends());
}

TEST_P(CoroutineTest, PoisonIsThrownInsideTheCoroutine) {
  engine.push([] { throw std::runtime_error("boom"); }, {mutate(a)}, {.name = "load"});
  std::string text;
  Task task = [](Engine& of, Var var, std::string& told) -> Task {
    try {
      co_await of.ready(var);
    } catch (const OpError& e) {
      told = e.what();
    }
    co_await of.ready(overwrite(var));
    co_await of.ready(var);
  }(engine, a, text);
  ASSERT_TRUE(task.ends());
  EXPECT_NE(text.find("op 'load'"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("failed: boom")) << text;
  engine.wait_all();  // somebody was told
}

TEST_P(CoroutineTest, AnExclusiveAccessWaitsForReadersToo) {
  bool read_done = false, seen = false;
  engine.push([&] { std::this_thread::yield(), read_done = true; }, {read(a), mutate(b)});
  Task task = [](Engine& of, Var var, const bool& done, bool& was_done) -> Task {
    co_await of.ready(mutate(var));
    was_done = done;
  }(engine, a, read_done, seen);
  ASSERT_TRUE(task.ends());
  EXPECT_TRUE(seen);
}

TEST_P(CoroutineTest, ItHoldsUpNobodyWhenItGoesOn) {
  // It waits inside for an op that is pushed behind its own access.
  bool ran = false;
  Task task = [](Engine& of, Var var, Var other, bool& done) -> Task {
    const std::vector<Access> accesses = {mutate(var), read(other)};
    co_await of.ready(accesses);
    of.push([&done] { done = true; }, AccessList(accesses));
    of.wait(var);
  }(engine, a, b, ran);
  ASSERT_TRUE(task.ends());
  EXPECT_TRUE(ran);
}

TEST_P(CoroutineTest, AWrongVariableIsThrownInsideTheCoroutine) {
  Task task = [](Engine& of) -> Task { co_await of.ready(Var()); }(engine);
  EXPECT_THROW(task.ends(), MisuseError);
}

TEST_P(CoroutineTest, OneThatIsDestroyedWhileItAwaitsIsNotResumed) {
  HeldOp held(engine, {mutate(a)});
  bool resumed = false;
  auto local = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = local;
  Task task = [](Engine& of, Var var, bool& done, std::shared_ptr<int>) -> Task {
    co_await of.ready(var);
    done = true;
  }(engine, a, resumed, std::move(local));
  task.destroy();
  EXPECT_TRUE(watch.expired());
  held.complete();
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_FALSE(resumed);
}

}  // namespace
}  // namespace windrow::testing
