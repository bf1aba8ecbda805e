// Values: what ops receive, lifetimes, names, ranges, results, waits.
#include "windrow/engine/value.h"

#include <numeric>
#include <random>

#include "read_trace.h"
#include "support.h"
#include "tests/seed.h"
#include "windrow/engine/reduction.h"

namespace windrow::testing {
namespace {

/// Counts its objects, and refuses to be copied.
struct Counted {
  explicit Counted(std::atomic<int>& counter, int of = 0) : alive(&counter), number(of) { ++*alive; }
  Counted(Counted&& other) noexcept : alive(other.alive), number(other.number) { ++*alive; }
  Counted& operator=(Counted&& other) noexcept {
    number = other.number;
    return *this;
  }
  ~Counted() { --*alive; }

  std::atomic<int>* alive;
  int number;
};

struct alignas(128) Wide {
  int number = 0;
};

// The engine moves the functions of ops as bytes where it can, which costs less than a call.
template <AccessKind kind>
using KeptInt = ObjectKept<Accessed<int, kind>>;
static_assert(std::is_trivially_copyable_v<typed::Call<void (*)(const int&, int&), std::index_sequence<0, 1>,
                                                       KeptInt<AccessKind::read>, KeptInt<AccessKind::mutate>>>);

class ValuesOnEveryPolicy : public EveryPolicy {
 protected:
  Engine engine{options()};
};

TEST_P(ValuesOnEveryPolicy, OpsReceiveWhatTheyDeclare) {
  Value<int> x(engine, "x", 3);
  Value<std::string> text(engine, "text"), copy(engine, "copy", "old");
  engine.push([](const int& n, std::string& s) { s = std::string(static_cast<std::size_t>(n), 'a'); }, read(x),
              overwrite(text), {.name = "fill"});
  engine.push([](OpContext& context, std::string& s) { s += context.lane() == nullptr ? "b" : "c"; }, mutate(text));
  engine.push([](auto& s, const auto& from) { s = from; }, overwrite(copy), read(text));
  EXPECT_EQ(copy.get(), "aaab");
  x.edit() = 5;
  EXPECT_EQ(x.get(), 5);
  x.set(6);
  EXPECT_EQ(x.get(), 6);
}

TEST_P(ValuesOnEveryPolicy, CommutingOpsShareOneValueOneAtATime) {
  Value<int> sum(engine, "sum");
  Crowd crowd;
  for (int i = 1; i <= 100; ++i) engine.push([&, i](int& s) { crowd.pass([&] { s += i; }); }, commute(sum));
  EXPECT_EQ(sum.get(), 5050);
  EXPECT_EQ(crowd.most(), 1);
}

TEST_P(ValuesOnEveryPolicy, RangesGiveSpans) {
  Values<int> numbers(engine, "numbers", 10);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    engine.push([i](int& n) { n = static_cast<int>(i); }, overwrite(numbers[i]));
  }
  Value<int> total(engine, "total");
  const auto add = [](std::span<const int> all, int& t) { t = std::accumulate(all.begin(), all.end(), 0); };
  engine.push(add, read(all(numbers)), overwrite(total));
  EXPECT_EQ(total.get(), 45);
  engine.push([](std::span<int> some) { some[0] += 100; }, mutate(all(numbers, 2, 3)));
  EXPECT_EQ(numbers[2].get(), 102);
  engine.push(add, read(all(numbers, 0, 0)), overwrite(total));
  EXPECT_EQ(total.get(), 0);
  expect_error<MisuseError>([&] { all(numbers, 8, 3); },
                            {"values 'numbers': all(values, 8, 3) of 10 values; expected elements that exist"});
  expect_error<MisuseError>([&] { numbers[10]; }, {"values 'numbers'[10] of 10 values; expected elements that exist"});
}

TEST_P(ValuesOnEveryPolicy, ResultsBecomeValues) {
  Value<int> x(engine, "x", 20);
  Value<int> y = engine.run([](int n) { return 2 * n; }, read(x), {.name = "twice"});
  Value<std::unique_ptr<int>> boxed =
      engine.run([](int a, int& b) { return std::make_unique<int>(a + b++); }, read(x), mutate(y));
  EXPECT_EQ(*boxed.get(), 60);
  EXPECT_EQ(y.get(), 41);
  EXPECT_EQ(engine.run([] { return 7; }).get(), 7);
  Value<int> failed = engine.run([]() -> int { throw Error("no result"); }, {.name = "fail"});
  expect_error<OpError>([&] { failed.get(); }, {"op 'fail' on 'fail' (pushed at ", "no result"});
}

TEST_P(ValuesOnEveryPolicy, ThatEndGiveTheirObjectsAway) {
  const std::string& kept = engine.run([] { return std::string(100, 'a'); }).get();
  EXPECT_EQ(kept, std::string(100, 'a'));
  EXPECT_EQ(*engine.run([] { return std::make_unique<int>(5); }).get(), 5);
}

TEST_P(ValuesOnEveryPolicy, EqualTheSerialProgram) {
  constexpr std::size_t n = 16;
  Values<std::uint64_t> values(engine, "v", n, std::uint64_t{1});
  std::vector<std::uint64_t> serial(n, 1);
  std::mt19937_64 random(first_seed());
  for (int op = 0; op < 2000; ++op) {
    const std::size_t a = random() % n, b = random() % n, to = random() % n;
    const auto mix = [op](std::uint64_t x, std::uint64_t y, std::uint64_t& z) {
      z = z * 31 + (x ^ (y << 7)) + static_cast<std::uint64_t>(op);
    };
    engine.push(mix, read(values[a]), read(values[b]), mutate(values[to]));
    mix(serial[a], serial[b], serial[to]);
  }
  for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(values[i].get(), serial[i]);
}

TEST_P(ValuesOnEveryPolicy, ObjectsLiveUntilTheLastOpHasRun) {
  std::atomic<int> alive{0};
  int seen = 0;
  {
    Value<int> result(engine, "result");
    {
      Value<Counted> one(engine, "one", alive, 1);
      Values<Counted> row(engine, "row", 3, std::ref(alive));
      Value<Counted> moved(std::move(one));
      engine.push([](const Counted& c, const Counted& d, int& r) { r = c.number + d.alive->load(); }, read(moved),
                  read(row[2]), overwrite(result));
      one = Value<Counted>(engine, "again", alive, 2);
    }
    engine.push([&](int r) { seen = r; }, read(result));
  }
  engine.wait_all();
  EXPECT_GE(seen, 1 + 4);
  EXPECT_EQ(alive, 0);
}

TEST_P(ValuesOnEveryPolicy, OutliveTheirEngine) {
  std::atomic<int> alive{0};
  {
    std::optional<Engine> inner(std::in_place, options());
    Value<Counted> value(*inner, "value", alive, 1);
    inner->push([](Counted& c) { ++c.number; }, mutate(value));
    inner.reset();
    expect_error<MisuseError>([&] { value.get(); }, {});
    EXPECT_EQ(alive, 1);
  }
  EXPECT_EQ(alive, 0);
}

TEST_P(ValuesOnEveryPolicy, ErrorsNameTheValuesThatAnOpChanges) {
  Values<int> y(engine, "y", 8);
  Value<int> x(engine, "x");
  const Var plain = engine.new_var("plain");
  engine.push([](int&, int&, std::span<int>) { throw Error("boom"); }, overwrite(x), mutate(y[5]), mutate(all(y, 0, 5)),
              {.name = "blur"});
  engine.push([](int, int&) {}, read(y[5]), mutate(y[7]), {.name = "next"});
  expect_error<OpError>([&] { y[7].get(); }, {"op 'next' on 'y[7]' (pushed at ",
                                              " was skipped because op 'blur' on 'x', 'y[0]', 'y[1]', "
                                              "'y[2]' and 3 more (pushed at "});
  engine.push([] { throw Error("plain"); }, {mutate(plain)}, {.name = "untyped"});
  expect_error<OpError>([&] { engine.wait(plain); }, {"op 'untyped' (pushed at "});
  try {
    x.get();
    ADD_FAILURE();
  } catch (const OpError& error) {
    EXPECT_EQ(error.failures().front()->changes, "'x', 'y[0]', 'y[1]', 'y[2]' and 3 more");
  }
  for (Var var : {plain, x.var()}) engine.heal(var);
  for (std::size_t i = 0; i < y.size(); ++i) y[i].set(0);
  engine.wait_all();
}

TEST_P(ValuesOnEveryPolicy, GraphsAndDeclaredOpsTakeValues) {
  Value<double> x(engine, "x", 1.0), y(engine, "y");
  const Graph step = engine.capture([&] {
    engine.push([](double a, double& b) { b = 2 / a; }, read(x), overwrite(y));
    engine.push([](double& a, double b) { a = (a + b) / 2; }, mutate(x), read(y));
  });
  for (int i = 0; i < 6; ++i) step.launch();
  EXPECT_NEAR(x.get(), 1.414214, 1e-6);
  const DeclaredOp twice = engine.declare([](double& a) { a *= 2; }, mutate(x));
  engine.push(twice), engine.push(twice);
  EXPECT_NEAR(x.get(), 4 * 1.414214, 1e-5);
}

TEST_P(ValuesOnEveryPolicy, OfAGraphAreUsedInEachLaunch) {
  std::atomic<int> alive{0};
  Value<int> sum(engine, "sum");
  {
    const Graph graph = engine.capture([&] {
      Value<Counted> own(engine, "own", alive);
      engine.push([](Counted& c) { c.number = 3; }, overwrite(own));
      Value<int> result = engine.run([](const Counted& c) { return c.number; }, read(own));
      engine.push([](int r, int& s) { s += r; }, read(result), mutate(sum));
    });
    for (int i = 0; i < 5; ++i) graph.launch();
    EXPECT_EQ(sum.get(), 15);
  }
  engine.wait_all();
  EXPECT_EQ(alive, 0);
}

TEST_P(ValuesOnEveryPolicy, OfACaptureAreSetInEachLaunchOrRefuseIt) {
  Value<int> count(engine, "count");
  Value<std::string> text(engine, "text", "before");
  const Graph graph = engine.capture([&] { count.set(3); });
  for (int i = 0; i < 3; ++i) {
    graph.launch();
    EXPECT_EQ(count.get(), 3);
    count.set(0);
  }
  expect_error<MisuseError>([&] { engine.capture([&] { text.set("once"); }); },
                            {"set() in a capture", "expected a push of an op that assigns the value"});
  EXPECT_EQ(text.get(), "before");
}

TEST_P(ValuesOnEveryPolicy, StopTokensAndRunAlwaysWorkAsForUntypedPushes) {
  Value<int> x(engine, "x");
  engine.push([](int& n) { n = 1; }, mutate(x), {.name = "late", .stop = stopped()});
  bool told = false;
  engine.push([&](OpContext& context, int) { told = context.failure() != nullptr; }, read(x), {.run_always = true});
  expect_error<OpError>([&] { x.get(); }, {"op 'late' on 'x' (pushed at ", "was cancelled"});
  engine.wait_for({mutate(engine.new_var())}, patience);
  x.set(4);
  EXPECT_EQ(x.get(), 4);
  EXPECT_TRUE(told);
}

TEST_P(ValuesOnEveryPolicy, ReductionsTakeValuesAndAreValues) {
  Values<float> parts(engine, "parts", 50, 0.5f);
  Value<float> result(engine, "result");
  {
    Reduction<float> sum(engine, 0.0f);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      sum.add([](float& part, float each) { part += each; }, read(parts[i]), {.name = "add"});
    }
    engine.push([](float s, float& r) { r = s; }, read(sum), overwrite(result));
    engine.push([](float& s, float& r) { r += ++s; }, mutate(sum), mutate(result));
  }
  EXPECT_EQ(result.get(), 25 + 26);
}

