// What the house's programs share: flags that are checked, data, output, and how they end. What is wrong is told in one
// line, and the exit status is 2.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "windrow/models/treebank.h"

namespace windrow::program {

/// What values of a flag are taken.
struct Check {
  std::string expected;  ///< as --help and errors say it
  /// Returns what is wrong, empty for nothing; may rewrite the text as it shall be read.
  std::function<std::string(std::string&)> read;
};

/// Whole numbers from low to high, in decimal.
Check whole_number(std::int64_t low, std::int64_t high);
/// One or more of them, with commas between.
Check whole_numbers(std::int64_t low, std::int64_t high);
/// Numbers above 0.
Check positive_number();
/// One of these words.
Check one_of(std::vector<std::string> words);
/// One or more of these words, with commas between.
Check some_of(std::vector<std::string> words);
/// The names of schedule policies.
std::vector<std::string> schedule_policies();
/// A folder that there is.
Check folder();

/// Adds a flag with a value, or a positional one if the name has no dashes. Given several times, the last counts.
template <class T>
CLI::Option* flag(CLI::App& command, const char* name, T& value, const char* what, const Check& check) {
  return command.add_option(name, value, what)
      ->transform(CLI::Validator(check.read, ""))
      ->type_name(check.expected)
      ->take_last()
      ->capture_default_str();
}

/// What is between the commas.
std::vector<std::string> words_of(const std::string& text);
/// The numbers of a text that whole_numbers() has passed.
std::vector<int> numbers_of(const std::string& text);

/// Which part of a treebank, and how many trees it has if it is generated.
struct Part {
  const char* name;
  std::size_t generated;
  std::uint64_t seed;
};
inline constexpr Part training_part = {"train", 4096, 0}, unseen_part = {"dev", 512, 1};
/// Reads the part's file of a folder; generates it, by the seed, where the folder is empty. Throws DataError.
std::vector<LabelledTree> trees_of(const std::string& folder, const Part& part, std::uint64_t seed);

/// Prints to standard output, as printf does, at once. Throws Error if it cannot be written.
[[gnu::format(printf, 1, 2)]] void print(const char* format, ...);

/// Parses, then runs the body. Returns the exit status: 0; or 2, after a line that begins with the program's name, for
/// arguments that do not fit and for whatever the body throws.
int run(CLI::App& app, int argc, char** argv, const std::function<void()>& body);

}  // namespace windrow::program
