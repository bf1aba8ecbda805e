// Flags of the programs: their checks and their help.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "windrow/models/workload.h"

namespace windrow::program {

/// "one of a, b, c", or the only word.
std::string listed(const std::vector<std::string>& words);

/// The values that a flag accepts.
struct Check {
  std::string value;     ///< how --help names a value, such as N
  std::string expected;  ///< the accepted values, for --help and errors
  /// Returns what is wrong, or an empty text. May rewrite its argument into the form that is parsed.
  std::function<std::string(std::string&)> read;
};

/// Accepts the texts for which `holds`; the error for another text is that text in quotes and `refusal`.
Check accept(std::string value, std::string expected, const std::string& refusal,
             std::function<bool(const std::string&)> holds);
/// Whole numbers from low to high, in decimal.
Check whole_number(std::int64_t low, std::int64_t high);
/// One or more of them, separated by commas.
Check whole_numbers(std::int64_t low, std::int64_t high);
/// Numbers above 0.
Check positive_number();
/// Numbers from 0 on.
Check number();
/// Numbers from 0 on that are less than 1.
Check fraction();
/// Numbers above 0 that are less than 1.
Check factor();
/// Numbers from low to high.
Check number_within(double low, double high);
/// One of these words.
Check one_of(std::vector<std::string> words);
/// How Check::expected of some_of() ends.
inline constexpr const char* several_separated = ", or several separated by commas";
/// One or more of these words, separated by commas.
Check some_of(std::vector<std::string> words);
/// One or more of what another check accepts; `separated` is added to what it expects.
Check several(const Check& one, const std::string& separated);
/// The names of schedule policies.
std::vector<std::string> schedule_policies();
/// Describe each running policy and each schedule policy, a line each, for --help.
std::string running_policies_text();
std::string schedule_policies_text();
/// An existing folder.
Check folder();
/// A regular file, or a pipe.
Check existing_file();
/// An existing folder or file.
Check folder_or_file();
/// A file that need not exist, in a folder that does.
Check new_file();
/// A folder that need not exist.
Check new_folder();

/// Adds a flag with a value, or a positional argument if the name has no dashes. If it is given several times, the last
/// one counts.
template <class T>
CLI::Option* flag(CLI::App& command, const char* name, T& value, const std::string& what, const Check& check) {
  return command.add_option(name, value, what)
      ->transform(CLI::Validator(check.read, check.expected))
      ->type_name(check.value)
      ->take_last()
      ->capture_default_str();
}

/// The same without a default: `set` is called only if the flag is given.
template <class T>
CLI::Option* flag(CLI::App& command, const std::string& name, const std::function<void(const T&)>& set,
                  const std::string& what, const Check& check) {
  return command.add_option_function<T>(name, set, what)
      ->transform(CLI::Validator(check.read, check.expected))
      ->type_name(check.value)
      ->take_last();
}

/// Adds a flag without a value.
CLI::Option* toggle(CLI::App& command, const std::string& name, bool& to, const std::string& about);

/// The parts between the commas.
std::vector<std::string> words_of(const std::string& text);
/// The numbers in a text that whole_numbers() accepted.
std::vector<int> numbers_of(const std::string& text);

/// The names of all workloads, of those without WorkloadKind::has_graph_mode (their vertices are batched), and of those
/// with WorkloadKind::graphs_known.
std::vector<std::string> workload_names();
std::vector<std::string> batched_workload_names();
std::vector<std::string> graph_workload_names();
/// "for tree-lstm, bilstm": the workloads that have this.
std::string for_models(bool WorkloadKind::*holds);
/// Adds the flag for that size, which at least one kind of workload has. Its default is the kind's.
void add_size_flag(CLI::App& command, const std::string& name, WorkloadOptions& to);
/// Adds the flags that choose a workload's data and sizes: --data, --train, --valid, the sizes of all kinds, --cell,
/// --samples and --seed. The footer of --help lists the workloads.
void add_workload_flags(CLI::App& command, WorkloadOptions& to);
/// "generated data", or "data from FOLDER".
std::string data_text(const WorkloadOptions& options);
/// " of dev.conllu", or nothing if the samples were generated. Files outside the data folder are named by their paths.
std::string of_files(const SampleSource& source, const WorkloadOptions& options);
/// A line for each set that lacks samples of its files; see SampleSource::left_out.
std::string left_out_text(const Workload& workload);

}  // namespace windrow::program
