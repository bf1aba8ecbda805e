#include "windrow/training/record.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "files/messages.h"
#include "windrow/engine/error.h"
#include "windrow/training/tensor_file.h"

namespace windrow {
namespace {

/// Bounds on what a reader stores, so that a forged file cannot exhaust the memory or the stack.
constexpr std::size_t most_record_levels = 64, most_record_values = 1'000'000;

/// The texts for numbers that are not finite.
constexpr const char *json_nan = "NaN", *json_infinity = "Infinity", *json_minus_infinity = "-Infinity";

const char* article_and_type(std::size_t index) {
  constexpr std::array names = {"a text", "a negative integer", "an integer", "a number", "a list", "a record"};
  return names[index];
}

}  // namespace

RecordValue::RecordValue(Record record) : content_(std::make_shared<const Record>(std::move(record))) {}

RecordValue::RecordValue(OfInteger, std::int64_t integer) {
  if (integer < 0) {
    content_ = integer;
  } else {
    content_ = static_cast<std::uint64_t>(integer);
  }
}

void RecordValue::refuse(const std::string& expected) const {
  throw FileError(place_ + " is " + article_and_type(content_.index()) + "; expected " + expected);
}

const std::string& RecordValue::text() const {
  if (const auto* text = std::get_if<std::string>(&content_)) return *text;
  refuse("a text");
}

std::uint64_t RecordValue::count() const {
  if (const auto* count = std::get_if<std::uint64_t>(&content_)) return *count;
  refuse("an integer that is not negative");
}

std::int64_t RecordValue::integer() const {
  if (const auto* negative = std::get_if<std::int64_t>(&content_)) return *negative;
  const auto* count = std::get_if<std::uint64_t>(&content_);
  if (count == nullptr) refuse("an integer");
  if (std::in_range<std::int64_t>(*count)) return static_cast<std::int64_t>(*count);
  throw FileError(place_ + " is " + std::to_string(*count) + "; expected an integer below 2^63");
}

double RecordValue::number() const {
  if (const auto* number = std::get_if<double>(&content_)) return *number;
  if (const auto* text = std::get_if<std::string>(&content_)) {
    if (*text == json_nan) return std::numeric_limits<double>::quiet_NaN();
    if (*text == json_infinity) return std::numeric_limits<double>::infinity();
    if (*text == json_minus_infinity) return -std::numeric_limits<double>::infinity();
  }
  refuse("a number with a fraction, such as 1.0");
}

const RecordValue::List& RecordValue::list() const {
  if (const auto* list = std::get_if<List>(&content_)) return *list;
  refuse("a list");
}

const Record& RecordValue::record() const {
  if (const auto* record = std::get_if<std::shared_ptr<const Record>>(&content_)) return **record;
  refuse("a record");
}

bool operator==(const RecordValue& a, const RecordValue& b) {
  const auto* record = std::get_if<std::shared_ptr<const Record>>(&a.content_);
  const auto* other = std::get_if<std::shared_ptr<const Record>>(&b.content_);
  return record != nullptr && other != nullptr ? **record == **other : a.content_ == b.content_;
}

Record& Record::set(const std::string& name, RecordValue value) {
  values_.insert_or_assign(name, std::move(value));
  return *this;
}

const RecordValue& Record::at(const std::string& name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) refuse("no " + in_quotes(name), "one");
  return found->second;
}

void Record::refuse(const std::string& what, const std::string& expected) const {
  throw FileError(place_ + " has " + what + "; expected " + expected);
}

Record& Record::set_format(const RecordFormat& format) {
  return set("format", format.name).set("version", format.newest_version);
}

std::uint64_t Record::require_format(const RecordFormat& format) const {
  const std::string& name = at("format").text();
  if (name != format.name) refuse("format " + in_quotes(name), in_quotes(format.name));
  const std::uint64_t version = at("version").count();
  if (version == 0) refuse("format version 0", "1 or more");
  if (version > format.newest_version) {
    refuse("format version " + std::to_string(version) + "; this program reads up to " +
               std::to_string(format.newest_version),
           "a file of this version, or a newer program");
  }
  return version;
}

