// Gradients that a program computes itself: begin_minibatch() and add_gradient().
#include <gtest/gtest.h>

#include "tests/batching/cells.h"
#include "tests/engine/support.h"
#include "windrow/batching/parameters.h"
#include "windrow/ops/apply.h"
#include "windrow/ops/static.h"

namespace windrow::testing {
namespace {

class OwnGradients : public ::testing::Test, protected OnHost {
 protected:
  static Tensor filled(const Device& device, float value) {
    const Tensor made(device, 2, 3);
    made.set(std::vector<float>(6, value));
    return made;
  }
  std::vector<float> gradient() const { return parameters.gradient(w).all->get(); }

  Parameter w = parameters.add("w", 2, 3, Initial::constant(1));
};

TEST_F(OwnGradients, AddUpInAMinibatchAndEndWithIt) {
  EXPECT_EQ(parameters.begin_minibatch(), 0u);
  const Tensor first = filled(host, 1);
  parameters.add_gradient(w, first);
  EXPECT_TRUE(parameters.gradient(w).all->same_view(first)) << "copied";
  parameters.add_gradient(w, filled(host, 2));
  EXPECT_EQ(gradient(), std::vector<float>(6, 3));
  EXPECT_EQ(first.get(), std::vector<float>(6, 1)) << "changed what was given";
  EXPECT_EQ(parameters.begin_minibatch(), 1u);
  EXPECT_FALSE(parameters.gradient(w).all);
  EXPECT_EQ(parameters.minibatches(), 2u);
  parameters.add_gradient(w, filled(host, 5));
  parameters.sgd(0.1);
  EXPECT_EQ(parameters.value(w).get(), std::vector<float>(6, 0.5f));
}

TEST_F(OwnGradients, AreCopiedIfTheyAreKept) {
  const Tensor reused = filled(host, 1);
  for (const float value : {1.0f, 2.0f, 4.0f}) {
    parameters.keep_gradients();
    parameters.begin_minibatch();
    reused.set(std::vector<float>(6, value));  // as a replay does
    parameters.add_gradient(w, reused);
  }
  EXPECT_EQ(gradient(), std::vector<float>(6, 7));
}

TEST_F(OwnGradients, AreRefusedWhereTheyDoNotFit) {
  const Tensor wrong(host, 3, 2);
  EXPECT_EQ(error_of<MisuseError>([&] { parameters.add_gradient(w, wrong); }),
            "add_gradient: 3 x 2 for parameter 'w'; expected 2 x 3");
  EXPECT_FALSE(parameters.gradient(w).all);
  Static recorded(host, [&](const StaticInputs&) -> std::vector<Tensor> {
    parameters.begin_minibatch();
    return {};
  });
  EXPECT_NE(error_of<MisuseError>([&] { recorded(); }).find("Parameters::begin_minibatch() in the body of a Static"),
            std::string::npos);
}

}  // namespace
}  // namespace windrow::testing
