// The commands of `windrow-perf` that print tables.
#pragma once

#include <string>
#include <vector>

#include "program.h"
#include "windrow/models/workload.h"

namespace windrow::perf {

/// Adds the commands to the program.
void add_tables(CLI::App& app);

/// The names and "all".
std::vector<std::string> with_all(std::vector<std::string> names);
/// The names in a text that some_of(with_all(all)) accepted.
std::vector<std::string> chosen(const std::string& text, std::vector<std::string> all);
/// Throws MisuseError if there is a data folder and more than one model.
void require_one_model(const std::vector<std::string>& models, const WorkloadOptions& workload);

}  // namespace windrow::perf
