// Minibatches that are laid out ahead (Runner::prepare): they give what others give, and are used where they fit.
#include <optional>

#include "tests/batching/trainer.h"

namespace windrow::testing {
namespace {

/// Trees, in minibatches that differ; with dropout, if `rate` is not 0.
struct Ahead : OnHost {
  explicit Ahead(const EngineOptions& options = {.workers = 2}, double rate = 0.5, const RunnerOptions& of_runner = {})
      : OnHost(options),
        function("ahead", {.arity = 2},
                 [&](Vertex& v) {
                   const State s = v.state("s", 2);
                   const Expr own = tanh(matmul(concat(v.pull("x", 2), v.gather(0, s) + v.gather(1, s)), w));
                   v.scatter(s, own);
                   v.push("own", own);
                   v.loss(row_sum(square(rate > 0 ? dropout(own, Dropout{.rate = rate}) : own)));
                 }),
        runner(host, function, parameters, of_runner) {
    for (std::size_t i = 0; i < all.graphs.size(); ++i) minibatches[i % minibatches.size()].push_back(&all.graphs[i]);
  }

  /// The losses and the last values of the parameters. `ahead`: each minibatch is prepared before the previous one.
  std::vector<double> train(bool ahead) {
    std::vector<double> results;
    if (ahead) runner.prepare(minibatches[0]);
    for (std::size_t i = 0; i < minibatches.size(); ++i) {
      if (ahead && i + 1 < minibatches.size()) runner.prepare(minibatches[i + 1]);
      const Minibatch minibatch = runner.differentiate(minibatches[i]);
      parameters.sgd(0.1);
      results.push_back(minibatch.loss());
    }
    for (const Floats& values : values_of(parameters)) results.insert(results.end(), values.begin(), values.end());
    return results;
  }

