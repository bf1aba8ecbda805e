#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nvrtc.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "kernels.h"

// The functions of NVRTC, named without the prefix "nvrtc". The library is opened when it is first needed, so that the
// plug-in also works without it. A runtime for tests defines these functions itself.
// clang-format off
#define WINDROW_NVRTC(F) \
  F(Version) F(CreateProgram) F(CompileProgram) F(DestroyProgram) F(GetCUBIN) F(GetCUBINSize) F(GetProgramLog) \
  F(GetProgramLogSize) F(GetNumSupportedArchs) F(GetSupportedArchs) F(GetPTX) F(GetPTXSize)
#define WINDROW_WEAK(name) extern "C" decltype(nvrtc##name) nvrtc##name __attribute__((weak));
WINDROW_NVRTC(WINDROW_WEAK)
// clang-format on

namespace windrow::cuda {
namespace {

struct Compiler {
#define WINDROW_MEMBER(name) decltype(&nvrtc##name) name = nvrtc##name;
  WINDROW_NVRTC(WINDROW_MEMBER)
  bool complete = CreateProgram != nullptr;

  Compiler() {
    if (complete) return;
    const std::string file = "libnvrtc.so." + std::to_string(CUDART_VERSION / 1000);
    void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    complete = true;
#define WINDROW_FIND(name)                                                  \
  name = reinterpret_cast<decltype(name)>(::dlsym(library, "nvrtc" #name)); \
  complete = complete && name != nullptr;
    WINDROW_NVRTC(WINDROW_FIND)
  }

  /// The newest architecture that the compiler knows, but no newer than this one.
  int known(int architecture) const {
    int count = 0;
    std::array<int, 256> all{};
    if (GetNumSupportedArchs == nullptr || GetNumSupportedArchs(&count) != NVRTC_SUCCESS || count < 0 ||
        static_cast<std::size_t>(count) > all.size() || GetSupportedArchs(all.data()) != NVRTC_SUCCESS) {
      return architecture;
    }
    int newest = 0;
    for (const int one : all) newest = one <= architecture ? std::max(newest, one) : newest;
    return newest == 0 ? architecture : newest;
  }
};

const Compiler& compiler() {
  static const Compiler made;
  return made;
}

/// The compiler options for an architecture.
struct CompilerOptions {
  static constexpr const char* standard = "--std=c++17";
  bool exact;  // false: the device is newer than the compiler, which makes PTX that the driver compiles
  char target[48];

  CompilerOptions(const Compiler& nvrtc, int architecture) {
    const int known = nvrtc.known(architecture);
    exact = known == architecture;
    std::snprintf(target, sizeof target, "--gpu-architecture=%s_%d", exact ? "sm" : "compute", known);
  }
};

template <class Size, class Get>
bool take(nvrtcProgram program, Size size, Get get, Compiled& to) {
  std::size_t bytes = 0;
  if (size(program, &bytes) != NVRTC_SUCCESS) return false;
  to.start = static_cast<char*>(std::malloc(bytes));
  to.bytes = bytes;
  return to.start != nullptr && get(program, to.start) == NVRTC_SUCCESS;
}

}  // namespace

bool can_compile() { return compiler().complete; }

void compiler_facts(int architecture, CompilerFacts* facts) {
  *facts = {};
  const Compiler& nvrtc = compiler();
  int major = 0, minor = 0;
  if (!nvrtc.complete || nvrtc.Version(&major, &minor) != NVRTC_SUCCESS) return;
  const CompilerOptions options(nvrtc, architecture);
  std::snprintf(facts->version, sizeof facts->version, "NVRTC %d.%d", major, minor);
  std::snprintf(facts->options, sizeof facts->options, "%s %s", options.target, CompilerOptions::standard);
}

int compile(const char* source, int architecture, Compiled* made) {
  const Compiler& nvrtc = compiler();
  if (!nvrtc.complete) return no_compiler;
  nvrtcProgram program;
  if (nvrtc.CreateProgram(&program, source, "windrow.cu", 0, nullptr, nullptr) != NVRTC_SUCCESS) return out_of_memory;
  const CompilerOptions options(nvrtc, architecture);
  const char* const all[] = {options.target, CompilerOptions::standard};
  const nvrtcResult result = nvrtc.CompileProgram(program, 2, all);
  int error = success;
  if (result == NVRTC_SUCCESS) {
    const bool taken = options.exact ? take(program, nvrtc.GetCUBINSize, nvrtc.GetCUBIN, *made)
                                     : take(program, nvrtc.GetPTXSize, nvrtc.GetPTX, *made);
    if (!taken) error = out_of_memory;
  } else {
    error = bad_source;
    take(program, nvrtc.GetProgramLogSize, nvrtc.GetProgramLog, *made);
  }
  nvrtc.DestroyProgram(&program);
  return error;
}

void free_compiled(Compiled* made) {
  std::free(made->start);
  *made = {};
}

}  // namespace windrow::cuda
