#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "files/messages.h"
#include "files/record_json.h"
#include "windrow/engine/error.h"
#include "windrow/training/internal/record.h"

namespace windrow {
namespace {

std::string json_of(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    throw MisuseError("a record with the text " + in_quotes(text) + ", which is not UTF-8; expected UTF-8");
  }
}

std::string json_of(double number) {
  if (std::isnan(number)) return json_of(json_nan);
  if (std::isinf(number)) return json_of(number > 0 ? json_infinity : json_minus_infinity);
  std::array<char, 32> digits;  // the shortest text that gives this number has at most 24
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  const std::string text(digits.data(), end);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;  // or it would be an integer
}

}  // namespace

/// Writes one record.
class RecordWriter {
 public:
  explicit RecordWriter(JsonStyle style) : style_(style) {}

  std::string take() { return std::move(json_); }

  void write(const Record& record) {
    enter();
    ++indent_;
    const char* separator = "{";
    for (const auto& [name, value] : record.values()) {
      json_ += std::exchange(separator, ",");
      begin_line();
      json_ += json_of(name) + ": ";
      write(value);
    }
    --indent_;
    if (record.values().empty()) {
      json_ += '{';
    } else {
      begin_line();
    }
    json_ += '}';
    --levels_;
  }

 private:
  void write(const RecordValue& value) {
    if (++values_ > most_record_values) {
      throw MisuseError("a record of more than a million values; expected at most a million");
    }
    std::visit([this](const auto& content) { write_content(content); }, value.content_);
  }

  void write_content(const std::string& text) { json_ += json_of(text); }
  void write_content(double number) { json_ += json_of(number); }
  void write_content(std::int64_t integer) { json_ += std::to_string(integer); }
  void write_content(std::uint64_t count) { json_ += std::to_string(count); }
  void write_content(const std::shared_ptr<const Record>& record) { write(*record); }
  void write_content(const RecordValue::List& list) {
    enter();
    json_ += '[';
    for (const RecordValue& value : list) {
      if (&value != &list.front()) json_ += ", ";
      write(value);
    }
    json_ += ']';
    --levels_;
  }

  void enter() {
    if (++levels_ > most_record_levels) throw MisuseError("a record of more than 64 levels; expected at most 64");
  }

  void begin_line() {
    if (style_ == JsonStyle::indented) json_.append(1, '\n').append(2 * indent_, ' ');
  }

  const JsonStyle style_;
  std::string json_;
  std::size_t indent_ = 0, levels_ = 0, values_ = 0;
};

std::string Record::json(JsonStyle style) const {
  RecordWriter writer(style);
  writer.write(*this);
  return style == JsonStyle::indented ? writer.take() + "\n" : writer.take();
}

}  // namespace windrow
