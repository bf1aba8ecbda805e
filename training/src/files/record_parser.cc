// Reading of JSON, which nlohmann's parser hands over event by event. Knows which JSON is a record.
#include <nlohmann/json.hpp>
#include <utility>

#include "files/messages.h"
#include "files/record_json.h"
#include "windrow/training/internal/record.h"
#include "windrow/training/tensor_file.h"

namespace windrow {

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
  /// A list or record of which the end has not come.
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

}  // namespace windrow
