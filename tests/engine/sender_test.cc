// Ops as senders, with a receiver written by hand.
#include "windrow/engine/sender.h"

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "support.h"

namespace windrow::testing {
namespace {

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
  struct Owning;
  using Operation = PushOperation<Owning>;
  struct Owning {
    std::unique_ptr<Operation>* operation;
    Gate* gate;
    void set_value() && noexcept {
      Gate* const last = gate;  // this goes with the operation
      operation->reset();
      last->open();
    }
    void set_stopped() && noexcept { ADD_FAILURE(); }
    void set_error(std::exception_ptr) && noexcept { ADD_FAILURE(); }
  };
  for (int i = 0; i < 100; ++i) {
    std::unique_ptr<Operation> operation;
    Gate ended;
    operation.reset(new Operation(push_sender(engine, [] {}, {mutate(a)}).connect(Owning{&operation, &ended})));
    operation->start();
    ASSERT_TRUE(ended.pass());
    engine.wait_all();
  }
}

TEST_P(SenderTest, TheReceiverMayEndTheLastOwnerOfTheEngine) {
  struct Owning {
    std::shared_ptr<Engine> engine;
    void set_value() && noexcept { engine.reset(); }
    void set_stopped() && noexcept { ADD_FAILURE(); }
    void set_error(std::exception_ptr) && noexcept { ADD_FAILURE(); }
  };
  for (int i = 0; i < 10; ++i) {
    Gate ended;
    auto mine = std::make_shared<Engine>(opens_at_its_end(options(), ended));
    const Var v = mine->new_var();
    Engine& alive = *mine;
    auto operation = push_sender(alive, [] {}, {mutate(v)}).connect(Owning{std::move(mine)});
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
