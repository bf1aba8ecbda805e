// What the environment says about engines that do not choose for themselves.
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "windrow/engine/engine.h"

namespace windrow {
namespace {

/// Empty where the variable is not set, or set to nothing.
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

}  // namespace windrow
