// What a benchmark found: named figures, printed as one JSON object a line or for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace windrow::perf {

/// A value.
class Record {
 public:
  /// A name of a field has no characters that JSON escapes; a text may have any.
  Record& add(const std::string& field, const std::string& text);
  Record& add(const std::string& field, std::int64_t number);
  /// With six digits; null if it is not finite.
  Record& add(const std::string& field, double number);

  std::string json() const;
  /// A field a line.
  std::string text() const;

 private:
  struct Field {
    std::string name, text, json;
  };
  std::vector<Field> fields_;
};

}  // namespace windrow::perf
