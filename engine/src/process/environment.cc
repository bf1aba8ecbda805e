#include "process/environment.h"

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace windrow {
namespace {

/// The value of an environment variable; none if the variable is not set or empty.
std::optional<std::string_view> from_environment(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

MisuseError wrong(const char* variable, std::string_view value, const char* expected) {
  return MisuseError("the environment variable " + std::string(variable) + " is '" + std::string(value) +
                     "'; expected " + expected);
}

}  // namespace

Policy chosen_policy() {
  const auto value = from_environment("WINDROW_POLICY");
  if (!value) return Policy::pool;
  try {
    return parse_policy(*value);
  } catch (const MisuseError&) {
    throw wrong("WINDROW_POLICY", *value, "serial, pool, per_device or chaos");
  }
}

int chosen_workers() {
  const auto value = from_environment("WINDROW_WORKERS");
  if (!value) return default_workers();
  int workers = 0;
  const char* const end = value->data() + value->size();
  const auto [parsed_to, error] = std::from_chars(value->data(), end, workers);
  if (error != std::errc() || parsed_to != end || workers < 1) {
    throw wrong("WINDROW_WORKERS", *value, "a whole number, 1 or more");
  }
  return workers;
}

namespace {

/// Default options if the environment has an invalid value. The constructor of Engine then reads the environment again,
/// and throws.
constexpr Policy wrong_policy{-1};
constexpr int wrong_workers = std::numeric_limits<int>::min();

template <class T>
T chosen_or(T otherwise, T (*chosen)()) noexcept try {
  return chosen();
} catch (const std::exception&) {
  return otherwise;
}

}  // namespace

namespace environment {

Policy policy() noexcept { return chosen_or(wrong_policy, chosen_policy); }
int workers() noexcept { return chosen_or(wrong_workers, chosen_workers); }

}  // namespace environment

void refuse_wrong_environment(EngineOptions& options) {
  // The environment may have been corrected since the options were made.
  if (options.policy == wrong_policy) options.policy = chosen_policy();
  if (options.workers == wrong_workers) options.workers = chosen_workers();
}

std::optional<int> process_number() {
  // Slurm sets its number in scripts, too, but the count only for processes of srun.
  constexpr std::pair<const char*, const char*> names[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                                           {"PMI_RANK", "PMI_SIZE"},
                                                           {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};
  for (const auto& [number, count] : names) {
    const auto text = from_environment(number);
    int found = 0;
    if (!text || !from_environment(count)) continue;
    if (std::from_chars(text->data(), text->data() + text->size(), found).ec == std::errc()) return found;
  }
  return std::nullopt;
}

std::string trace_path_from_environment() {
  const char* given = std::getenv("WINDROW_TRACE");
  if (given == nullptr || *given == '\0') return {};
  static std::atomic<int> asked{0};
  const int number = ++asked;
  const std::optional<int> process = process_number();
  if (number == 1 && !process) return given;
  const std::filesystem::path path(given);
  const std::string name = path.stem().string() + (process ? "." + std::to_string(*process) : "") +
                           (number > 1 ? "." + std::to_string(number) : "") + path.extension().string();
  return (path.parent_path() / name).string();
}

}  // namespace windrow