  Parameter w = parameters.add("w", 4, 2, Initial::constant(0.5f));
  VertexFunction function;
  Runner runner;
  Graphs all{function, many_trees(4, 22)};
  std::array<std::vector<const InputGraph*>, 5> minibatches;
};

class PreparedOnEveryPolicy : public ::testing::TestWithParam<Setup> {};
WINDROW_EVERY_POLICY(PreparedOnEveryPolicy);

TEST_P(PreparedOnEveryPolicy, MinibatchesGiveTheSameBits) {
  Ahead plain({.policy = Policy::serial}), prepared({.policy = GetParam().policy, .workers = GetParam().workers});
  plain.runner.grouped(plain.all.pointers);  // the bits depend on the types that a runner has seen
  prepared.runner.grouped(prepared.all.pointers);
  EXPECT_EQ(prepared.train(true), plain.train(false));
  EXPECT_EQ(plain.runner.stats().prepared, 0);
  EXPECT_EQ(prepared.runner.stats().prepared, 5);
  EXPECT_EQ(prepared.runner.stats().minibatches, 5);
}

TEST(PreparedMinibatches, OfOthersAreLeftOut) {
  Ahead s;
  const auto used = [&](const auto& of) {
    const std::int64_t before = s.runner.stats().prepared;
    of();
    return s.runner.stats().prepared - before;
  };
  const auto& [first, second, third, fourth, fifth] = s.minibatches;
  s.runner.grouped(s.all.pointers);
  // Another call, or graphs in another order.
  s.runner.prepare(first);
  EXPECT_EQ(used([&] { s.runner.run(first); }), 0);
  EXPECT_EQ(used([&] { s.runner.differentiate(first); }), 1);
  s.runner.prepare(first, Runner::Call::run);
  EXPECT_EQ(used([&] { s.runner.differentiate(first); }), 0);
  EXPECT_EQ(used([&] { s.runner.run(first); }), 1);
  EXPECT_EQ(used([&] { s.runner.run(first); }), 0);
  const std::vector<const InputGraph*> reversed(second.rbegin(), second.rend());
  s.runner.prepare(second);
  EXPECT_EQ(used([&] { s.runner.differentiate(reversed); }), 0);
  s.runner.forget();
  // Dropout draws by the number of the minibatch.
  s.runner.prepare(third);
  s.runner.differentiate(fourth);
  EXPECT_EQ(used([&] { s.runner.differentiate(third); }), 0);
  s.parameters.number_samples(Ints(fifth.size(), 7));
  s.runner.prepare(fifth);
  EXPECT_EQ(used([&] { s.runner.differentiate(fifth); }), 0);
  // The plan is another one.
  s.runner.prepare(first);
  s.runner.forget();
  EXPECT_EQ(used([&] { s.runner.differentiate(first); }), 0);
  // A later one makes those before it needless.
  s.runner.prepare(first, Runner::Call::run);
  s.runner.prepare(second, Runner::Call::run);
  EXPECT_EQ(used([&] { s.runner.run(second); }), 1);
  EXPECT_EQ(used([&] { s.runner.run(first); }), 0);
  s.engine.wait_all();
}

TEST(PreparedMinibatches, ThatNobodyComputesAreForgotten) {
  Ahead s;
  s.runner.grouped(s.all.pointers);
  s.runner.prepare(s.minibatches[0], Runner::Call::run);
  for (int i = 0; i < 100; ++i) s.runner.prepare(s.minibatches[1], Runner::Call::run);
  s.runner.run(s.minibatches[0]);
  EXPECT_EQ(s.runner.stats().prepared, 0);
  s.runner.prepare(s.minibatches[2]);
  // Nobody computes that one before the runner ends.
}

TEST(PreparedMinibatches, ShareTheContentsOfGraphsThatEnd) {
  Ahead s({.workers = 2}, 0);
  std::optional<InputGraph> graph(std::in_place, s.function, many_trees(9, 1)[0]);
  const InputGraph copy = *graph;
  s.runner.prepare(std::vector{&*graph});
  graph.emplace(s.function, many_trees(10, 1)[0]);  // at the same address
  const double expected = s.runner.run(std::vector{&*graph}).loss();
  EXPECT_EQ(s.runner.differentiate(std::vector{&*graph}).loss(), expected);
  EXPECT_EQ(s.runner.stats().prepared, 0);
  s.runner.prepare(std::vector{&*graph});
  graph.reset();
  s.runner.prepare(std::vector{&copy});
  s.runner.differentiate(std::vector{&copy});
  EXPECT_EQ(s.runner.stats().prepared, 1);
}

TEST(PreparedMinibatches, AreNoneOfFunctionsThatPullGivenRows) {
  OnHost s;
  const VertexFunction function("given", {}, [](Vertex& v) { v.loss(row_sum(v.pull_row("features", 2))); });
  Runner runner(s.host, function, s.parameters);
  const Graphs graphs(function, {leaves(3)});
  runner.prepare(graphs.pointers);
  const Tensor features = s.tensor({1, 2, 3, 4, 5, 6}, 2);
  EXPECT_EQ(runner.differentiate(graphs.pointers, {{"features", {features}}}).loss(), 21);
  EXPECT_EQ(runner.stats().prepared, 0);
}

TEST(PreparedMinibatches, RefuseWhatTheCallRefuses) {
  Ahead s, other;
  EXPECT_EQ(error_of<MisuseError>([&] { s.runner.prepare(other.all.pointers); }),
            "ahead: sample 0: a graph of another vertex function; expected graphs made for this one");
  const VertexFunction function("no_loss", {}, [](Vertex& v) { v.push("x", v.pull("x", 1)); });
  Runner runner(s.host, function, s.parameters);
  const Graphs graphs(function, {leaves(1, {1})});
  EXPECT_EQ(error_of<MisuseError>([&] { runner.prepare(graphs.pointers); }),
            error_of<MisuseError>([&] { runner.differentiate(graphs.pointers); }));
  runner.prepare(graphs.pointers, Runner::Call::run);
  EXPECT_EQ(runner.run(graphs.pointers).output("x").get(), Floats{1});
  EXPECT_EQ(runner.stats().prepared, 1);
}

}  // namespace
}  // namespace windrow::testing
