// Records: named values that a program writes to a file as JSON, and reads back exactly.
//
//   windrow::Record record;
//   record.set("step", 300).set("rate", 1e-3).set("sizes", windrow::RecordValue::List{2, 3});
//   const windrow::Record same = windrow::Record::parse(record.json(), "run/300.json: manifest");
//   same.at("rate").number();  // 1e-3
//
// Knows no files: the caller reads and writes the text.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace windrow {

class Record;

/// A text, an integer, a number, a list of values, or a record. A value; copies share what they contain.
///
/// Integers and numbers are different types. An integer is written without a fraction, and a number with one, so the
/// type survives. Numbers keep all bits, except that a NaN keeps neither sign nor payload. JSON has no literals for
/// numbers that are not finite, so they are written as the texts "NaN", "Infinity" and "-Infinity".
///
/// Errors: a call that asks for another type throws FileError, which names the place of the value.
class RecordValue {
 public:
  using List = std::vector<RecordValue>;

  RecordValue(std::string text) : content_(std::move(text)) {}
  RecordValue(std::string_view text) : content_(std::string(text)) {}
  RecordValue(const char* text) : content_(std::string(text)) {}
  template <std::floating_point Real>
  RecordValue(Real number) : content_(static_cast<double>(number)) {}
  template <std::unsigned_integral Integer>
  requires(!std::same_as<Integer, bool>) RecordValue(Integer count) : content_(static_cast<std::uint64_t>(count)) {}
  template <std::signed_integral Integer>
  RecordValue(Integer integer) : RecordValue(OfInteger(), static_cast<std::int64_t>(integer)) {}
  RecordValue(List list) : content_(std::move(list)) {}
  RecordValue(Record record);

  const std::string& text() const;
  /// An integer that is not negative.
  std::uint64_t count() const;
  std::int64_t integer() const;
  /// A number, but not an integer.
  double number() const;
  const List& list() const;
  const Record& record() const;

  /// By content; the places may differ.
  friend bool operator==(const RecordValue& a, const RecordValue& b);

 private:
  friend class RecordBuilder;
  friend class RecordWriter;
  struct OfInteger {};

  RecordValue(OfInteger, std::int64_t integer);
  [[noreturn]] void refuse(const std::string& expected) const;

  // Invariant: an int64_t is negative, so that equal integers have equal types.
  std::variant<std::string, std::int64_t, std::uint64_t, double, List, std::shared_ptr<const Record>> content_;
  std::string place_ = "record";  // for errors, such as "run/300.json: manifest.sizes[1]"
};

enum class JsonStyle {
  indented,  ///< for people: a line for each value of a record
  compact,   ///< one line
};

/// The name of a format, and the newest version of it that a program reads and writes.
struct RecordFormat {
  std::string name;
  std::uint64_t newest_version = 1;
};

/// Values by name. A value.
class Record {
 public:
  /// Reads JSON: one object, which may contain objects, arrays, strings and numbers, up to 64 levels and a million
  /// values. Throws FileError for anything else, such as null, true, a name that occurs twice, or text that is not
  /// UTF-8. Errors start with `place`, also those of calls on the result.
  static Record parse(std::string_view json, const std::string& place);
  /// As JSON, in the order of the names. Equal records give equal texts. Throws MisuseError for contents that parse()
  /// would refuse: a text or a name that is not UTF-8, or too many levels or values.
  std::string json(JsonStyle style = JsonStyle::indented) const;

  /// Adds or replaces a value. Returns this record.
  Record& set(const std::string& name, RecordValue value);
  /// Removes a value if there is one.
  void remove(const std::string& name) { values_.erase(name); }
  /// Throws FileError if there is no such value.
  const RecordValue& at(const std::string& name) const;
  bool contains(const std::string& name) const { return values_.contains(name); }
  const std::map<std::string, RecordValue>& values() const { return values_; }

  /// Sets "format" and "version".
  Record& set_format(const RecordFormat& format);
  /// Returns the version. Throws FileError unless the record has this format, in a version from 1 to the newest one.
  std::uint64_t require_format(const RecordFormat& format) const;

  friend bool operator==(const Record& a, const Record& b) { return a.values_ == b.values_; }

 private:
  friend class RecordBuilder;

  [[noreturn]] void refuse(const std::string& what, const std::string& expected) const;

  std::map<std::string, RecordValue> values_;
  std::string place_ = "record";  // as in RecordValue
};

}  // namespace windrow
