#include "files/checkpoint_names.h"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace windrow {
namespace {

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::optional<std::uint64_t> step_of(std::string_view text) {
  std::uint64_t step = 0;
  const char* end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, step);
  const bool canonical = error == std::errc() && parsed == end && step_name(step) == text;
  return canonical ? std::optional(step) : std::nullopt;
}

bool remove_ending(std::string_view& name, std::string_view ending) {
  if (!name.ends_with(ending)) return false;
  name.remove_suffix(ending.size());
  return true;
}

}  // namespace

std::string step_name(std::uint64_t step) {
  const std::string digits = std::to_string(step);
  constexpr std::size_t width = 12;  // so that names sort like steps, up to 10^12
  return std::string(width - std::min(width, digits.size()), '0') + digits;
}

std::string manifest_name(std::uint64_t step) { return step_name(step) + std::string(manifest_ending); }

std::optional<std::uint64_t> step_of_manifest(std::string_view name) {
  return remove_ending(name, manifest_ending) ? step_of(name) : std::nullopt;
}

std::optional<std::uint64_t> step_of_tensors(std::string_view name) {
  if (!remove_ending(name, tensors_ending)) return {};
  const std::size_t dash = name.find('-');
  if (dash != name.npos && !all_digits(name.substr(dash + 1))) return {};
  return step_of(name.substr(0, dash));
}

bool is_unfinished(std::string_view name) {
  if (!remove_ending(name, ".new")) return false;
  const std::size_t dot = name.rfind('.');
  if (dot == name.npos) return false;
  const std::string_view process = name.substr(dot + 1), target = name.substr(0, dot);
  const std::size_t dash = process.find('-');
  return dash != process.npos && all_digits(process.substr(0, dash)) && all_digits(process.substr(dash + 1)) &&
         (step_of_manifest(target) || step_of_tensors(target));
}

}  // namespace windrow
