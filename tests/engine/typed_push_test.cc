// Typed pushes: which functions and accesses they take. value_test.cc has the rest.
#include <functional>
#include <memory>
#include <vector>

#include "support.h"
#include "windrow/engine/reduction.h"
#include "windrow/engine/value.h"

namespace windrow::testing {
namespace {

class TypedPush : public ::testing::Test {
 protected:
  Engine engine;
};

TEST_F(TypedPush, RefusesEmptyFunctionsAtTheCall) {
  Value<int> x(engine, "x");
  const Var v = engine.new_var("v");
  int (*const none)(int) = nullptr;
  EXPECT_THROW(engine.push(none, read(x)), MisuseError);
  EXPECT_THROW(engine.run(none, read(x)), MisuseError);
  EXPECT_THROW(engine.run(std::function<int(int)>(), read(x)), MisuseError);
  EXPECT_THROW(engine.push(OpFunction(), mutate(v)), MisuseError);
  EXPECT_THROW(engine.declare(OpFunction(), mutate(v)), MisuseError);
  engine.retire(v);
}

struct Node {
  int number = 0;
  std::unique_ptr<Value<Node>> next;
};

TEST_F(TypedPush, ResultsAreAssignedWhatTheirObjectsOwn) {
  Value<Node> list(engine, "list");
  list.edit().next = std::make_unique<Value<Node>>(engine, "next");
  list.get().next->edit().number = 2;
  list = std::move(*list.edit().next);
  EXPECT_EQ(list.get().number, 2);
  Value<Node>& itself = list;
  list = std::move(itself);
  EXPECT_EQ(list.get().number, 2);
}

TEST(TypedPushOfSerial, AddsInsideAnAdd) {
  Engine engine({.policy = Policy::serial});
  Reduction<int> sum(engine, 0);
  sum.add([&](int& part) {
    part += 1;
    sum.add([](int& other) { other += 2; });
  });
  EXPECT_EQ(sum.get(), 3);
}

TEST_F(TypedPush, TakesAccessesToVariables) {
  const Var order = engine.new_var("order");
  Value<int> x(engine, "x", 1);
  std::vector<int> written;
  for (int i = 0; i < 100; ++i) {
    engine.push([&written, i](auto& n) { written.push_back(i * n); }, read(x), mutate(order));
    engine.push([&written] { written.pop_back(); }, mutate(order), read(x.var()));
  }
  engine.push([](auto&... all) { ((all += 1), ...); }, windrow::mutate(x));
  const auto sum =
      engine.run([&written](int n) { return written.size() + static_cast<std::size_t>(n); }, read(order), read(x));
  EXPECT_EQ(sum.get(), 2u);
  engine.retire(order);
}

TEST_F(TypedPush, TakesAnythingThatCanBeCalled) {
  struct Object {
    int number = 0;
    void bump() { ++number; }
  };
  struct Qualified {
    void operator()(int& x) & { x = 1; }
  };
  Value<int> x(engine, "x");
  Value<Object> object(engine, "object");
  engine.push([](OpContext&, int& n) { return n = 3; }, mutate(x), {});
  engine.push(&Object::bump, mutate(object));
  EXPECT_EQ(x.get(), 3);
  EXPECT_EQ(object.get().number, 1);
  engine.push(Qualified(), mutate(x));
  EXPECT_EQ(x.get(), 1);
  expect_error<MisuseError>([&] { engine.push(std::function<void(int&)>(), mutate(x), {.name = "none"}); },
                            {"op 'none' ", "was given no function"});
  EXPECT_EQ(x.get(), 1);
}

}  // namespace
}  // namespace windrow::testing
