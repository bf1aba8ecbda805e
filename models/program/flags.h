// Flags that are checked: what programs take, and what they say of it.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "windrow/models/workload.h"

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
/// A folder that need not be there.
Check new_folder();

/// Adds a flag with a value, or a positional one if the name has no dashes. Given several times, the last counts.
template <class T>
CLI::Option* flag(CLI::App& command, const char* name, T& value, const char* what, const Check& check) {
  return command.add_option(name, value, what)
      ->transform(CLI::Validator(check.read, ""))
      ->type_name(check.expected)
      ->take_last()
      ->capture_default_str();
}

/// The same for a value that is not given a default here: `set` is called with it if it is given.
template <class T>
CLI::Option* flag(CLI::App& command, const std::string& name, const std::function<void(const T&)>& set,
                  const std::string& what, const Check& check) {
  return command.add_option_function<T>(name, set, what)
      ->transform(CLI::Validator(check.read, ""))
      ->type_name(check.expected)
      ->take_last();
}

/// What is between the commas.
std::vector<std::string> words_of(const std::string& text);
/// The numbers of a text that whole_numbers() has passed.
std::vector<int> numbers_of(const std::string& text);

/// The names of all workloads.
std::vector<std::string> workload_names();
/// Adds the flag for that size, which one kind or several have.
void add_size_flag(CLI::App& command, const std::string& name, WorkloadOptions& to);
/// Adds the flags that choose what is loaded and how large it is: --data, the sizes of all kinds, --cell, --samples and
/// --seed; and tells in the footer what there is to choose from.
void add_workload_flags(CLI::App& command, WorkloadOptions& to);

}  // namespace windrow::program
