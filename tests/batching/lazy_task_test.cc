// Instances as coroutines: what they compute, how they batch, and how they end.
#include "windrow/batching/lazy_task.h"

#include "tests/batching/cells.h"

namespace windrow::testing {
namespace {

/// Halves its state until it is small, and as often as that: a length that depends on values.
LazyTask<int> halve(LazyGraph& graph, Parameter half, float from) {
  LazyExpr x = graph.input({from});
  int steps = 0;
  while ((co_await value(x))[0] > 1) {
    x = matmul(x, half);
    ++steps;
  }
  co_return steps;
}

LazyTask<LazyExpr> doubled(LazyExpr x) {
  const std::vector<float> before = co_await value(x);
  co_return before[0] > 3 ? x : x + x;
}
LazyTask<std::string> with_others(LazyGraph& graph, float from) {
  const LazyExpr x = graph.input({from});
  const LazyExpr once = co_await doubled(x);
  const LazyExpr twice = co_await doubled(once);
  const std::vector<float> result = co_await value(twice);
  co_return std::to_string(result[0]).substr(0, 4);
}

LazyTask<> failing(LazyGraph& graph, Parameter table, std::int32_t row, std::vector<int>& ended) {
  const LazyExpr x = embedding(table, graph.index(row));
  co_await value(x);
  ended.push_back(row);
}

class Tasks : public ::testing::Test, protected OnHost {
 protected:
  Parameter half = parameters.add("half", 1, 1, Initial::constant(0.5f));
  LazyGraph graph{host, parameters};
};

TEST_F(Tasks, GoOnTogetherEachForAsLongAsItMust) {
  std::vector<LazyTask<int>> tasks;
  std::vector<int> expected;
  for (int i = 0; i < 100; ++i) {
    tasks.push_back(halve(graph, half, static_cast<float>(1 << (i % 7))));
    expected.push_back(i % 7);
  }
  EXPECT_EQ(run(graph, std::move(tasks)), expected);
  EXPECT_EQ(graph.stats().flushes, 7);
  EXPECT_EQ(graph.stats().kinds, 2);  // the input, and the step
}

/// Whether what each flush computes is kept, or computed again at once.
TEST_F(Tasks, HaveGradientsThroughAllTheirSteps) {
  const auto power = [](LazyGraph& g, Parameter w, int n, std::vector<LazyExpr>& losses) -> LazyTask<> {
    LazyExpr x = g.input({1});
    for (int i = 0; i < n; ++i) {
      x = matmul(x, w);
      co_await value(x);
    }
    losses.push_back(x);
  };
  std::int64_t minibatches[2];
  for (const bool kept : {false, true}) {
    LazyGraph other(host, parameters, {.recompute_below = kept ? 0 : 1000});
    std::vector<LazyExpr> losses;
    std::vector<LazyTask<>> tasks;
    double expected = 0;  // d/dw of the sum of w^n
    for (int n = 1; n <= 6; ++n) {
      tasks.push_back(power(other, half, n, losses));
      expected += n * std::pow(0.5, n - 1);
    }
    run(other, std::move(tasks));
    other.backward(losses);
    EXPECT_NEAR(dense(parameters, half)[0], expected, 1e-5);
    minibatches[kept] = other.stats().runner.minibatches;
  }
  EXPECT_EQ(minibatches[true], 6);
  EXPECT_EQ(minibatches[false], 7);
}

enum class Keeps { losses, nothing };
LazyTask<> walk(LazyGraph& graph, Parameter half, int steps, Keeps keeps) {
  LazyExpr x = graph.input({1});
  std::vector<LazyExpr> losses;
  for (int i = 0; i < steps; ++i) {
    x = matmul(x, half);
    co_await value(x);
    if (keeps == Keeps::losses) losses.push_back(square(x));
  }
}

LazyTask<> look(LazyGraph& graph, int steps) {
  for (int i = 0; i < steps; ++i) {
    const LazyExpr x = graph.input({1, 2});
    co_await value(x);
  }
}

/// What they write side by side by chance would be tied for good, and be another way of computing from then on.
TEST_F(Tasks, AreNotTiedToEachOtherNorToTheirOwnPast) {
  const auto run_all = [&](int others, Keeps first, int last) {
    std::vector<LazyTask<>> tasks;
    tasks.push_back(walk(graph, half, others, first));
    for (int i = 0; i < 4; ++i) tasks.push_back(walk(graph, half, others, Keeps::losses));
    tasks.push_back(walk(graph, half, last, Keeps::losses));
    run(graph, std::move(tasks));
  };
  run_all(3, Keeps::losses, 3);   // each loss stands before a step
  run_all(3, Keeps::nothing, 2);  // in the end, each step stands before another's loss
  graph.flush();
  EXPECT_EQ(graph.stats().kinds, 3);  // the first step, the others, the loss
  std::vector<LazyTask<>> tasks;
  for (int i = 0; i < 5; ++i) {
    tasks.push_back(walk(graph, half, 3, Keeps::nothing));
    tasks.push_back(look(graph, 3));
  }
  run(graph, std::move(tasks));
  EXPECT_EQ(graph.stats().kinds, 4);
}

TEST_F(Tasks, FailForThemselvesAndAreToldOnce) {
  const Parameter table = parameters.add("table", 3, 2, Initial::zeros());
  std::vector<int> ended;
  std::vector<LazyTask<>> tasks;
  for (std::int32_t row : {0, 9, 2}) tasks.push_back(failing(graph, table, row, ended));
  EXPECT_EQ(error_of<MisuseError>([&] { run(graph, std::move(tasks)); }), "embedding: index 9; expected 0 to 2");
  EXPECT_EQ(ended, (std::vector<int>{0, 2}));
  graph.clear();
  for (int time = 0; time < 3; ++time) {
    tasks.clear();
    tasks.push_back(failing(graph, table, 1, ended));
    EXPECT_NO_THROW(run(graph, std::move(tasks)));
  }
}

TEST_F(Tasks, TellWhatWouldNeverGoOn) {
  const auto said = [&](auto... task) {
    std::vector<LazyTask<int>> tasks;
    (tasks.push_back(std::move(task)()), ...);
    return error_of<MisuseError>([&] { run(graph, std::move(tasks)); });
  };
  LazyGraph other(host, parameters);
  EXPECT_EQ(said([&] { return halve(other, half, 4); }),
            "a task waits for an expression of another lazy graph than it runs with; expected the same");
  const auto clearing = [](LazyGraph& g) -> LazyTask<int> {
    g.clear();
    co_return 1;
  };
  EXPECT_EQ(said([&] { return halve(graph, half, 4); }, [&] { return clearing(graph); }),
            "run: a task still waits for what was cleared; expected clear() when all have ended");
  LazyTask<int> first = halve(graph, half, 4);
  const LazyTask<int> second = std::move(first);
  EXPECT_EQ(said([&] { return std::move(first); }), "run: a task that was moved from; expected one that has not begun");
  const auto waits = [](LazyTask<int> task) -> LazyTask<int> {
    const LazyTask<int> kept = std::move(task);
    co_return co_await std::move(task);
  };
  EXPECT_EQ(said([&] { return waits(halve(graph, half, 4)); }),
            "co_await: a task that was moved from; expected one that has not begun");
}

/// What it asks for is of a graph whose tasks run, but with another graph's loop, which would never come back to it.
TEST_F(Tasks, RefuseAnotherGraphThatRunsToo) {
  LazyGraph other(host, parameters);
  const auto inner = [](LazyExpr of) -> LazyTask<float> { co_return (co_await value(of))[0]; };
  const auto outer = [&](LazyGraph& own) -> LazyTask<std::string> {
    const LazyExpr x = tanh(own.input({0}));
    std::vector<LazyTask<float>> tasks;
    tasks.push_back(inner(x));
    std::string error = error_of<MisuseError>([&] { run(other, std::move(tasks)); });
    const std::vector<float> then = co_await value(exp(x));
    co_return error + std::to_string(then[0]).substr(0, 4);
  };
  std::vector<LazyTask<std::string>> tasks;
  tasks.push_back(outer(graph));
  EXPECT_EQ(run(graph, std::move(tasks)),
            std::vector<std::string>{
                "a task waits for an expression of another lazy graph than it runs with; expected the same1.00"});
}

LazyTask<int> nothing() { co_return 1; }

/// Neither grows the stack by what they waited for, also without optimisation.
TEST_F(Tasks, MayWaitForAnyNumberOfOthers) {
  constexpr int count = 200'000;
  const auto many = []() -> LazyTask<int> {
    int sum = 0;
    for (int i = 0; i < count; ++i) sum += co_await nothing();
    co_return sum;
  };
  const auto deep = [](const auto& self, int depth) -> LazyTask<int> {
    if (depth == 0) co_return 0;
    co_return 1 + co_await self(self, depth - 1);
  };
  std::vector<LazyTask<int>> tasks;
  tasks.push_back(many());
  tasks.push_back(deep(deep, count));
  EXPECT_EQ(run(graph, std::move(tasks)), (std::vector<int>{count, count}));
}

/// A task that runs others makes those go on that wait beside it.
TEST_F(Tasks, WaitForEachOtherAndMayRunOthersInTheirMidst) {
  const auto inner = [](LazyGraph& g, Parameter w) -> LazyTask<std::string> {
    std::vector<LazyTask<int>> tasks;
    tasks.push_back(halve(g, w, 4));
    const std::vector<int> steps = run(g, std::move(tasks));
    co_return std::to_string(steps[0]);
  };
  std::vector<LazyTask<std::string>> tasks;
  for (float from : {1.0f, 2.0f, 4.0f}) tasks.push_back(with_others(graph, from));
  tasks.push_back(inner(graph, half));
  EXPECT_EQ(run(graph, std::move(tasks)), (std::vector<std::string>{"4.00", "4.00", "4.00", "2"}));
}

TEST_F(Tasks, DoNotWaitForWhatIsThere) {
  const LazyExpr x = graph.input({3});
  x.value();
  const auto look = [](LazyExpr of) -> LazyTask<float> { co_return (co_await value(of))[0]; };
  std::vector<LazyTask<float>> tasks;
  tasks.push_back(look(x));
  EXPECT_EQ(run(graph, std::move(tasks)), std::vector<float>{3});
  EXPECT_EQ(graph.stats().flushes, 1);
}

}  // namespace
}  // namespace windrow::testing
