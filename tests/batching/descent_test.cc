// Steps of gradient descent: against a dense oracle, of increments that are small, and those that are skipped.
#include "tests/batching/trainer.h"

namespace windrow::testing {
namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

/// A table that is only looked up, times a weight, by a runner and by lazy expressions. The loss of an input is
/// x * (row of the word) . w.
struct Words : OnHost {
  explicit Words(const ParametersOptions& options = {}) : OnHost({.workers = 2}, 1, options) {}

  struct Input {
    std::int32_t word;
    float x;
  };
  using Inputs = std::vector<Input>;
  Minibatch differentiate(const Inputs& inputs) {
    GraphData data = leaves(inputs.size());
    for (const auto& [word, x] : inputs) {
      data.indices["word"].push_back(word);
      data.values["x"].push_back(x);
    }
    const Graphs graphs(function, {data});
    return runner.differentiate(graphs.pointers);
  }
  LazyExpr loss(const Input& input) {
    const LazyExpr row = embedding(words, graph.index(input.word));
    return matmul(row * graph.input({input.x, input.x}), w);
  }
  void backward(const Inputs& inputs, std::size_t flush_each = 0) {
    std::vector<LazyExpr> losses;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      losses.push_back(loss(inputs[i]));
      if (flush_each > 0 && i % flush_each == flush_each - 1) graph.flush();
    }
    graph.backward(losses);
    graph.clear();
  }

  /// Bytes, when all that was pushed is done.
  std::size_t live_without_gradients() {
    parameters.forget_gradients();
    engine.wait_all();
    return host.memory->use().live;
  }

  Parameter words = parameters.add("words", 5, 2, Initial::constant(1));
  Parameter w = parameters.add("w", 2, 1, Initial::constant(1));
  VertexFunction function{"words", {}, [this](Vertex& v) {
                            const Expr row = embedding(v.parameter(words), v.pull_index("word")), x = v.pull("x", 1);
                            v.loss(matmul(row * concat(x, x), w));
                          }};
  Runner runner{host, function, parameters};
  LazyGraph graph{host, parameters, {.recompute_below = 0}};
};

/// Both front ends. The second has what it computes at once in several epochs.
using FrontEnd = std::function<void(Words&, const Words::Inputs&)>;
const std::array<FrontEnd, 3> front_ends = {
    [](Words& s, const Words::Inputs& inputs) { s.differentiate(inputs); },
    [](Words& s, const Words::Inputs& inputs) { s.backward(inputs); },
    [](Words& s, const Words::Inputs& inputs) { s.backward(inputs, 50); },
};

class Descent : public ::testing::TestWithParam<std::size_t> {
 protected:
  void differentiate(const Words::Inputs& inputs) { front_ends[GetParam()](s, inputs); }

  Words s;
};

TEST_P(Descent, CountsSmallStepsOfOneWordHoweverManyTheyAre) {
  const std::size_t many = GetParam() == 0 ? 100'000 : 2'000;  // 1 - 1e-8 is 1
  Words::Inputs inputs(many, {3, 1e-8f});
  inputs[many / 2] = {0, 1e-8f};
  differentiate(inputs);
  const std::vector<float> gradient = s.parameters.dense_gradient(s.words).get();
  EXPECT_NEAR(gradient[6], 1e-8 * static_cast<double>(many - 1), 1e-12 * static_cast<double>(many));
  s.parameters.sgd(1);
  const auto moved = static_cast<float>(1 - 1e-8 * static_cast<double>(many - 1));
  const std::vector<float> after = s.parameters.value(s.words).get();
  EXPECT_NEAR(after[6], moved, 1e-7);
  EXPECT_NEAR(after[7], moved, 1e-7);
  EXPECT_EQ(after[0], 1);
  EXPECT_EQ(after[2], 1) << "of a word that does not occur";
}

TEST_P(Descent, WithDecayIsThatOfADenseGradient) {
  const Words::Inputs inputs = {{3, 1}, {0, 2}, {3, -4}, {2, 0.5f}, {0, 1}};
  std::vector<std::vector<double>> expected;
  for (const auto& value : values_of(s.parameters)) expected.emplace_back(value.begin(), value.end());
  for (int step = 0; step < 4; ++step) {
    differentiate(step == 2 ? Words::Inputs{{1, 3}} : inputs);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::vector<double> gradient = dense(s.parameters, s.parameters[i]);
      for (std::size_t k = 0; k < gradient.size(); ++k) {
        expected[i][k] -= 0.125 * (gradient[k] + 0.5 * expected[i][k]);  // as torch.optim.SGD(weight_decay=0.5)
      }
    }
    EXPECT_EQ(s.parameters.sgd(0.125, 0.5), static_cast<std::uint64_t>(step));
    const auto after = values_of(s.parameters);
    for (std::size_t i = 0; i < expected.size(); ++i) expect_near(after[i], expected[i], 1e-5);
  }
}

