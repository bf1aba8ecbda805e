// Lazy expressions over parameters that change between a flush and backward().
#include <gtest/gtest.h>

#include "tests/batching/cells.h"
#include "tests/engine/support.h"
#include "windrow/batching/lazy.h"

namespace windrow::testing {
namespace {

/// Whether a flush keeps what gradients need, or backward() computes it again.
class LazyChanges : public ::testing::TestWithParam<std::int64_t>, protected OnHost {
 protected:
  Parameter a = parameters.add("a", 1, 2, Initial::constant(1));
  Parameter b = parameters.add("b", 2, 2, Initial::constant(1));
  Parameter c = parameters.add("c", 2, 2, Initial::constant(1));
  LazyGraph graph{host, parameters, {.recompute_below = GetParam()}};

  void set(Parameter parameter, float value) const { parameters.value(parameter).set(std::vector<float>(4, value)); }
};

TEST_P(LazyChanges, OfAParameterThatALossDependsOnAreRefusedByName) {
  const LazyExpr s = matmul(graph.parameter(a), b);
  s.value();
  const Tensor row = parameters.value(b).row_range(0, 1);  // a part of it is enough
  row.set({2, 2});
  const LazyExpr loss = row_sum(square(s));
  const std::string said = error_of<MisuseError>([&] { graph.backward(std::array{loss}); });
  EXPECT_EQ(said.find("backward(): parameter 'b' was modified in place after the flush at "), 0) << said;
  EXPECT_NE(said.find("lazy_change_test.cc:"), std::string::npos) << said;
  EXPECT_FALSE(parameters.gradient(b).all.has_value());
}

/// The graph is as it was before the call that was refused.
TEST_P(LazyChanges, AreNoHindranceAfterClear) {
  for (float value : {1.0f, 2.0f, 3.0f}) {
    set(b, value);
    const LazyExpr s = matmul(graph.parameter(a), b), loss = row_sum(square(s));
    EXPECT_EQ(loss.scalar(), 8 * value * value);
    if (value == 2) {
      set(b, 5);
      EXPECT_THROW(graph.backward(std::array{loss}), MisuseError);
    } else {
      graph.backward(std::array{loss});
      EXPECT_EQ(dense(parameters, b), (std::vector<double>(4, 4 * value)));
    }
    graph.clear();
  }
}

TEST_P(LazyChanges, OfParametersBehindAFunctionAreRefusedToo) {
  const LazyExpr s = matmul(graph.parameter(a), exp(LazyWeight(b))) - a;
  s.value();
  set(b, 2);
  const LazyExpr loss = row_sum(square(s));
  const std::string said = error_of<MisuseError>([&] { graph.backward(std::array{loss}); });
  EXPECT_EQ(said.find("backward(): parameter 'b' was modified in place after the flush at "), 0) << said;
}

TEST_P(LazyChanges, OfParametersThatNoLossDependsOnAreAllowed) {
  matmul(graph.parameter(a), c).value();
  const LazyExpr s = matmul(graph.parameter(a), b);
  s.value();
  set(c, 2);
  const LazyExpr loss = row_sum(square(s));
  graph.backward(std::array{loss});
  EXPECT_EQ(dense(parameters, b), (std::vector<double>(4, 4)));
}

/// What was computed before the change is one value, what is computed after it another.
TEST_P(LazyChanges, BeforeTheFlushOfALossAreAllowed) {
  matmul(graph.parameter(a), b).value();
  set(b, 2);
  const LazyExpr loss = row_sum(square(matmul(graph.parameter(a), b)));
  EXPECT_EQ(loss.scalar(), 32);
  graph.backward(std::array{loss});
  EXPECT_EQ(dense(parameters, b), (std::vector<double>(4, 8)));
}

TEST_P(LazyChanges, ByDescentAreFoundToo) {
  const LazyExpr first = row_sum(matmul(graph.parameter(a), b));
  LazyGraph other(host, parameters);
  first.value();
  other.backward(std::array{row_sum(matmul(other.parameter(a), b))});
  parameters.sgd(0.5);
  EXPECT_THROW(graph.backward(std::array{first}), MisuseError);
}

/// The loss that is told is the one that is differentiated, before and behind backward().
TEST_P(LazyChanges, LeaveALossAsItWasTold) {
  const LazyExpr s = matmul(graph.parameter(a), b);
  s.value();
  const LazyExpr loss = row_sum(square(s));
  EXPECT_EQ(loss.scalar(), 8);
  graph.backward(std::array{loss});
  set(b, 2);
  EXPECT_EQ(loss.scalar(), 8);
  EXPECT_EQ(dense(parameters, b), (std::vector<double>(4, 4)));
}

/// Which gradients there are is decided at the flush that computes what a loss depends on.
TEST_P(LazyChanges, OfWhatIsFrozenAreRefusedByName) {
  for (const bool frozen_first : {false, true}) {
    const auto change = [&](bool freeze) { freeze ? parameters.freeze(b) : parameters.unfreeze(b); };
    change(frozen_first);
    const LazyExpr s = matmul(graph.parameter(a), b);
    s.value();
    change(!frozen_first);
    const LazyExpr loss = row_sum(square(s));
    const std::string said = error_of<MisuseError>([&] { graph.backward(std::array{loss}); });
    EXPECT_EQ(said.find("backward(): parameter 'b' was frozen or unfrozen after the flush at "), 0) << said;
    change(frozen_first);  // the graph is as it was
    graph.backward(std::array{loss});
    EXPECT_EQ(parameters.gradient(b).all.has_value(), !frozen_first);
    EXPECT_EQ(dense(parameters, a), (std::vector<double>(2, 8)));
    graph.clear();
  }
}

TEST_P(LazyChanges, OfWhatIsFrozenAreAllowedBeforeTheFlushOfALoss) {
  matmul(graph.parameter(a), b).value();
  parameters.freeze(b);
  const LazyExpr loss = row_sum(square(matmul(graph.parameter(a), b)));
  EXPECT_EQ(loss.scalar(), 8);
  graph.backward(std::array{loss});
  EXPECT_FALSE(parameters.gradient(b).all.has_value());
  EXPECT_EQ(dense(parameters, a), (std::vector<double>(2, 8)));
}

INSTANTIATE_TEST_SUITE_P(All, LazyChanges, ::testing::Values(0, 20'000'000),
                         [](const auto& of) { return of.param == 0 ? "Kept" : "ComputedAgain"; });

}  // namespace
}  // namespace windrow::testing