WINDROW_EVERY_POLICY(ValuesOnEveryPolicy);

using ValuesOfPool = PoolOf<2>;

TEST_F(ValuesOfPool, MayBeWideAndLargerThanTheInsideOfAFunction) {
  Value<Wide> wide(engine, "wide");
  Values<Wide> row(engine, "row", 3);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&wide.get()) % alignof(Wide), 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&row[1].get()) % alignof(Wide), 0u);
  const std::array<int, 100> large{1, 2};
  engine.push([large](const Wide&, Wide& w, const Wide&, const Wide&, const Wide&, const Wide&, const Wide&,
                      const Wide&) { w.number = large[1]; },
              read(wide), overwrite(row[0]), read(row[1]), read(row[2]), read(wide), read(wide), read(wide),
              read(wide));
  EXPECT_EQ(row[0].get().number, 2);
}

/// Starts at once and ends by itself.
struct Detached {
  struct promise_type {
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

Detached await_all(Engine& engine, Value<int>& x, Values<int>& row, int& sum, Gate& done) {
  const std::vector<int>& made = co_await engine.run([] { return std::vector<int>(1, 1000); });
  sum = co_await x;
  sum += co_await row[1];
  sum += made[0];
  try {
    co_await row[0];
  } catch (const OpError&) {
    sum += 100;
  }
  done.open();
}

TEST_F(ValuesOfPool, AreAwaitedByCoroutines) {
  Value<int> x(engine, "x");
  Values<int> row(engine, "row", 2, 5);
  Gate go, done;
  engine.push([&](int& n) { go.await(), n = 4; }, overwrite(x));
  engine.push([](int&) { throw Error("bad"); }, mutate(row[0]));
  int sum = 0;
  await_all(engine, x, row, sum, done);
  go.open();
  done.await();
  EXPECT_EQ(sum, 1109);
  row[0].set(0);
}

TEST_F(ValuesOfPool, ThatWereMovedFromAreEmpty) {
  Values<int> row(engine, "row", 2), other = std::move(row);
  EXPECT_EQ(row.size(), 0u);
  Value<std::size_t> size = engine.run([](std::span<const int> none) { return none.size(); }, read(all(row)));
  EXPECT_EQ(size.get(), 0u);
  EXPECT_EQ(other.size(), 2u);
}

TEST_F(ValuesOfPool, OfAnotherEngineAreRefused) {
  Engine other;
  Value<int> x(other, "x");
  expect_error<MisuseError>([&] { engine.push([](int) {}, read(x), {.name = "mixed"}); },
                            {"op 'mixed' ", "names a variable of another engine"});
}

TEST_F(ValuesOfPool, TracesSayWhichValuesAnOpChanges) {
  Values<int> tiles(engine, "tiles", 3), row(engine, "row", 12);
  Value<int> sum(engine, "sum");
  engine.trace().start();
  engine.push([](int, int& t, int& s) { s = ++t; }, read(tiles[0]), mutate(tiles[2]), overwrite(sum), {.name = "both"});
  engine.push([](int) {}, read(sum), {.name = "reads"});
  engine.push([](std::span<int>) {}, mutate(all(row)), {.name = "many"});
  const ReadTrace trace = end_trace(engine);
  EXPECT_EQ(trace.op("both").changes, "sum, tiles[2]");
  EXPECT_EQ(trace.op("reads").changes, "");
  EXPECT_EQ(trace.op("many").changes, "row[0], row[1], row[2], row[3] and 8 more");
}

TEST_F(ValuesOfPool, NamesOfVariablesTakeAnIndex) {
  const Var y = engine.new_var({"y", 3});
  engine.push([] { throw Error("boom"); }, {mutate(y)}, {.name = "op"});
  expect_error<OpError>([&] { engine.wait(y); }, {"op 'op' on 'y[3]' (pushed at "});
  engine.retire(y);
  expect_error<MisuseError>([&] { engine.push([] {}, {read(y)}); }, {"names variable 'y[3]', which was retired"});
}

}  // namespace
}  // namespace windrow::testing