TEST_P(Descent, AddsToTheGradientsThatAreKept) {
  Words parts;
  const Words::Inputs first = {{3, 1}, {0, 2}, {3, -4}}, second = {{2, 0.5f}, {0, 1}};
  Words::Inputs both = first;
  both.insert(both.end(), second.begin(), second.end());
  differentiate(both);
  for (int i = 0; i < 2; ++i) {  // the second time the gradients of the first are replaced
    front_ends[GetParam()](parts, first);
    parts.parameters.keep_gradients();
    front_ends[GetParam()](parts, second);
    for (const auto& parameter : {s.words, s.w}) {
      const auto number = parameter.type().width == 2 ? 0u : 1u;
      EXPECT_EQ(parts.parameters.dense_gradient(parts.parameters[number]).get(),
                s.parameters.dense_gradient(s.parameters[number]).get());
    }
  }
  const Gradient summed = parts.parameters.summed_gradient(parts.words);
  ASSERT_EQ(summed.rows.size(), 1u);
  EXPECT_EQ(summed.rows[0].of.get(), (std::vector<std::int32_t>{0, 2, 3}));
  EXPECT_EQ(summed.rows[0].rows.get(), (std::vector<float>{3, 3, 0.5, 0.5, -3, -3}));
}

/// A table without a dense gradient keeps the sums of its rows, and not the minibatches that computed them.
TEST_P(Descent, KeepsTheRowsOfLookupsWithoutTheirMinibatches) {
  Words parts;
  std::size_t live = 0;
  for (int minibatch = 0; minibatch < 4; ++minibatch) {
    front_ends[GetParam()](parts, {{3, 1}, {0, 2}, {3, -4}});
    parts.parameters.keep_gradients();
    EXPECT_EQ(parts.parameters.looked_up_rows(parts.words), (std::vector<std::int32_t>{0, 3}));
    EXPECT_EQ(parts.parameters.gradient(parts.words).rows.size(), 1u);
    parts.engine.wait_all();
    const std::size_t now = parts.host.memory->use().live;
    if (minibatch > 1) {
      EXPECT_EQ(now, live) << minibatch;
    }
    live = now;
  }
}

TEST(KeptGradients, ThatHaveFailedLeaveTheLossesOfLaterMinibatches) {
  Words words;
  const Minibatch bad = words.differentiate({{1, not_a_number}});
  words.parameters.keep_gradients();
  const Minibatch good = words.differentiate({{3, 1}, {0, 2}});
  EXPECT_EQ(good.loss(), 6);
  EXPECT_THROW(bad.loss(), OpError);
  EXPECT_THROW(words.parameters.dense_gradient(words.w).get(), OpError) << "of both";
  words.parameters.forget_gradients();
}

/// A minibatch that adds to gradients takes its memory when they are there.
TEST(KeptGradients, LetTheNextMinibatchUseTheMemoryOfTheLast) {
  Words words;
  words.differentiate({{3, 1}, {0, 2}}).loss();
  words.parameters.keep_gradients();
  words.engine.wait_all();
  Gate late;
  const Var gradient = words.parameters.gradient(words.w).all->var();
  words.engine.push([&late] { late.await(); }, {mutate(gradient)}, {.name = "late"});
  const std::size_t before = words.host.memory->use().live;
  const Minibatch next = words.differentiate({{3, 1}, {0, 2}});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(words.host.memory->use().live, before);
  late.open();
  EXPECT_EQ(next.loss(), 6);
  words.engine.wait_all();
  EXPECT_GT(words.host.memory->use().live, before) << "as long as there is a handle";
}

TEST(PendingLoss, DoesNotKeepTheMemoryOfTheMinibatch) {
  Words words;
  words.differentiate({{3, 1}, {0, 2}}).loss();
  const std::size_t before = words.live_without_gradients();
  std::optional<Minibatch> minibatch = words.differentiate({{3, 1}, {0, 2}});
  EXPECT_GT(words.live_without_gradients(), before);
  const std::function<double()> loss = minibatch->pending_loss();
  minibatch.reset();
  EXPECT_EQ(words.live_without_gradients(), before);
  EXPECT_EQ(loss(), 6);
}

TEST(GradientsOfRows, KeepTheMemoryOfTheirMinibatchUntilTheyAreForgotten) {
  Words words;
  words.differentiate({{3, 1}, {0, 2}}).loss();
  const std::size_t none = words.live_without_gradients();
  words.differentiate({{3, 1}, {0, 2}});
  words.engine.wait_all();
  EXPECT_GT(words.host.memory->use().live, none);
  const Floats before = words.parameters.value(words.words).get();
  words.parameters.sgd(0.1);
  EXPECT_EQ(words.live_without_gradients(), none);
  EXPECT_TRUE(words.parameters.gradient(words.words).rows.empty());
  const Floats after = words.parameters.value(words.words).get();
  EXPECT_NE(after, before);
  words.parameters.sgd(0.1);
  EXPECT_EQ(words.parameters.value(words.words).get(), after) << "there is no gradient to descend along";
}

