#include "print/names.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <limits>
#include <string_view>

#include "windrow/ops/internal/number.h"

namespace windrow::print {
namespace {

// Of C++20, and macros of the standard library.
constexpr std::string_view keywords[] = {
    "alignas",     "alignof",   "and",        "and_eq",    "asm",      "auto",         "bitand",
    "bitor",       "bool",      "break",      "case",      "catch",    "char",         "char8_t",
    "char16_t",    "char32_t",  "class",      "compl",     "concept",  "const",        "consteval",
    "constexpr",   "constinit", "const_cast", "continue",  "co_await", "co_return",    "co_yield",
    "decltype",    "default",   "delete",     "do",        "double",   "dynamic_cast", "else",
    "enum",        "explicit",  "export",     "extern",    "false",    "float",        "for",
    "friend",      "goto",      "if",         "inline",    "int",      "long",         "mutable",
    "namespace",   "new",       "noexcept",   "not",       "not_eq",   "nullptr",      "operator",
    "or",          "or_eq",     "private",    "protected", "public",   "register",     "reinterpret_cast",
    "requires",    "return",    "short",      "signed",    "sizeof",   "static",       "static_assert",
    "static_cast", "struct",    "switch",     "template",  "this",     "thread_local", "throw",
    "true",        "try",       "typedef",    "typeid",    "typename", "union",        "unsigned",
    "using",       "virtual",   "void",       "volatile",  "wchar_t",  "while",        "xor",
    "xor_eq",      "assert",    "errno",      "stdin",     "stdout",   "stderr",       "offsetof",
    "setjmp",      "NULL",      "EOF",        "BUFSIZ",    "NAN",      "INFINITY",     "HUGE_VAL",
    "RAND_MAX",    "CHAR_BIT",  "INT_MAX",    "INT_MIN",   "UINT_MAX", "LONG_MAX",     "LONG_MIN",
    "SIZE_MAX",    "linux",     "unix"};

}  // namespace

std::string identifier(const std::string& text) {
  std::string made;
  for (const char c : text) made += std::isalnum(static_cast<unsigned char>(c)) != 0 && c > 0 ? c : '_';
  // Two underscores, and one before a capital, belong to the compiler.
  const auto same = std::unique(made.begin(), made.end(), [](char a, char b) { return a == '_' && b == '_'; });
  made.erase(same, made.end());
  if (made.empty() || std::isalpha(static_cast<unsigned char>(made.front())) == 0) made = "x" + made;
  if (std::ranges::find(keywords, made) != std::end(keywords)) made += "_";
  return made;
}

std::string Identifiers::add(const std::string& text) {
  const std::string wanted = identifier(text);
  std::string name = wanted;
  for (int number = 2; !taken_.insert(name).second; ++number) {
    name = wanted + (wanted.ends_with('_') ? "" : "_") + std::to_string(number);
  }
  return name;
}

std::string quoted(const std::string& text) {
  std::string made = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      made += '\\';
      made += c;
    } else if (code < 0x20 || code == 0x7f) {
      constexpr std::string_view octal = "01234567";  // three digits end the escape
      made += {'\\', octal[code >> 6], octal[code >> 3 & 7], octal[code & 7]};
    } else {
      made += c;
    }
  }
  return made + "\"";
}

std::string literal(double value) {
  if (std::isnan(value)) return "std::numeric_limits<double>::quiet_NaN()";
  if (std::isinf(value)) return std::string(value < 0 ? "-" : "") + "std::numeric_limits<double>::infinity()";
  const std::string made = shortest_text(value);
  return made.find_first_of(".e") == std::string::npos ? made + ".0" : made;
}

std::string literal(const Attributes& a) {
  std::string text = "{.made_by = " + quoted(std::string(a.made_by));
  if (a.rows.counted()) text += ", .rows = windrow::Rows::count(" + std::to_string(a.rows.number()) + ")";
  if (a.rows == windrow::Rows::edges()) text += ", .rows = windrow::Rows::edges()";
  const auto list = [&](const char* name, const auto& of, auto text_of) {
    std::size_t last = of.size();
    while (last > 0 && of[last - 1] == 0 && !std::signbit(of[last - 1])) --last;
    if (last == 0) return;
    text += std::string(", .") + name + " = {";
    for (std::size_t i = 0; i < last; ++i) text += (i > 0 ? ", " : "") + text_of(of[i]);
    text += "}";
  };
  list("sizes", a.sizes, [](Index size) { return std::to_string(size); });
  list("values", a.values, [](double value) { return literal(value); });
  return text + "}";
}

}  // namespace windrow::print
