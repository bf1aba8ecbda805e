#include "trace/environment.h"

#include <atomic>
#include <cstdlib>
#include <filesystem>

namespace windrow {

std::string trace_path_from_environment() {
  const char* given = std::getenv("WINDROW_TRACE");
  if (given == nullptr || *given == '\0') return {};
  static std::atomic<int> asked{0};
  const int number = ++asked;
  if (number == 1) return given;
  const std::filesystem::path path(given);
  const std::string name = path.stem().string() + "." + std::to_string(number) + path.extension().string();
  return (path.parent_path() / name).string();
}

}  // namespace windrow