TEST_P(Descent, IsNotMadeWhereALossOrAGradientIsNotFiniteAndGoesOn) {
  Words with({.non_finite = NonFinite::skip}), without;
  const Words::Inputs good = {{3, 1}, {0, 2}, {3, -4}};
  const auto step = [&](Words& of, const Words::Inputs& inputs) {
    front_ends[GetParam()](of, inputs);
    return of.parameters.sgd(0.125, 0.5);
  };
  for (const Words::Inputs& bad :
       {Words::Inputs{{1, 1}, {3, not_a_number}}, {{1, infinity}}, {{3, 3e38f}, {3, 3e38f}}}) {
    step(with, good), step(without, good);
    const auto before = values_of(with.parameters);
    step(with, bad);
    EXPECT_EQ(values_of(with.parameters), before);
  }
  step(with, good), step(without, good);
  EXPECT_EQ(values_of(with.parameters), values_of(without.parameters)) << "nothing is left behind";
  const SkippedSteps skipped = with.parameters.skipped_steps();
  ASSERT_EQ(skipped.count, 3u);
  ASSERT_EQ(skipped.last.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(skipped.last[i].step, 2 * i + 1);
  const std::string nan_of =
      GetParam() == 0 ? "the loss of sample 0, vertex 1 is nan" : " is nan, expected a finite number";
  EXPECT_NE(skipped.last[0].why.find(nan_of), std::string::npos) << skipped.last[0].why;
  EXPECT_EQ(without.parameters.skipped_steps().count, 0u);
  with.graph.clear();
  with.parameters.forget_gradients();
  with.engine.wait_all();  // throws if anything is poisoned
  EXPECT_EQ(with.engine.stats().failed, 0u);
}

std::string name_of_front_end(const ::testing::TestParamInfo<std::size_t>& front_end) {
  return front_end.param == 0 ? "ARunner" : front_end.param == 1 ? "LazyExpressions" : "LazyExpressionsInManyFlushes";
}
INSTANTIATE_TEST_SUITE_P(Of, Descent, ::testing::Values(0u, 1u, 2u), name_of_front_end);

TEST(SkippingSteps, WaitsForNothingAndReturnsTheLossAsItIs) {
  Words s({.non_finite = NonFinite::skip});
  for (int i = 0; i < 3; ++i) {
    const Minibatch bad = s.differentiate({{1, 1}, {3, infinity}});
    s.parameters.sgd(0.5);
    if (i == 2) {
      EXPECT_EQ(bad.loss(), static_cast<double>(infinity));
    }
  }
  EXPECT_EQ(s.differentiate({{1, 1}}).loss(), 2) << "the call does not tell of those before";
  EXPECT_EQ(s.parameters.skipped_steps().count, 3u);
  EXPECT_NE(s.parameters.skipped_steps().last[0].why.find(
                "minibatch 0 of words: the loss of sample 0, vertex 1 is inf, expected a finite number; its input 'x' "
                "at sample 0, vertex 1 is not finite"),
            std::string::npos)
      << s.parameters.skipped_steps().last[0].why;
  // Only the last ones are told.
  s.differentiate({{1, not_a_number}});
  std::uint64_t last = 0;
  for (int i = 0; i < 150; ++i) last = s.parameters.sgd(0.5);
  s.parameters.value(s.w).get();
  EXPECT_EQ(s.parameters.skipped_steps().count, 153u);
  EXPECT_EQ(s.parameters.skipped_steps().last.size(), SkippedSteps::most_reported);
  EXPECT_EQ(s.parameters.skipped_steps().last.back().step, last);
}

TEST(SkippingSteps, LeavesOtherFailuresAsTheyAre) {
  Words s({.non_finite = NonFinite::skip});
  s.engine.push([] { throw std::runtime_error("lost"); }, {mutate(s.parameters.value(s.words).var())});
  s.differentiate({{1, 1}});
  s.parameters.sgd(0.5);
  EXPECT_THROW(s.parameters.value(s.w).get(), OpError);
  EXPECT_EQ(s.parameters.skipped_steps().count, 0u);
}

TEST(References, ToParametersStayValidWhateverIsAdded) {
  Words s;
  const std::string& name = s.parameters.name(s.words);
  const Tensor& value = s.parameters.value(s.words);
  const Gradient& gradient = s.parameters.gradient(s.words);
  for (int i = 0; i < 1000; ++i) s.parameters.add(std::to_string(i), 1, 1, Initial::zeros());
  s.differentiate({{1, 1}});
  s.parameters.gradient(s.words);
  EXPECT_EQ(name, "words");
  EXPECT_EQ(value.get(), std::vector<float>(10, 1));
  EXPECT_EQ(gradient.rows.size(), 1u);
}

}  // namespace
}  // namespace windrow::testing
