// Fused kernels: how segments become kernels.
#include "backend/fusion.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "tests/cuda/plans.h"
#include "tests/cuda/support.h"
#include "tests/engine/support.h"
#include "tests/sanitized.h"
#include "windrow/models/trainer.h"
#include "windrow/models/workload.h"

namespace windrow::testing {
namespace {

using cuda::FusedKernel;
using cuda::FusedPlan;
using cuda::Part;

TEST(FusedKernels, OfALevelOfTreesAreOneForEachDirection) {
  const auto plan = plan_of("tree-lstm");
  const FusedPlan fused = cuda::fuse(*plan, true);
  for (std::size_t t = 0; t < plan->types.size(); ++t) {
    const bool inner = !plan->types[t].phases[static_cast<std::size_t>(Phase::level)].empty();
    for (const Phase phase : {Phase::level, Phase::back_level}) {
      std::multiset<Part::Does> does;
      for (const Segment& segment : plan->types[t].phases[static_cast<std::size_t>(phase)]) {
        for (const Part& part : fused.parts.at(&segment)) does.insert(part.does);
      }
      EXPECT_EQ(does.count(Part::Does::fused), inner ? 1u : 0u);
      EXPECT_EQ(does.count(Part::Does::products), inner ? 1u : 0u);  // of both children with one matrix
      EXPECT_EQ(does.count(Part::Does::step), inner ? 1u : 0u);      // the product of both children together
    }
  }
}

TEST(FusedKernels, KeepInMemoryWhatOtherKernelsRead) {
  for (const std::string model : {"tree-lstm", "bilstm", "dag"}) {
    const auto plan = plan_of(model);
    const FusedPlan fused = cuda::fuse(*plan, true), stepwise = cuda::fuse(*plan, false);
    std::size_t kept = 0, all = 0;
    for (std::size_t t = 0; t < plan->types.size(); ++t) {
      ASSERT_EQ(fused.locals[t].size(), plan->types[t].locals.size());
      for (std::size_t i = 0; i < plan->types[t].locals.size(); ++i) {
        ++all;
        kept += fused.locals[t][i].has_value() ? 1 : 0;
        EXPECT_TRUE(stepwise.locals[t][i].has_value());
      }
    }
    EXPECT_LT(kept, all) << model;
    EXPECT_TRUE(stepwise.kernels.empty());
  }
}

/// Such as an H100.

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

/// The number of compilations that a small training takes.
std::uint64_t compilations() {
  fake::reset();
  Engine engine({.policy = Policy::serial});
  const Device device = cuda::open_device(engine, 0).device;
  WorkloadOptions options{.seed = 1, .samples = 4};
  options.sizes["hidden"] = options.sizes["embedding"] = 8;
  Workload workload = make_workload("tree-lstm", device, options);
  Trainer(device, workload, {.minibatch = 4, .optimiser = {.rate = 0.05}}).train();
  return fake::counters().compilations;
}

TEST(FusedKernels, AreKeptOnDiskAndReplacedWhereFilesAreDamaged) {
  namespace fs = std::filesystem;
  std::string folder = ::testing::TempDir() + "windrow_cache_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string before = ::getenv("WINDROW_CUDA_CACHE");
  ::setenv("WINDROW_CUDA_CACHE", folder.c_str(), 1);
  const std::uint64_t first = compilations();
  EXPECT_GT(first, 0u);
  EXPECT_EQ(compilations(), 0u);
  const auto damage = [&](const auto& change) {
    for (const auto& file : fs::directory_iterator(folder)) {
      std::ifstream in(file.path(), std::ios::binary);
      std::string text((std::istreambuf_iterator<char>(in)), {});
      change(text);
      std::ofstream(file.path(), std::ios::binary) << text;
    }
  };
  damage([](std::string& text) { text.resize(text.size() / 2); });
  EXPECT_EQ(compilations(), first);
  damage([](std::string& text) { text[text.find('\0') + 1] = 'x'; });  // the first byte of the code
  EXPECT_EQ(compilations(), first);
  EXPECT_EQ(compilations(), 0u);
  ::setenv("WINDROW_CUDA_CACHE", before.c_str(), 1);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace windrow::testing
