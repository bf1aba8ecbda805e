// What lazy graphs hold in memory, and until when.
#include "tests/batching/cells.h"
#include "windrow/batching/lazy_task.h"
#include "windrow/memory/pool.h"

namespace windrow::testing {
namespace {

constexpr Index state_size = 4, wide = 4096;
constexpr int instances = 16;
/// Of the scores of all instances at one step.
constexpr std::size_t step_bytes = instances * wide * sizeof(float);

struct Speaker : OnHost {
  explicit Speaker(Policy policy = Policy::pool) : OnHost({.policy = policy, .workers = 2}) {}

  Parameter u = parameters.add("u", state_size, state_size, Initial::uniform(-1, 1));
  Parameter out = parameters.add("out", state_size, wide, Initial::constant(1));

  PoolStats stats() {
    engine.wait_all();
    return std::dynamic_pointer_cast<Pool>(host.memory)->stats();
  }
};

/// Looks at wide scores, step after step; keeps its last state only.
LazyTask<float> generate(LazyGraph& graph, const Speaker& m, int steps) {
  LazyExpr state = graph.input({1, 2, 3, 4});
  float last = 0;
  for (int step = 0; step < steps; ++step) {
    state = tanh(matmul(state, m.u));
    const std::vector<float> scores = co_await value(matmul(state, m.out));
    last = scores[wide - 1];
  }
  co_return last;
}

class LazyMemory : public ::testing::TestWithParam<LazyOptions::For> {};

/// Of the peak above what parameters take: a step's minibatch with its scores, the scores, and as much again that is
/// freed while the next step begins. Pieces of the pool are up to a fifth larger than what was asked for. With threads,
/// a free may also come some steps late.
TEST_P(LazyMemory, OfAGenerationDoesNotGrowWithItsSteps) {
  for (const Policy policy : {Policy::serial, Policy::pool}) {
    std::size_t peak[2];
    for (const int steps : {8, 80}) {
      Speaker m(policy);
      const std::size_t before = m.stats().in_use;
      LazyGraph graph(m.host, m.parameters, {.use = GetParam()});
      std::vector<LazyTask<float>> all;
      for (int i = 0; i < instances; ++i) all.push_back(generate(graph, m, steps));
      run(graph, std::move(all));
      peak[steps == 80] = m.stats().peak_in_use - before;
      EXPECT_LT(m.stats().in_use - before, 2 * step_bytes);
    }
    const bool serial = policy == Policy::serial;
    if (serial) {
      EXPECT_LT(peak[1], peak[0] + step_bytes / 8);
    }
    EXPECT_LT(peak[1], (serial ? 5 : 10) * step_bytes);
  }
}
INSTANTIATE_TEST_SUITE_P(All, LazyMemory, ::testing::Values(LazyOptions::For::inference, LazyOptions::For::training),
                         [](const auto& of) {
                           return of.param == LazyOptions::For::inference ? "Inference" : "Training";
                         });

TEST(LazyBeam, TakesTheMemoryOfAFewStepsHoweverLongItIs) {
  constexpr std::size_t beam = 32;
  constexpr int steps = sanitized ? 300 : 1000;
  Speaker m;
  const std::size_t before = m.stats().in_use;
  LazyGraph graph(m.host, m.parameters, {.use = LazyOptions::For::inference});
  const LazyCell step = graph.cell("step", [&](CellBody& cell) {
    const Expr state = tanh(matmul(cell.operand(state_size), m.u) + cell.operand(state_size));
    cell.result(state);
    cell.result(slice(matmul(state, m.out), 0, 8));
  });
  std::vector<LazyExpr> states(beam, graph.input({1, 2, 3, 4}));
  std::size_t peak = 0;
  for (int t = 0; t < steps; ++t) {
    std::vector<std::pair<float, std::size_t>> order;
    std::vector<LazyExpr> next, scores;
    for (std::size_t i = 0; i < beam; ++i) {
      auto [state, score] = step.call<2>({states[i], graph.input({0, 0.1f * static_cast<float>(i), 0, 0})});
      next.push_back(std::move(state));
      scores.push_back(std::move(score));
    }
    for (std::size_t i = 0; i < beam; ++i) order.emplace_back(scores[i].value()[t % 8], i);
    std::sort(order.begin(), order.end());
    for (std::size_t i = 0; i < beam; ++i) states[i] = next[order[i / 2].second];
    const auto in_use = m.stats().in_use - before;
    if (t < 10) peak = std::max(peak, in_use);
    ASSERT_LE(in_use, peak + peak / 2) << "step " << t;
    ASSERT_LT(graph.stats().remembered, 20000) << "step " << t;
  }
  EXPECT_EQ(graph.stats().expressions, 1 + steps * static_cast<std::int64_t>(beam) * 3);
}

/// A decoder attends to the states of an encoder at each step, and keeps some of its own states.
TEST(LazyBeam, ForgetsWhatIsUnnamedAfterEarlyValuesThatAreNamed) {
  constexpr int words = 30, steps = sanitized ? 600 : 3000, kept_every = 97;
  Speaker m;
  LazyGraph graph(m.host, m.parameters, {.use = LazyOptions::For::inference});
  const auto attend_in = [](LazyGraph& of) {
    return of.cell("attend", [](CellBody& cell) {
      const Expr query = cell.operand(state_size), word = cell.each(state_size);
      const Expr weights = softmax_children(row_dot(word, query));
      cell.result(tanh(query + sum_children(mul_columns(word, weights))));
    });
  };
  const auto states_of_encoder = [&](LazyGraph& of) {
    std::vector<LazyExpr> states = {of.input({1, 2, 3, 4})};
    while (states.size() < words) states.push_back(tanh(matmul(states.back(), m.u)));
    return states;
  };
  std::vector<LazyExpr> encoded = states_of_encoder(graph), kept;
  std::vector<std::vector<float>> seen;
  const std::vector<float> last_word = encoded.back().value();
  const LazyCell attend = attend_in(graph);
  LazyExpr state = encoded.back();
  for (int t = 0; t < steps; ++t) {
    state = attend({state}, {}, encoded);
    if (t % kept_every == 0) kept.push_back(state);
    seen.push_back(state.value());
    if (t == steps / 2) kept.erase(kept.begin(), kept.begin() + 3);
    ASSERT_LT(graph.stats().remembered, 9000 + std::ssize(kept)) << "step " << t;
  }
  // Values that were kept over all this time can be read and computed with.
  EXPECT_EQ(encoded.back().value(), last_word);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    ASSERT_EQ(kept[i].value(), seen[(i + 3) * kept_every]);
    ASSERT_EQ((2 * kept[i]).value()[1], 2 * seen[(i + 3) * kept_every][1]);
  }
  const LazyExpr copy = encoded[7];
  encoded.clear();
  EXPECT_EQ((copy + copy).value()[0], 2 * copy.value()[0]);
  // In one go, with nothing to forget.
  LazyGraph other(m.host, m.parameters, {.use = LazyOptions::For::inference});
  encoded = states_of_encoder(other);
  const LazyCell attend_too = attend_in(other);
  state = encoded.back();
  for (int t = 0; t < steps; ++t) state = attend_too({state}, {}, encoded);
  expect_near(seen.back(), state.value(), 1e-5);
}

/// A service that computes another small formula for each request.
TEST(LazyMemory, OfChangingFormulasIsBoundedWithoutClear) {
  constexpr int requests = sanitized ? 600 : 3000;
  Speaker m;
  LazyGraph graph(m.host, m.parameters, {.use = LazyOptions::For::inference});
  std::mt19937_64 random(1);
  std::int64_t most = 0;
  for (int request = 0; request < requests; ++request) {
    LazyExpr x = graph.input({1, 2, 3, 4});
    for (auto left = 1 + random() % 12; left > 0; --left) {
      const auto which = random() % 4;
      x = which == 0 ? tanh(x) : which == 1 ? matmul(x, m.u) : which == 2 ? sigmoid(x) : softmax(x);
    }
    ASSERT_TRUE(std::isfinite(x.value()[0])) << request;
    most = std::max(most, graph.stats().kinds);
  }
  EXPECT_LT(most, 700);
  EXPECT_LT(graph.stats().remembered, 20000);
}

TEST(LazyValues, ExistOnceWhileAHandleNamesThem) {
  Speaker m;
  LazyGraph graph(m.host, m.parameters, {.use = LazyOptions::For::inference});
  const std::size_t before = m.stats().in_use;
  std::vector<LazyExpr> scores;
  for (int i = 0; i < instances; ++i) scores.push_back(matmul(graph.input({1, 2, 3, static_cast<float>(i)}), m.out));
  const float first = scores[0].value()[0];
  EXPECT_GE(m.stats().in_use - before, step_bytes);
  EXPECT_LT(m.stats().in_use - before, step_bytes * 5 / 4 + 4096);
  for (int i = 0; i < instances; ++i) {
    EXPECT_EQ(scores[static_cast<std::size_t>(i)].value()[wide - 1], first + static_cast<float>(i));
  }
  scores.erase(scores.begin() + 1, scores.end());  // one of them keeps them all
  graph.input({1}).value();
  EXPECT_EQ(scores[0].value()[0], first);
  scores.clear();
  graph.input({1}).value();
  EXPECT_LT(m.stats().in_use - before, step_bytes / 2);
}

/// Behind gradients only what handles name is left, beside gradients.
TEST(LazyValues, GoWithTheirMinibatchBehindGradients) {
  Speaker m;
  LazyGraph graph(m.host, m.parameters, {.recompute_below = 0});
  const auto differentiate = [&] {
    std::vector<LazyExpr> losses;
    for (int i = 0; i < instances; ++i) {
      losses.push_back(row_sum(tanh(matmul(graph.input({1, 2, 3, static_cast<float>(i)}), m.out))));
    }
    graph.backward(losses);
    return losses;
  };
  differentiate();
  graph.clear();
  const std::size_t before = m.stats().in_use;
  const std::vector<LazyExpr> losses = differentiate();
  EXPECT_LT(m.stats().in_use, before + step_bytes / 4);
  EXPECT_GT(losses[0].scalar(), 0);
}

}  // namespace
}  // namespace windrow::testing
