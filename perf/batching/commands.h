// The commands of `windrow-perf` that reproduce the predecessors' tables.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "program.h"
#include "windrow/models/workload.h"

namespace windrow::perf {

/// Adds them to the program, which was called so; what it returns runs the one that was parsed, and says whether one
/// was.
std::function<bool()> add_tables(CLI::App& app, std::string called);

/// With the name "all" for all.
std::vector<std::string> with_all(std::vector<std::string> names);
/// What a text of some_of(with_all(all)) names.
std::vector<std::string> chosen(const std::string& text, std::vector<std::string> all);
/// Throws MisuseError for a folder of data and several models.
void require_one_model(const std::vector<std::string>& models, const WorkloadOptions& workload);

}  // namespace windrow::perf
