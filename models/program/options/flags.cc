#include "program/options/flags.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <utility>

#include "program/output/text.h"

namespace windrow::program {
namespace {

/// The number; none if the text is not a number between low and high.
std::optional<std::int64_t> whole(const std::string& text, std::int64_t low, std::int64_t high) {
  constexpr std::size_t most_digits = 18;
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) return {};
  const std::size_t first = std::min(text.find_first_not_of('0'), text.size() - 1);
  if (text.size() - first > most_digits) return {};
  const std::int64_t value = std::stoll(text.substr(first));
  if (value < low || high < value) return {};
  return value;
}

/// The decimal number; NaN if the text is none.
double decimal(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool fits = !text.empty() && text.find_first_not_of("0123456789.eE+-") == std::string::npos && *end == '\0';
  return fits && std::isfinite(value) ? value : NAN;
}

/// Decimal numbers for which `holds`.
Check number_that(const std::string& expected, bool (*holds)(double)) {
  return accept("X", expected, "; expected a number " + expected,
                [=](const std::string& text) { return holds(decimal(text)); });
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}
bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) || std::filesystem::is_fifo(path, ignored);
}

bool is_one_of(const std::vector<std::string>& words, const std::string& text) {
  return std::ranges::find(words, text) != words.end();
}

}  // namespace

Check accept(std::string value, std::string expected, const std::string& refusal,
             std::function<bool(const std::string&)> holds) {
  return {std::move(value), std::move(expected),
          [=](std::string& text) { return holds(text) ? std::string() : in_quotes(text) + refusal; }};
}

Check whole_number(std::int64_t low, std::int64_t high) {
  const std::string expected = std::to_string(low) + " to " + std::to_string(high);
  return {"N", expected, [=](std::string& text) -> std::string {
            const auto value = whole(text, low, high);
            if (!value) return in_quotes(text) + "; expected a whole number, " + expected;
            text = std::to_string(*value);
            return {};
          }};
}

Check whole_numbers(std::int64_t low, std::int64_t high) {
  const std::string expected = std::to_string(low) + " to " + std::to_string(high) + ", separated by commas";
  return accept("N,...", expected, "; expected whole numbers, " + expected, [=](const std::string& text) {
    return std::ranges::all_of(words_of(text),
                               [=](const std::string& part) { return whole(part, low, high).has_value(); });
  });
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  if (text.empty() || text.back() == ',') parts.emplace_back();
  return parts;
}

std::vector<int> numbers_of(const std::string& text) {
  std::vector<int> numbers;
  for (const std::string& part : words_of(text)) numbers.push_back(std::stoi(part));
  return numbers;
}

Check positive_number() {
  return number_that("above 0", [](double value) { return value > 0; });
}
Check number() {
  return number_that("from 0 on", [](double value) { return value >= 0; });
}
Check fraction() {
  return number_that("from 0 on, less than 1", [](double value) { return value >= 0 && value < 1; });
}
Check factor() {
  return number_that("above 0, less than 1", [](double value) { return value > 0 && value < 1; });
}

Check number_within(double low, double high) {
  const std::string expected = formatted("%g to %g", low, high);
  return accept("X", expected, "; expected a number, " + expected,
                [=](const std::string& text) { return low <= decimal(text) && decimal(text) <= high; });
}

Check one_of(std::vector<std::string> words) {
  return accept("NAME", listed(words), "; expected " + listed(words),
                [words](const std::string& text) { return is_one_of(words, text); });
}

Check some_of(std::vector<std::string> words) {
  const auto known = [words](const std::string& text) { return is_one_of(words, text); };
  return several(accept("NAME", listed(words), "; expected " + listed(words) + several_separated, known),
                 several_separated);
}

Check several(const Check& one, const std::string& separated) {
  return {one.value + ",...", one.expected + separated, [=](std::string& text) -> std::string {
            for (std::string part : words_of(text)) {
              if (const std::string wrong = one.read(part); !wrong.empty()) return wrong;
            }
            return {};
          }};
}

std::vector<std::string> schedule_policies() { return {"level", "depth", "agenda", "complete", "serial"}; }

Check folder() {
  return accept("DIR", "an existing folder", " is not a folder; expected an existing folder", is_folder);
}

Check existing_file() {
  return accept("FILE", "an existing file", " is not a file; expected an existing file", is_file);
}

Check folder_or_file() {
  return accept("PATH", "an existing folder or file", " is neither a folder nor a file; expected one of both",
                [](const std::string& text) { return is_folder(text) || is_file(text); });
}

Check new_folder() {
  return accept("DIR", "the name of a folder", " is not a folder; expected the name of a folder",
                [](const std::string& text) { return !text.empty(); });
}

Check new_file() {
  return accept("FILE", "a file in a folder that exists", "; expected a file in a folder that exists",
                [](const std::string& text) {
                  const std::filesystem::path parent = std::filesystem::path(text).parent_path();
                  return !text.empty() && !is_folder(text) && (parent.empty() || is_folder(parent.string()));
                });
}

CLI::Option* toggle(CLI::App& command, const std::string& name, bool& to, const std::string& about) {
  return command.add_flag(name, to, about)->disable_flag_override();
}

}  // namespace windrow::program
