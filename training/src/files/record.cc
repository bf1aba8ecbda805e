#include "windrow/training/internal/record.h"

#include <array>
#include <limits>
#include <utility>

#include "files/messages.h"
#include "files/record_json.h"
#include "windrow/training/tensor_file.h"

namespace windrow {

namespace {

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

}  // namespace windrow
