// Kernels that are kept on disk, and those that compute all levels of a pass, for a device as large as an H100.
#include "backend/code.h"

#include "backend/fusion.h"
#include "tests/cuda/plans.h"
#include "tests/cuda/support.h"
#include "tests/folder.h"

namespace windrow::testing {
namespace {

namespace fs = std::filesystem;

/// Kept kernels lie in a folder of the test's own.
class CudaCode : public FileTest {
 protected:
  CudaCode() { ::setenv("WINDROW_CUDA_CACHE", kept_.c_str(), 1); }
  ~CudaCode() override { ::setenv("WINDROW_CUDA_CACHE", WINDROW_FAKE_CACHE, 1); }

  /// How often a new device compiles the source.
  static std::uint64_t compilations(const fake::Options& options = {}, const std::string& source = source_of_kernel) {
    fake::reset(options);
    const std::shared_ptr<cuda::Hardware> hardware = cuda::Hardware::open(0);
    EXPECT_NE(cuda::Code::of(*hardware, source, {{"k"}})->function(0), nullptr);
    return fake::counters().compilations;
  }
  fs::path only_file() const {
    EXPECT_EQ(std::distance(fs::directory_iterator(kept_), {}), 1);
    return fs::directory_iterator(kept_)->path();
  }

  /// What the fake runtime wants of a kernel.
  static constexpr const char* source_of_kernel =
      "extern \"C\" const unsigned k_argument_bytes = 8;\nextern \"C\" void k(const void*) {}\n"
      "extern \"C\" void k_accesses(const void*, void*, void*) {}\n";
  const fs::path kept_ = folder / "kept";  // which the first compilation makes
};

TEST_F(CudaCode, IsCompiledOnce) {
  EXPECT_EQ(compilations(), 1u);
  EXPECT_EQ(compilations(), 0u);
}

TEST_F(CudaCode, IsMadeAnewWhereItsFileIsDamaged) {
  EXPECT_EQ(compilations(), 1u);
  const fs::path file = only_file();
  const std::string whole = read_file(file);
  const std::size_t code = whole.find('\0') + 1;
  const auto damage = [&](const std::string& text, const std::string& what) {
    std::ofstream(file, std::ios::binary) << text;
    EXPECT_EQ(compilations(), 1u) << what;
    EXPECT_NE(read_file(file), text) << what;
    EXPECT_EQ(compilations(), 0u) << what;  // the file was replaced
  };
  for (const std::size_t at :
       {std::size_t{0}, code - 1, code, code + 32, code + (whole.size() - code) / 2, whole.size() - 1}) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    damage(changed, "byte " + std::to_string(at) + " of " + std::to_string(whole.size()));
  }
  for (const std::size_t bytes : {std::size_t{0}, code, code + 31, code + 32, whole.size() / 2, whole.size() - 1}) {
    damage(whole.substr(0, bytes), std::to_string(bytes) + " bytes of " + std::to_string(whole.size()));
  }
  damage(whole + '\0', "a byte too much");
}

TEST_F(CudaCode, OfAnotherCompilerOrArchitectureOrSourceIsNotUsed) {
  EXPECT_EQ(compilations(), 1u);
  EXPECT_EQ(compilations({.compiler_minor = 1}), 1u);
  EXPECT_EQ(compilations({.major = 8}), 1u);
  EXPECT_EQ(compilations({}, source_of_kernel + std::string("// another one\n")), 1u);
  EXPECT_EQ(compilations({.compiler_minor = 1}), 0u);
  EXPECT_EQ(compilations(), 0u);
}

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

/// Groups are as small as shared memory allows.
TEST(FusedKernels, DivideADeviceAmongGroups) {
  struct Case {
    std::string model;
    Index hidden;
    int teams, groups;
  };
  const Case cases[] = {{"tree-lstm", 64, 1, 132},
                        {"tree-lstm", 256, 16, 8},
                        {"tree-lstm", 512, 64, 2},
                        {"fixed-lstm", 256, 8, 16},
                        {"fixed-lstm", 512, 32, 4}};
  for (const Case& one : cases) {
    for (const cuda::Precision precision : {cuda::Precision::float32, cuda::Precision::tf32}) {
      SCOPED_TRACE(one.model + " " + std::to_string(one.hidden));
      cuda::Grid grid = large;
      grid.groups = true;
      grid.precision = precision;
      for (const auto& kernel : cuda::fuse(*plan_of(one.model, {}, one.hidden), true, grid).levels) {
        ASSERT_TRUE(kernel.has_value());
        EXPECT_EQ(kernel->barriers, 1u);
        EXPECT_EQ(kernel->teams, one.teams);
        EXPECT_EQ(kernel->most_groups, one.groups);
        EXPECT_LE(kernel->shared_bytes, large.shared_bytes);
      }
    }
  }
}

/// A head: its product, its bias, the loss and its gradient, and the gradient of its rows.
TEST(FusedKernels, ComputeASmallHeadInOneCall) {
  using Does = cuda::RowsPart::Does;
  const auto heads_of = [](const Plan& plan) {
    const Plan joined = with_long_segments(plan);
    std::vector<std::vector<Does>> heads;
    for (const cuda::RowsKernel& kernel : cuda::fuse(joined, true, large).rows) {
      heads.emplace_back();
      for (const cuda::RowsPart& part : kernel.parts) heads.back().push_back(part.does);
    }
    return heads;
  };
  const std::vector<Does> head = {Does::product, Does::fused, Does::loss, Does::loss_gradient, Does::product};
  EXPECT_EQ(heads_of(*plan_of("tree-lstm")), std::vector(2, head));  // of leaves and of inner vertices
  const std::vector<Does> without_products = {Does::fused, Does::loss, Does::loss_gradient};
  EXPECT_EQ(heads_of(*plan_of("tree-lstm", {}, 2560)), std::vector(2, without_products));  // their matrix is too large
}

}  // namespace
}  // namespace windrow::testing
