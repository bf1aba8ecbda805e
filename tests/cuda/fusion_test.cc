// The kernels that compute all levels of a pass, for a device as large as an H100.
#include "backend/fusion.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/cuda/plans.h"

namespace windrow::testing {
namespace {

TEST(FusedKernels, ComputeAllLevelsOfProductsWithOneBarrierEach) {
  for (const std::string model : {"tree-lstm", "tree-fc", "fixed-lstm", "var-lstm", "bilstm"}) {
    const auto plan = plan_of(model);
    for (const auto& kernel : cuda::fuse(*plan, true, large).levels) {
      ASSERT_TRUE(kernel.has_value()) << model;
      EXPECT_EQ(kernel->barriers, 1u) << model;
      EXPECT_EQ(kernel->teams, 128) << model;  // each has two of 256 columns
      EXPECT_LE(kernel->shared_bytes, large.shared_bytes) << model;
    }
  }
  const auto plan = plan_of("tree-lstm");
  const auto has = [&](const cuda::Grid& grid) { return cuda::fuse(*plan, true, grid).levels[0].has_value(); };
  EXPECT_FALSE(has({.teams = 0, .shared_bytes = large.shared_bytes}));
  EXPECT_FALSE(has({.teams = 132, .shared_bytes = 8 << 10}));
  EXPECT_FALSE(has({.teams = 132, .shared_bytes = large.shared_bytes, .argument_bytes = 256}));
  EXPECT_FALSE(cuda::fuse(*plan_of("dag"), true, large).levels[0].has_value());  // it has edges
}

}  // namespace
}  // namespace windrow::testing
