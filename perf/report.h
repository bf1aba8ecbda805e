// The record of a benchmark: named values in order, printed as one JSON object per line or as text.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace windrow::perf {

/// A number that is not finite is printed as null.
using Record = nlohmann::ordered_json;
/// Called with each record as soon as it is complete.
using Report = std::function<void(const Record&)>;

/// One line.
std::string json(const Record& record);
/// One field per line.
std::string text(const Record& record);

}  // namespace windrow::perf
