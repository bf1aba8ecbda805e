// A strict JSON reader, so that tests can check output without a library.
#pragma once

#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace windrow::testing {

/// A JSON value. Texts keep their UTF-8. Only single-character escapes and \u below 0x80 are decoded.
struct Json {
  enum class Kind { null, boolean, number, text, list, object } kind = Kind::null;
  double number = 0;
  std::string text = {};
  std::vector<Json> list = {};
  std::map<std::string, Json> object = {};

  const Json& operator[](const std::string& key) const {
    const auto found = object.find(key);
    if (found == object.end()) throw std::runtime_error("no key '" + key + "'");
    return found->second;
  }
  bool has(const std::string& key) const { return object.contains(key); }
};

class JsonReader {
 public:
  /// Throws std::runtime_error with the position if the text is not JSON.
  static Json read(std::string_view text) {
    JsonReader reader(text);
    Json json = reader.value();
    reader.skip_space();
    if (reader.at_ != text.size()) reader.fail("more than one value");
    return json;
  }

 private:
  explicit JsonReader(std::string_view text) : text_(text) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error("JSON: " + what + " at byte " + std::to_string(at_) + ": " +
                             std::string(text_.substr(at_, 40)));
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  char next() {
    if (at_ == text_.size()) fail("the end");
    return text_[at_++];
  }
  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \n\r\t").find(peek()) != std::string_view::npos) ++at_;
  }
  bool take(char c) {
    skip_space();
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(std::string_view what) {
    if (text_.substr(at_, what.size()) != what) fail("expected " + std::string(what));
    at_ += what.size();
  }

  Json value() {
    skip_space();
    switch (peek()) {
      case '{':
        return object();
      case '[':
        return list();
      case '"':
        return {.kind = Json::Kind::text, .text = string()};
      case 't':
        expect("true");
        return {.kind = Json::Kind::boolean, .number = 1};
      case 'f':
        expect("false");
        return {.kind = Json::Kind::boolean};
      case 'n':
        expect("null");
        return {};
      default:
        return number();
    }
  }

  Json object() {
    Json json{.kind = Json::Kind::object};
    expect("{");
    if (take('}')) return json;
    do {
      skip_space();
      const std::string key = string();
      if (!take(':')) fail("no colon");
      if (!json.object.emplace(key, value()).second) fail("the key '" + key + "' twice");
    } while (take(','));
    if (!take('}')) fail("no end of the object");
    return json;
  }

  Json list() {
    Json json{.kind = Json::Kind::list};
    expect("[");
    if (take(']')) return json;
    do {
      json.list.push_back(value());
    } while (take(','));
    if (!take(']')) fail("no end of the list");
    return json;
  }

  Json number() {
    const std::size_t first = at_;
    if (peek() == '-') ++at_;
    digits();
    if (peek() == '.') {
      ++at_;
      digits();
    }
    return {.kind = Json::Kind::number,
            .number = std::strtod(std::string(text_.substr(first, at_ - first)).c_str(), nullptr)};
  }
  void digits() {
    if (peek() < '0' || peek() > '9') fail("no digit");
    while (peek() >= '0' && peek() <= '9') ++at_;
  }

  std::string string() {
    expect("\"");
    std::string result;
    for (char c = next(); c != '"'; c = next()) {
      if (static_cast<unsigned char>(c) < 0x20) fail("a control character");
      result += c == '\\' ? escape() : std::string(1, c);
    }
    return result;
  }
  std::string escape() {
    const char c = next();
    const std::string_view from = "\"\\/bfnrt", to = "\"\\/\b\f\n\r\t";
    if (const std::size_t i = from.find(c); i != std::string_view::npos) return std::string(1, to[i]);
    if (c != 'u') fail("an unknown escape");
    const std::string digits(text_.substr(at_, 4));
    if (digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos || digits.size() != 4) fail("no \\u");
    at_ += 4;
    const unsigned long code = std::strtoul(digits.c_str(), nullptr, 16);
    return code < 0x80 ? std::string(1, static_cast<char>(code)) : "\\u" + digits;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace windrow::testing
