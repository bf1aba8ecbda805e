#include "report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace windrow::perf {
namespace {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

Record& Record::add(const std::string& field, const std::string& text) {
  fields_.push_back({field, text, quoted(text)});
  return *this;
}

Record& Record::add(const std::string& field, std::int64_t number) {
  fields_.push_back({field, std::to_string(number), std::to_string(number)});
  return *this;
}

Record& Record::add(const std::string& field, double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", number);
  const std::string shown = std::isfinite(number) ? text : "null";
  fields_.push_back({field, shown, shown});
  return *this;
}

std::string Record::json() const {
  std::string result = "{";
  for (const Field& field : fields_) {
    result += (result.size() > 1 ? ", " : "") + quoted(field.name) + ": " + field.json;
  }
  return result + "}";
}

std::string Record::text() const {
  std::string result;
  for (const Field& field : fields_) {
    result += field.name + std::string(24 - std::min<std::size_t>(field.name.size(), 23), ' ') + field.text + '\n';
  }
  return result;
}

}  // namespace windrow::perf
