// The record of a benchmark: named values, printed as one JSON object per line or as text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace windrow::perf {

/// A value.
class Record {
 public:
  /// The name of a field must not need escapes in JSON; a text may contain any characters.
  Record& add(const std::string& field, const std::string& text);
  Record& add(const std::string& field, std::int64_t number);
  /// Printed with six digits, or as null if it is not finite.
  Record& add(const std::string& field, double number);

  std::string json() const;
  /// One field per line.
  std::string text() const;

 private:
  struct Field {
    std::string name, text, json;
  };
  std::vector<Field> fields_;
};

}  // namespace windrow::perf
