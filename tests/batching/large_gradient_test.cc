// Gradients of large parameters, which are cut into ops by their columns.
#include "tests/batching/blocked_chain.h"
#include "tests/batching/cells.h"

namespace windrow::testing {
namespace {

/// 400 vertices that share a parameter of 400 x 512, which each multiplies with two of its inputs.
struct Wide : OnHost {
  static constexpr Index in = 400, out = 512;

  explicit Wide(const EngineOptions& options = {}) : OnHost(options) {}

  static std::vector<GraphData> drawn() {
    std::mt19937 random(1);
    std::vector<GraphData> data(2, leaves(200));
    for (GraphData& graph : data) {
      for (const char* name : {"x", "z"}) {
        for (Index i = 0; i < 200 * in; ++i) {
          graph.values[name].push_back(static_cast<float>(random() % 2001) / 1000 - 1);
        }
      }
    }
    return data;
  }

  std::vector<float> gradient() {
    runner.differentiate(graphs.pointers);
    return parameters.gradient(w).all->get();
  }

  Parameter w = parameters.add("w", in, out, Initial::uniform(-0.05f, 0.05f));
  VertexFunction function{"wide", {.arity = 0}, [this](Vertex& v) {
                            const Expr y = tanh(matmul(v.pull("x", in), w)), z = tanh(matmul(v.pull("z", in), w));
                            v.push("y", y);
                            v.loss(row_sum(y * z));
                          }};
  Runner runner{host, function, parameters};
  Graphs graphs{function, drawn()};
};

class LargeGradient : public EveryPolicy {};

TEST_P(LargeGradient, IsOfTheSameBitsWhateverComputesItsParts) {
  Wide wide(options()), serial({.policy = Policy::serial});
  EXPECT_EQ(wide.gradient(), serial.gradient());
}
WINDROW_EVERY_POLICY(LargeGradient);

TEST(LargeGradients, AreThoseOfOneOp) {
  Wide wide, whole({.check = true});  // where accesses are checked an op writes what it says
  const std::vector<float> parts = wide.gradient(), expected = whole.gradient();
  EXPECT_GT(wide.runner.stats().ops, whole.runner.stats().ops);
  EXPECT_EQ(wide.runner.stats().multiply_flops, whole.runner.stats().multiply_flops);
  expect_near(parts, expected, 1e-4);
}

TEST(LargeGradients, AddToWhatIsThere) {
  Wide wide;
  const Tensor ones = wide.tensor(Floats(400 * Wide::out, 1), Wide::out);
  const auto gradient = [&](Runner::Gradients mode) {
    wide.runner.backward(wide.runner.record(wide.graphs.pointers, {}, {"y"}), {{"y", ones}}, mode);
    return wide.parameters.gradient(wide.w).all->get();
  };
  const auto once = gradient(Runner::Gradients::set), twice = gradient(Runner::Gradients::add);
  for (std::size_t i = 0; i < once.size(); ++i) ASSERT_NEAR(twice[i], 2 * once[i], 2e-3) << i;
  EXPECT_EQ(gradient(Runner::Gradients::set), once);
}

TEST(LargeGradients, AreRefusedAfterAFailureUntilTheyAreOverwritten) {
  Wide wide;
  const std::vector<float> before = wide.gradient(), value = wide.parameters.value(wide.w).get();
  wide.parameters.value(wide.w).set(std::vector<float>(value.size(), std::nanf("")));
  EXPECT_THROW(wide.gradient(), OpError);
  wide.parameters.value(wide.w).set(value);
  EXPECT_EQ(wide.gradient(), before);
}

TEST(EarlyGradient, IsThereBeforeTheBackwardPassHasEnded) {
  BlockedChain chain;
  Awaited head;
  const DuringBackward wait([&] { head.wait(); });
  const Minibatch minibatch = chain.differentiate();
  chain.tell(chain.head, head);
  EXPECT_GT(minibatch.loss(), 0);
  EXPECT_FALSE(chain.parameters.gradient(chain.w).all->get().empty());
}

TEST(EarlyGradient, OfALayerIsThereBeforeTheLayerBelowIt) {
  BlockedChain chain;
  Awaited u;
  std::atomic<int> calls = 0;
  const DuringBackward wait([&] {
    if (++calls == 6) u.wait();  // at the first vertices of the sequences, which have no product with u
  });
  const Minibatch minibatch = chain.differentiate();
  chain.tell(chain.u, u);
  EXPECT_GT(minibatch.loss(), 0);
}

TEST(EarlyGradient, OfAMinibatchThatFailsLaterChangesNoParameter) {
  BlockedChain chain;
  Awaited head;
  const DuringBackward fail([&] {
    head.wait();
    throw Error("the backward pass fails");
  });
  chain.differentiate();
  chain.tell(chain.head, head);
  chain.parameters.sgd(0.1);
  for (const Parameter& parameter : {chain.head, chain.u, chain.w}) {
    expect_error<OpError>([&] { chain.parameters.value(parameter).get(); }, "the backward pass fails");
  }
}

TEST(EarlyGradient, FailsForALossThatIsNotFiniteBesideTheBackwardPass) {
  BlockedChain chain;
  std::vector<float> bad(BlockedChain::width, 1);
  bad[3] = 3e38f;
  bad[4] = -3e38f;
  chain.parameters.value(chain.head).set(bad);
  Awaited told;
  const DuringBackward wait([&] { told.wait(); });
  const Minibatch minibatch = chain.differentiate();
  const std::string expected = "minibatch 0 of blocked_chain: the loss of sample 0, vertex 0 is ";
  expect_error<OpError>([&] { chain.parameters.gradient(chain.head).all->get(); },
                        {expected, "the first such value on its way is of '"});
  told.come();
  expect_error<OpError>([&] { minibatch.loss(); }, expected);
  for (const Parameter& parameter : {chain.u, chain.w}) {
    EXPECT_THROW(chain.parameters.gradient(parameter).all->get(), OpError);
  }
}

}  // namespace
}  // namespace windrow::testing
