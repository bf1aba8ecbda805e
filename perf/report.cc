#include "report.h"

#include <algorithm>
#include <cmath>

#include "program.h"

namespace windrow::perf {
namespace {

std::string shown(const Record& value) {
  if (value.is_number_float() && std::isfinite(value.get<double>())) {
    return program::formatted("%.6g", value.get<double>());
  }
  return value.dump(-1, ' ', false, Record::error_handler_t::replace);
}

}  // namespace

std::string json(const Record& record) {
  std::string result;
  for (const auto& [name, value] : record.items()) {
    result += (result.empty() ? "{" : ", ") + Record(name).dump() + ": " + shown(value);
  }
  return result + "}";
}

std::string text(const Record& record) {
  std::string result;
  for (const auto& [name, value] : record.items()) {
    result += name + std::string(24 - std::min<std::size_t>(name.size(), 23), ' ') +
              (value.is_string() ? value.get<std::string>() : shown(value)) + '\n';
  }
  return result;
}

}  // namespace windrow::perf
