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

/// FNV-1a with two start values, which gives 128 bits.
constexpr std::size_t hash_digits = 32;
std::string hash_of(std::string_view text) {
  std::string digits;
  for (std::uint64_t hash : {0xcbf29ce484222325u, 0x84222325cbf29ce4u}) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    for (int shift = 60; shift >= 0; shift -= 4) digits += "0123456789abcdef"[hash >> shift & 15];
  }
  return digits;
}

/// Empty if the cache is off.
fs::path cache_folder() {
  if (const char* const set = std::getenv("WINDROW_CUDA_CACHE"); set != nullptr) return set;
  if (const char* const cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return fs::path(cache) / "windrow";
  }
  const char* const home = std::getenv("HOME");
  return home == nullptr || *home == '\0' ? fs::path() : fs::path(home) / ".cache" / "windrow";
}

/// The file contains the key, a zero, the hash of the code, and the code. So a different key with the same hash, and
/// incomplete or damaged code, are detected. A damaged file must not be used, because a driver may accept it.
std::optional<std::string> read_kept(const fs::path& file, const std::string& key) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return std::nullopt;
  const std::string all((std::istreambuf_iterator<char>(in)), {});
  const std::string head = key + '\0';
  if (!all.starts_with(head) || all.size() < head.size() + hash_digits) return std::nullopt;
  std::string code = all.substr(head.size() + hash_digits);
  if (all.compare(head.size(), hash_digits, hash_of(code)) != 0) return std::nullopt;
  return code;
}

/// Other processes may write the same file at the same time, so it is written under another name and then renamed.
/// Failures are ignored.
void keep(const fs::path& file, const std::string& key, const std::string& code) {
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  static std::atomic<unsigned> files{0};  // several devices may compile at the same time
  const fs::path unfinished = file.string() + "." + std::to_string(::getpid()) + "." + std::to_string(++files);
  std::ofstream out(unfinished, std::ios::binary);
  out << key << '\0' << hash_of(code) << code;
  out.close();
  if (out) {
    fs::rename(unfinished, file, error);
  }
  fs::remove(unfinished, error);  // if it is still there
}

std::string compile(const Plugin& cuda, const std::string& source, int architecture, const std::string& device) {
  Compiled made;
  const std::unique_ptr<Compiled, void (*)(Compiled*)> owner(&made, cuda.free_compiled);
  const int error = cuda.compile(source.c_str(), architecture, &made);
  std::string result(made.start == nullptr ? "" : made.start, made.start == nullptr ? 0 : made.bytes);
  if (error == success) return result;
  throw Error(device +
              ": a fused kernel does not compile: " + (error == bad_source ? result.c_str() : cuda.text(error)));
}

/// Everything that determines the code, and whether the device can run it. The name separates the devices of tests.
std::string key_of(const Hardware& hardware, const std::string& source) {
  const DeviceFacts& facts = hardware.facts();
  CompilerFacts compiler{};
  hardware.cuda().compiler(facts.major * 10 + facts.minor, &compiler);
  return std::string(compiler.version) + " " + compiler.options + " for " + architecture_of(facts) + ", " + facts.name +
         "\n" + source;
}

}  // namespace

const Code* Code::of(Hardware& hardware, const std::string& source, const std::vector<KernelNeeds>& kernels) {
  return hardware.code_of(source, [&]() -> std::unique_ptr<const Code> {
    const Plugin& cuda = hardware.cuda();
    const std::string key = key_of(hardware, source);
    const fs::path folder = cache_folder(), file = folder / ("kernels-" + hash_of(key));
    if (!folder.empty()) {
      try {
        if (const std::optional<std::string> kept = read_kept(file, key)) {
          return std::unique_ptr<const Code>(new Code(hardware, *kept, kernels));
        }
      } catch (const Error&) {
        if (hardware.failure() != nullptr) throw;
        cuda.take_error();  // the file is unusable and is replaced
      }
    }
    const int architecture = hardware.facts().major * 10 + hardware.facts().minor;
    const std::string code = compile(cuda, source, architecture, hardware.name());
    std::unique_ptr<const Code> made(new Code(hardware, code, kernels));
    if (!folder.empty()) keep(file, key, code);
    return made;
  });
}

Code::Code(const Hardware& hardware, const std::string& code, const std::vector<KernelNeeds>& kernels)
    : module_(nullptr, hardware.cuda().end_module) {
  const Plugin& cuda = hardware.cuda();
  const OnThread here(cuda, hardware.number());
  const auto require = [&](int error, const char* what, const std::string& kernel = {}) {
    if (error != success) throw Error(hardware.name() + ": " + what + kernel + ": " + cuda.text(error));
  };
  Module* loaded = nullptr;
  require(cuda.load(code.c_str(), &loaded), "fused kernels cannot be loaded");
  module_.reset(loaded);
  for (const KernelNeeds& kernel : kernels) {
    functions_.emplace_back();
    require(cuda.function(loaded, kernel.name.c_str(), &functions_.back()), "no kernel ", kernel.name);
    if (kernel.shared_bytes == 0) continue;
    if (cuda.allow_shared(functions_.back(), kernel.shared_bytes, hardware.number()) == success) continue;
    cuda.take_error();
    functions_.back() = nullptr;
  }
}

}  // namespace windrow::cuda
