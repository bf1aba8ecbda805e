// Coroutines that await variables.
#include <stdexcept>

#include "support.h"
#include "windrow/engine/coroutine.h"
#include "windrow/engine/sender.h"

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

TEST_P(CoroutineTest, AReadyVariableHoldsAllThatWasPushedBefore) {
  int value = 0, sum = 0;
  Task task = [](Engine& of, Var var, int& count, int& total) -> Task {
    for (int i = 0; i < 3; ++i) {
      of.push([&] { ++count; }, {mutate(var)});
      co_await of.ready(var);
      total += count;
    }
  }(engine, a, value, sum);
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

// Ops as senders, with a receiver written by hand.

/// How an operation completed.
struct Told {
  Gate gate;
  int values = 0, stops = 0;
  std::string error;
};

struct Receiver {
  Told* told;

  void set_value() && noexcept { ++told->values, told->gate.open(); }
  void set_stopped() && noexcept { ++told->stops, told->gate.open(); }
  void set_error(std::exception_ptr error) && noexcept {
    try {
      std::rethrow_exception(std::move(error));
    } catch (const std::exception& e) {
      told->error = e.what();
    }
    told->gate.open();
  }
};

/// Calls a function when the op has run.
struct OnValue {
  std::function<void()> call;
  void set_value() && noexcept {
    const auto last = std::move(call);  // `this` may go with the operation
    last();
  }
  void set_stopped() && noexcept { ADD_FAILURE(); }
  void set_error(std::exception_ptr) && noexcept { ADD_FAILURE(); }
};

class SenderTest : public EngineOnEveryPolicy {
 protected:
  Told told;
};
WINDROW_EVERY_POLICY(SenderTest);

TEST_P(SenderTest, NothingIsPushedBeforeStart) {
  int value = 0;
  auto operation = push_sender(engine, [&] { ++value; }, {mutate(a)}).connect(Receiver{&told});
  engine.wait(a);
  EXPECT_EQ(value, 0);
  operation.start();
  ASSERT_TRUE(told.gate.pass());
  EXPECT_EQ(value, 1);
  EXPECT_EQ(told.values, 1);
}

TEST_P(SenderTest, ItIsTiedIntoTheOrderOfTheEngine) {
  int value = 0, seen = 0;
  engine.push([&] { value = 1; }, {mutate(a)});
  auto operation = push_sender(engine, [&] { value *= 10; }, {mutate(a)}).connect(Receiver{&told});
  operation.start();
  engine.push([&] { seen = value; }, {read(a)});
  engine.wait_all();
  EXPECT_EQ(seen, 10);
  EXPECT_EQ(told.values, 1);
}

TEST_P(SenderTest, AThrowIsAnErrorAndPoisonsAsUsual) {
  auto operation = push_sender(engine, [] { throw std::runtime_error("boom"); }, {mutate(a)}, {.name = "load"})
                       .connect(Receiver{&told});
  operation.start();
  ASSERT_TRUE(told.gate.pass());
  EXPECT_TRUE(told.error.starts_with("op 'load' (pushed at ")) << told.error;
  EXPECT_TRUE(told.error.ends_with("failed: boom")) << told.error;
  EXPECT_THROW(engine.wait(a), OpError);
  engine.heal(a);
  engine.wait_all();  // somebody was told
}

TEST_P(SenderTest, ASkippedOpIsAnErrorWithItsCause) {
  bool ran = false;
  engine.push([] { throw std::runtime_error("boom"); }, {mutate(a)}, {.name = "load"});
  auto operation =
      push_sender(engine, [&] { ran = true; }, {read(a), mutate(b)}, {.name = "scale"}).connect(Receiver{&told});
  operation.start();
  engine.heal(a);
  engine.push([] {}, {overwrite(b)});  // what comes later does not hide the error
  ASSERT_TRUE(told.gate.pass());
  EXPECT_FALSE(ran);
  EXPECT_TRUE(told.error.starts_with("op 'scale' (pushed at ")) << told.error;
  EXPECT_NE(told.error.find(" was skipped because op 'load'"), std::string::npos) << told.error;
}

TEST_P(SenderTest, ACancelledOpIsStopped) {
  {
    auto sender = push_sender(engine, [] {}, {mutate(a)}, {.stop = stopped()});  // which owns the token from here on
    auto operation = std::move(sender).connect(Receiver{&told});
    operation.start();
    ASSERT_TRUE(told.gate.pass());
    EXPECT_EQ(told.stops, 1);
  }
  Told later;
  auto operation = push_sender(engine, [] {}, {read(a)}).connect(Receiver{&later});
  operation.start();
  ASSERT_TRUE(later.gate.pass());
  EXPECT_EQ(later.stops, 1);
  EXPECT_EQ(engine.stats().cancelled, 1u);
}

TEST_P(SenderTest, ARefusedPushIsAnError) {
  auto operation = push_sender(engine, [] {}, {mutate(Var())}, {.name = "wrong"}).connect(Receiver{&told});
  operation.start();
  ASSERT_TRUE(told.gate.pass());
  EXPECT_NE(told.error.find("op 'wrong'"), std::string::npos) << told.error;
  EXPECT_NE(told.error.find("names an empty Var"), std::string::npos) << told.error;
}

TEST_P(SenderTest, TheReceiverMayEndTheOperation) {
  for (int i = 0; i < 100; ++i) {
    std::unique_ptr<PushOperation<OnValue>> operation;
    Gate ended;
    const auto end = [&] { operation.reset(), ended.open(); };
    operation.reset(new PushOperation<OnValue>(push_sender(engine, [] {}, {mutate(a)}).connect(OnValue{end})));
    operation->start();
    ASSERT_TRUE(ended.pass());
    engine.wait_all();
  }
}

TEST_P(SenderTest, TheReceiverMayEndTheLastOwnerOfTheEngine) {
  for (int i = 0; i < 10; ++i) {
    Gate ended;
    auto mine = std::make_shared<Engine>(opens_at_its_end(options(), ended));
    const Var v = mine->new_var();
    Engine& alive = *mine;
    auto operation = push_sender(alive, [] {}, {mutate(v)}).connect(OnValue{[last = std::move(mine)] {}});
    operation.start();
    ASSERT_TRUE(ended.pass());
  }
}

TEST_P(SenderTest, ShutdownForStopsThoseThatHaveNotBegun) {
  HeldOp held(engine, {mutate(a)});
  int value = 0;
  auto operation = push_sender(engine, [&] { ++value; }, {mutate(a)}).connect(Receiver{&told});
  operation.start();
  const bool in_time = engine.shutdown_for(0s, [&](const std::string&) { held.complete(); });
  EXPECT_TRUE(in_time || engine.shutdown_for(patience));
  ASSERT_TRUE(told.gate.pass());
  EXPECT_EQ(told.stops, 1);
  EXPECT_EQ(value, 0);
}

TEST_P(SenderTest, ManyOperationsCompleteOnceEach) {
  constexpr int many = 200;
  std::vector<std::unique_ptr<Told>> all;
  std::vector<std::unique_ptr<PushOperation<Receiver>>> operations;
  int value = 0;
  for (int i = 0; i < many; ++i) {
    all.push_back(std::make_unique<Told>());
    operations.emplace_back(new PushOperation<Receiver>(
        push_sender(engine, [&] { ++value; }, {mutate(a)}).connect(Receiver{all.back().get()})));
    operations.back()->start();
  }
  engine.wait_all();
  EXPECT_EQ(value, many);
  for (const auto& one : all) EXPECT_EQ(one->values, 1);
}

}  // namespace
}  // namespace windrow::testing
