// The compiler of the CUDA toolkit takes the printed kernels. It needs no driver. The fake runtime, which stands in for
// it elsewhere, is not linked.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nvrtc.h>

#include <cstdio>
#include <sstream>
#include <utility>

#include "backend/fusion.h"
#include "cuda/plugin/plugin.h"
#include "tests/cuda/plans.h"

namespace windrow::testing {
namespace {

/// What the assembler says about the kernels of a source. The plug-in has opened the library.
std::string resources_of(const std::string& source, int architecture) {
  const std::string file = "libnvrtc.so." + std::to_string(CUDART_VERSION / 1000);
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return {};
  const auto call = [&]<class Function>(Function*, const char* name, auto... arguments) {
    EXPECT_EQ(reinterpret_cast<Function*>(::dlsym(library, name))(arguments...), NVRTC_SUCCESS) << name;
  };
  nvrtcProgram program = nullptr;
  call(static_cast<decltype(&nvrtcCreateProgram)>(nullptr), "nvrtcCreateProgram", &program, source.c_str(),
       "windrow.cu", 0, nullptr, nullptr);
  const std::string target = "--gpu-architecture=sm_" + std::to_string(architecture);
  const char* const options[] = {target.c_str(), "--std=c++17", "--ptxas-options=-v"};
  call(static_cast<decltype(&nvrtcCompileProgram)>(nullptr), "nvrtcCompileProgram", program, 3, options);
  std::size_t size = 0;
  call(static_cast<decltype(&nvrtcGetProgramLogSize)>(nullptr), "nvrtcGetProgramLogSize", program, &size);
  std::string log(size, '\0');
  call(static_cast<decltype(&nvrtcGetProgramLog)>(nullptr), "nvrtcGetProgramLog", program, log.data());
  call(static_cast<decltype(&nvrtcDestroyProgram)>(nullptr), "nvrtcDestroyProgram", &program);
  return log;
}

/// Two teams of 256 threads share a multiprocessor, except those of groups. A team without dynamic memory has at most
/// 48 KiB.
void expect_modest(const std::string& log) {
  std::istringstream lines(log);
  std::string kernel;
  int kernels = 0;
  for (std::string line; std::getline(lines, line);) {
    char name[256] = "";
    int stack = 0, stores = 0, loads = 0, registers = 0, barriers = 0, bytes = 0;
    if (std::sscanf(line.c_str(), "ptxas info : Compiling entry function '%255[^']'", name) == 1) kernel = name;
    if (std::sscanf(line.c_str(), "ptxas . %d bytes stack frame, %d bytes spill stores, %d bytes spill loads", &stack,
                    &stores, &loads) == 3) {
      EXPECT_EQ(stores + loads, 0) << kernel;
    }
    const int found = std::sscanf(line.c_str(), "ptxas info : Used %d registers, used %d barriers, %d bytes smem",
                                  &registers, &barriers, &bytes);
    if (found < 1) continue;
    ++kernels;
    EXPECT_LE(registers, kernel.ends_with("_groups") ? 255 : 128) << kernel;
    EXPECT_LE(bytes, 48 << 10) << kernel;
  }
  EXPECT_GT(kernels, 0) << log;
}

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
    const Plan joined = with_long_segments(*plan);
    const std::string source = cuda::source_of(cuda::fuse(joined, true, large), joined);
    SCOPED_TRACE(model + " " + cell);
    for (const int architecture : {80, 90, 100}) expect_modest(resources_of(source, architecture));
    if (model == "tree-lstm" && cell.empty()) {
      for (const cuda::Precision precision : {cuda::Precision::float32, cuda::Precision::tf32}) {
        cuda::Grid grid = large;
        grid.groups = true;
        grid.precision = precision;
        const std::string of_groups = cuda::source_of(cuda::fuse(joined, true, grid), joined);
        for (const int architecture : {80, 90, 100}) expect_modest(resources_of(of_groups, architecture));
      }
    }
    if (model != "dag") continue;
    cuda::Compiled made;
    EXPECT_EQ(get()->compile(source.c_str(), 90, &made), cuda::success) << made.start;
    EXPECT_GT(made.bytes, 1000u);
    get()->free_compiled(&made);
  }
  // Where matrices of a head are too large, its kernel for rows has no product.
  const Plan wide = with_long_segments(*plan_of("dag", {}, 768));
  expect_modest(resources_of(cuda::source_of(cuda::fuse(wide, true, large), wide), 90));
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
