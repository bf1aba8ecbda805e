// The functions of NVRTC, and those of the runtime that load what it has compiled. The compiler of the host takes the
// place of that of devices: a kernel becomes a function that runs one thread.
#include <dlfcn.h>
#include <nvrtc.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "runtime.h"

using namespace windrow::fake;
using windrow::cuda::Access;

namespace {

namespace fs = std::filesystem;

/// What CUDA C++ has and C++ lacks. The program defines windrow_accesses() where it is compiled for the host.
constexpr const char* before = R"(
#include <cmath>
#define WINDROW_ON_HOST 1
#define __device__
#define __global__
#define __launch_bounds__(...)
using namespace std;
namespace { struct Three { unsigned x = 0, y = 0, z = 0; }; thread_local Three blockIdx, blockDim, gridDim, threadIdx; }
extern "C" void windrow_thread(unsigned block, unsigned blocks, unsigned thread, unsigned threads) {
  blockIdx.x = block; gridDim.x = blocks; threadIdx.x = thread; blockDim.x = threads;
}
#line 1
)";

struct Program {
  std::string source, code, log;
};

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A folder that ends with the object.
struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "fake-cuda-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("fake CUDA: no folder for the compiler");
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

}  // namespace

nvrtcResult nvrtcVersion(int* major, int* minor) {
  *major = CUDART_VERSION / 1000;
  *minor = world().options.compiler_minor;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char*, int, const char* const*,
                               const char* const*) {
  *program = reinterpret_cast<nvrtcProgram>(new Program{.source = std::string(before) + source, .code = {}, .log = {}});
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram handle, int, const char* const*) {
  auto& program = *reinterpret_cast<Program*>(handle);
  const Folder folder;
  std::ofstream(folder.path / "source.cc") << program.source;
  const std::string in = "cd '" + folder.path.string() + "' && ";
  const int status =
      std::system((in + WINDROW_HOST_COMPILER " -std=gnu++14 -O0 -fPIC -shared source.cc -o code.so 2>log").c_str());
  program.log = read_file(folder.path / "log");
  program.code = read_file(folder.path / "code.so");
  {
    std::lock_guard lock(world().mutex);
    ++world().counters.compilations;
  }
  return status == 0 ? NVRTC_SUCCESS : NVRTC_ERROR_COMPILATION;
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, std::size_t* size) {
  *size = reinterpret_cast<Program*>(program)->code.size();
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* to) {
  const std::string& code = reinterpret_cast<Program*>(program)->code;
  std::memcpy(to, code.data(), code.size());
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, std::size_t* size) {
  *size = reinterpret_cast<Program*>(program)->log.size() + 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* to) {
  std::strcpy(to, reinterpret_cast<Program*>(program)->log.c_str());
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  delete reinterpret_cast<Program*>(*program);
  return NVRTC_SUCCESS;
}

extern "C" {

/// The code is a shared library of the host, whose length its ELF header tells.
cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, cudaJitOption*, void**, unsigned,
                                cudaLibraryOption*, void**, unsigned) {
  WINDROW_BEGIN_CALL();
  const auto* const bytes = static_cast<const unsigned char*>(code);
  if (std::memcmp(bytes, "\177ELF", 4) != 0) return returns(cudaErrorInvalidKernelImage);
  std::uint64_t sections;
  std::uint16_t size, count;
  std::memcpy(&sections, bytes + 40, sizeof sections);
  std::memcpy(&size, bytes + 58, sizeof size);
  std::memcpy(&count, bytes + 60, sizeof count);
  const Folder folder;
  const std::string path = (folder.path / "code.so").string();
  std::ofstream(path, std::ios::binary)
      .write(static_cast<const char*>(code), static_cast<std::streamsize>(sections + std::uint64_t{size} * count));
  void* const opened = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) return returns(cudaErrorInvalidKernelImage);
  *library = static_cast<cudaLibrary_t>(opened);
  return cudaSuccess;
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
  Call call;
  const int error = call.begin();
  for (const Stream* stream : world().streams) {
    if (stream->uses(library)) world().report("code is unloaded while a kernel of it is in flight");
  }
  std::erase_if(known().compiled, [&](const auto& entry) { return entry.second.library == library; });
  ::dlclose(library);
  return returns(error);
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
  WINDROW_BEGIN_CALL();
  CompiledKernel found{.name = name, .library = library};
  const auto get = [&](const std::string& symbol, auto& to) {
    to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(::dlsym(library, symbol.c_str()));
    return to != nullptr;
  };
  const unsigned* size = nullptr;
  const bool complete = get(name, found.run) && get(std::string(name) + "_accesses", found.accesses) &&
                        get("windrow_thread", found.thread) && get(std::string(name) + "_argument_bytes", size);
  if (!complete) return returns(cudaErrorSymbolNotFound);
  found.size = *size;
  *kernel = reinterpret_cast<cudaKernel_t>(found.run);
  known().compiled[static_cast<const void*>(*kernel)] = std::move(found);
  return cudaSuccess;
}

}  // extern "C"
