#include "backend/code.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

namespace windrow::cuda {
namespace {

namespace fs = std::filesystem;

/// FNV-1a, with two beginnings for 128 bits.
std::string hash_of(const std::string& text) {
  std::string digits;
  for (std::uint64_t hash : {0xcbf29ce484222325u, 0x84222325cbf29ce4u}) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    for (int shift = 60; shift >= 0; shift -= 4) digits += "0123456789abcdef"[hash >> shift & 15];
  }
  return digits;
}

/// Empty if nothing is to be kept.
fs::path cache_folder() {
  if (const char* const set = std::getenv("WINDROW_CUDA_CACHE"); set != nullptr) return set;
  if (const char* const cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return fs::path(cache) / "windrow";
  }
  const char* const home = std::getenv("HOME");
  return home == nullptr || *home == '\0' ? fs::path() : fs::path(home) / ".cache" / "windrow";
}

/// The file begins with its key, so that another key of the same hash, and a torn file, are noticed.
std::optional<std::string> read_kept(const fs::path& file, const std::string& key) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return std::nullopt;
  const std::string all((std::istreambuf_iterator<char>(in)), {});
  const std::string head = key + '\0';
  constexpr std::string_view end = "end of code";
  if (!all.starts_with(head) || !all.ends_with(end)) return std::nullopt;
  return all.substr(head.size(), all.size() - head.size() - end.size());
}

/// Other processes may do the same at the same time, so the file appears complete. Failures are of no interest.
void keep(const fs::path& file, const std::string& key, const std::string& code) {
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  static std::atomic<unsigned> files{0};  // devices compile at the same time
  const fs::path unfinished = file.string() + "." + std::to_string(::getpid()) + "." + std::to_string(++files);
  std::ofstream out(unfinished, std::ios::binary);
  out << key << '\0' << code << "end of code";
  out.close();
  if (out) {
    fs::rename(unfinished, file, error);
  }
  fs::remove(unfinished, error);  // if it is still there
}

std::string compile(const Plugin& cuda, const std::string& source, int architecture, const std::string& device) {
  Compiled made;
  const int error = cuda.compile(source.c_str(), architecture, &made);
  const std::string result(made.start == nullptr ? "" : made.start, made.start == nullptr ? 0 : made.bytes);
  cuda.free_compiled(&made);
  if (error == success) return result;
  throw Error(device +
              ": a fused kernel does not compile: " + (error == bad_source ? result.c_str() : cuda.text(error)));
}

}  // namespace

const Code* Code::of(Hardware& hardware, const std::string& source, const std::vector<KernelNeeds>& kernels) {
  return hardware.code_of(source, [&]() -> std::unique_ptr<const Code> {
    const Plugin& cuda = hardware.cuda();
    const DeviceFacts& facts = hardware.facts();
    const int architecture = facts.major * 10 + facts.minor;
    int driver = 0, runtime = 0;
    cuda.versions(&driver, &runtime);
    const std::string key = "sm_" + std::to_string(architecture) + " of " + facts.name + ", CUDA " +
                            std::to_string(runtime) + "\n" + source;
    const fs::path folder = cache_folder(), file = folder / ("kernels-" + hash_of(key));
    if (!folder.empty()) {
      try {
        if (const std::optional<std::string> kept = read_kept(file, key)) {
          return std::unique_ptr<const Code>(new Code(hardware, *kept, kernels));
        }
      } catch (const Error&) {
        if (hardware.failure() != nullptr) throw;
        cuda.take_error();  // the file is of no use; it is replaced
      }
    }
    const std::string code = compile(cuda, source, architecture, hardware.name());
    std::unique_ptr<const Code> made(new Code(hardware, code, kernels));
    if (!folder.empty()) keep(file, key, code);
    return made;
  });
}

Code::Code(const Hardware& hardware, const std::string& code, const std::vector<KernelNeeds>& kernels)
    : cuda_(hardware.cuda()) {
  const OnThread here(cuda_, hardware.number());
  const auto require = [&](int error, const std::string& what) {
    if (error == success) return;
    if (module_ != nullptr) cuda_.end_module(module_);
    throw Error(hardware.name() + ": " + what + ": " + cuda_.text(error));
  };
  require(cuda_.load(code.c_str(), &module_), "fused kernels cannot be loaded");
  for (const KernelNeeds& kernel : kernels) {
    functions_.emplace_back();
    require(cuda_.function(module_, kernel.name.c_str(), &functions_.back()), "no kernel " + kernel.name);
    if (kernel.shared_bytes == 0) continue;
    require(cuda_.allow_shared(functions_.back(), kernel.shared_bytes, hardware.number()),
            "no shared memory for " + kernel.name);
  }
}

Code::~Code() { cuda_.end_module(module_); }

}  // namespace windrow::cuda
