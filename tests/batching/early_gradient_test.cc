// Gradients that are finished before the backward pass is.
#include <gtest/gtest.h>

#include <limits>

#include "tests/batching/blocked_chain.h"
#include "tests/engine/support.h"

namespace windrow::testing {
namespace {

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
    const std::string said = error_of<OpError>([&] { chain.parameters.value(parameter).get(); });
    EXPECT_NE(said.find("the backward pass fails"), std::string::npos) << said;
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
  const std::string said = error_of<OpError>([&] { chain.parameters.gradient(chain.head).all->get(); });
  told.come();
  const std::string expected = "minibatch 0 of blocked_chain: the loss of vertex 0 of graph 0 is ";
  EXPECT_NE(said.find(expected), std::string::npos) << said;
  EXPECT_NE(said.find("the first such value on its way is of '"), std::string::npos) << said;
  const std::string of_loss = error_of<OpError>([&] { minibatch.loss(); });
  EXPECT_NE(of_loss.find(expected), std::string::npos) << of_loss;
  for (const Parameter& parameter : {chain.u, chain.w}) {
    EXPECT_THROW(chain.parameters.gradient(parameter).all->get(), OpError);
  }
}

}  // namespace
}  // namespace windrow::testing
