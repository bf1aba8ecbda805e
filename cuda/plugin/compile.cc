#include "compile.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nvrtc.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

// The library is opened when it is first needed, so that the plug-in also works without it. A runtime for tests defines
// these functions itself.
#pragma weak nvrtcVersion
#pragma weak nvrtcCreateProgram
#pragma weak nvrtcCompileProgram
#pragma weak nvrtcDestroyProgram
#pragma weak nvrtcGetCUBIN
#pragma weak nvrtcGetCUBINSize
#pragma weak nvrtcGetProgramLog
#pragma weak nvrtcGetProgramLogSize
#pragma weak nvrtcGetNumSupportedArchs
#pragma weak nvrtcGetSupportedArchs
#pragma weak nvrtcGetPTX
#pragma weak nvrtcGetPTXSize

namespace windrow::cuda {
namespace {

struct Compiler {
  decltype(&nvrtcVersion) version = nvrtcVersion;
  decltype(&nvrtcCreateProgram) create = nvrtcCreateProgram;
  decltype(&nvrtcCompileProgram) compile = nvrtcCompileProgram;
  decltype(&nvrtcDestroyProgram) destroy = nvrtcDestroyProgram;
  decltype(&nvrtcGetCUBIN) code = nvrtcGetCUBIN;
  decltype(&nvrtcGetCUBINSize) code_size = nvrtcGetCUBINSize;
  decltype(&nvrtcGetProgramLog) log = nvrtcGetProgramLog;
  decltype(&nvrtcGetProgramLogSize) log_size = nvrtcGetProgramLogSize;
  decltype(&nvrtcGetNumSupportedArchs) count_architectures = nvrtcGetNumSupportedArchs;
  decltype(&nvrtcGetSupportedArchs) architectures = nvrtcGetSupportedArchs;
  decltype(&nvrtcGetPTX) ptx = nvrtcGetPTX;
  decltype(&nvrtcGetPTXSize) ptx_size = nvrtcGetPTXSize;
  bool complete = create != nullptr;

  Compiler() {
    if (complete) return;
    const std::string name = "libnvrtc.so." + std::to_string(CUDART_VERSION / 1000);
    void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    complete = find(library, "nvrtcVersion", version) && find(library, "nvrtcCreateProgram", create) &&
               find(library, "nvrtcCompileProgram", compile) && find(library, "nvrtcDestroyProgram", destroy) &&
               find(library, "nvrtcGetCUBIN", code) && find(library, "nvrtcGetCUBINSize", code_size) &&
               find(library, "nvrtcGetProgramLog", log) && find(library, "nvrtcGetProgramLogSize", log_size) &&
               find(library, "nvrtcGetNumSupportedArchs", count_architectures) &&
               find(library, "nvrtcGetSupportedArchs", architectures) && find(library, "nvrtcGetPTX", ptx) &&
               find(library, "nvrtcGetPTXSize", ptx_size);
  }

  /// The newest architecture that the compiler knows, but no newer than this one.
  int known(int architecture) const {
    int count = 0;
    std::array<int, 256> all{};
    if (count_architectures == nullptr || count_architectures(&count) != NVRTC_SUCCESS || count < 0 ||
        static_cast<std::size_t>(count) > all.size() || architectures(all.data()) != NVRTC_SUCCESS) {
      return architecture;
    }
    int newest = 0;
    for (const int one : all) newest = one <= architecture ? std::max(newest, one) : newest;
    return newest == 0 ? architecture : newest;
  }

 private:
  template <class Pointer>
  static bool find(void* library, const char* name, Pointer& to) {
    to = reinterpret_cast<Pointer>(::dlsym(library, name));
    return to != nullptr;
  }
};

const Compiler& compiler() {
  static const Compiler made;
  return made;
}

/// What the compiler is told for an architecture.
struct CompilerOptions {
  static constexpr const char* standard = "--std=c++17";
  bool exact;  // otherwise the compiler makes PTX, since the driver must compile for a device that is newer than it
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
  if (!nvrtc.complete || nvrtc.version(&major, &minor) != NVRTC_SUCCESS) return;
  const CompilerOptions options(nvrtc, architecture);
  std::snprintf(facts->version, sizeof facts->version, "NVRTC %d.%d", major, minor);
  std::snprintf(facts->options, sizeof facts->options, "%s %s", options.target, CompilerOptions::standard);
}

int compile(const char* source, int architecture, Compiled* made) {
  const Compiler& nvrtc = compiler();
  if (!nvrtc.complete) return no_compiler;
  nvrtcProgram program;
  if (nvrtc.create(&program, source, "windrow.cu", 0, nullptr, nullptr) != NVRTC_SUCCESS) return out_of_memory;
  const CompilerOptions options(nvrtc, architecture);
  const char* const all[] = {options.target, CompilerOptions::standard};
  const nvrtcResult result = nvrtc.compile(program, 2, all);
  int error = success;
  if (result == NVRTC_SUCCESS) {
    const bool taken = options.exact ? take(program, nvrtc.code_size, nvrtc.code, *made)
                                     : take(program, nvrtc.ptx_size, nvrtc.ptx, *made);
    if (!taken) error = out_of_memory;
  } else {
    error = bad_source;
    take(program, nvrtc.log_size, nvrtc.log, *made);
  }
  nvrtc.destroy(&program);
  return error;
}

void free_compiled(Compiled* made) {
  std::free(made->start);
  *made = {};
}

}  // namespace windrow::cuda
