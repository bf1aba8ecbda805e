// Assertions about texts. Those that fail show the text, and the line of the call.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <regex>
#include <source_location>
#include <string>

namespace windrow::testing {

using Line = std::source_location;
inline ::testing::ScopedTrace trace_of(const Line& line) {
  return {line.file_name(), static_cast<int>(line.line()), "called here"};
}

inline void expect_has(const std::string& text, const std::string& part, Line line = Line::current()) {
  const auto trace = trace_of(line);
  EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
}
inline void expect_has_all(const std::string& text, std::initializer_list<std::string> parts,
                           Line line = Line::current()) {
  for (const std::string& part : parts) expect_has(text, part, line);
}
inline void expect_lacks(const std::string& text, const std::string& part, Line line = Line::current()) {
  const auto trace = trace_of(line);
  EXPECT_EQ(text.find(part), std::string::npos) << part << " in " << text;
}
/// The regular expression matches the whole text.
template <class Regex>
void expect_match(const std::string& text, const Regex& regex, Line line = Line::current()) {
  const auto trace = trace_of(line);
  EXPECT_TRUE(std::regex_match(text, std::regex(regex))) << text;
}
/// It matches a part of the text.
template <class Regex>
void expect_has_match(const std::string& text, const Regex& regex, Line line = Line::current()) {
  const auto trace = trace_of(line);
  EXPECT_TRUE(std::regex_search(text, std::regex(regex))) << text;
}

}  // namespace windrow::testing