/// Builds a record from the events of one text.
class RecordBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit RecordBuilder(const std::string& place) : place_(place) {}

  Record take() { return std::move(result_); }

  bool null() override { refuse_value("null"); }
  bool boolean(bool value) override { refuse_value(value ? "true" : "false"); }
  bool binary(binary_t&) override { refuse_value("binary"); }
  bool number_integer(number_integer_t integer) override { return add(RecordValue(integer)); }
  bool number_unsigned(number_unsigned_t count) override { return add(RecordValue(count)); }
  bool number_float(number_float_t number, const string_t&) override { return add(RecordValue(number)); }
  bool string(string_t& text) override { return add(RecordValue(std::move(text))); }

  bool start_object(std::size_t) override { return open(Record()); }
  bool start_array(std::size_t) override { return open(RecordValue::List()); }
  bool key(string_t& name) override {
    Open& innermost = open_.back();
    if (std::get<Record>(innermost.content).contains(name)) {
      throw FileError(innermost.place + " has " + in_quotes(name) + " twice; expected each name once");
    }
    innermost.name = std::move(name);
    return true;
  }
  bool end_array() override { return close(); }
  bool end_object() override { return close(); }

  bool parse_error(std::size_t byte, const std::string&, const nlohmann::json::exception&) override {
    refuse_byte(byte);
  }
  [[noreturn]] void refuse_byte(std::size_t byte) const {
    throw FileError(place_ + " is not valid at byte " + std::to_string(byte) + "; expected JSON");
  }

 private:
  /// A list or record whose end has not been read.
  struct Open {
    std::variant<RecordValue::List, Record> content;
    std::string place;
    std::string name = {};  // in a record: that of the value that comes next
  };

  static constexpr std::size_t longest_path = 200;  // of names; longer ones are left out of places

  std::string next_place() const {
    if (open_.empty()) return place_;
    const Open& parent = open_.back();
    if (const auto* list = std::get_if<RecordValue::List>(&parent.content)) {
      return parent.place + "[" + std::to_string(list->size()) + "]";
    }
    if (parent.place.size() > place_.size() + longest_path) return parent.place;
    return parent.place + "." + shortened(parent.name);
  }

  [[noreturn]] void refuse_value(const char* value) const {
    throw FileError(next_place() + " is " + value + "; expected a text, a number, a list or a record");
  }

  bool open(std::variant<RecordValue::List, Record> content) {
    if (open_.size() == most_record_levels) throw FileError(place_ + " has more than 64 levels; expected at most 64");
    open_.push_back({std::move(content), next_place()});
    return true;
  }

  bool close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    if (auto* list = std::get_if<RecordValue::List>(&done.content)) return add(RecordValue(std::move(*list)));
    Record& record = std::get<Record>(done.content);
    record.place_ = std::move(done.place);
    if (!open_.empty()) return add(RecordValue(std::move(record)));
    result_ = std::move(record);
    return true;
  }

  bool add(RecordValue value) {
    if (++values_ > most_record_values) {
      throw FileError(place_ + " has more than a million values; expected at most a million");
    }
    value.place_ = next_place();
    if (open_.empty()) value.refuse("a record");
    Open& parent = open_.back();
    if (auto* list = std::get_if<RecordValue::List>(&parent.content)) {
      list->push_back(std::move(value));
    } else {
      std::get<Record>(parent.content).set(parent.name, std::move(value));
    }
    return true;
  }

  const std::string& place_;
  std::vector<Open> open_;
  std::size_t values_ = 0;
  Record result_;
};

Record Record::parse(std::string_view json, const std::string& place) {
  RecordBuilder builder(place);
  // The parser takes a zero byte for the end of the text.
  if (const std::size_t zero = json.find('\0'); zero != json.npos) builder.refuse_byte(zero + 1);
  nlohmann::json::sax_parse(json, &builder);
  return builder.take();
}

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
