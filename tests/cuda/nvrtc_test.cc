// The compiler of the CUDA toolkit takes the printed kernels. It needs no driver. The fake runtime, which stands in for
// it elsewhere, is not linked.
#include <dlfcn.h>

#include <utility>

#include "backend/fusion.h"
#include "cuda/plugin/plugin.h"
#include "tests/cuda/plans.h"

namespace windrow::testing {
namespace {

TEST(Nvrtc, CompilesFusedKernels) {
  void* const library = ::dlopen(WINDROW_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) GTEST_SKIP() << ::dlerror();
  const auto get = reinterpret_cast<const cuda::Plugin* (*)()>(::dlsym(library, "windrow_cuda_plugin"));
  ASSERT_NE(get, nullptr);
  if (!get()->can_compile()) GTEST_SKIP() << "there is no NVRTC";
  const std::pair<std::string, std::string> models[] = {
      {"tree-lstm", ""}, {"tree-lstm", "child-sum"}, {"bilstm-char", ""}, {"dag", ""}};
  for (const auto& [model, cell] : models) {
    const auto plan = plan_of(model, cell);
    const std::string source = cuda::source_of(cuda::fuse(*plan, true, large), *plan);
    for (const int architecture : {80, 90}) {
      cuda::Compiled made;
      EXPECT_EQ(get()->compile(source.c_str(), architecture, &made), cuda::success) << model << ": " << made.start;
      EXPECT_GT(made.bytes, 1000u);
      get()->free_compiled(&made);
    }
  }
  cuda::Compiled made;
  EXPECT_EQ(get()->compile("extern \"C\" __global__ void k() {}", 999, &made), cuda::success);  // a device of later
  EXPECT_NE(std::string(made.start, made.bytes).find(".target sm_"), std::string::npos);
  get()->free_compiled(&made);
  EXPECT_EQ(get()->compile("extern \"C\" __global__ void k() { nonsense; }", 90, &made), cuda::bad_source);
  EXPECT_NE(std::string(made.start).find("nonsense"), std::string::npos);
  get()->free_compiled(&made);
}

}  // namespace
}  // namespace windrow::testing
