#include "batching/result.h"

#include <cmath>
#include <cstdio>
#include <deque>
#include <iterator>
#include <string_view>

#include "batching/new_file.h"
#include "batching/svg.h"
#include "report.h"
#include "windrow/engine/error.h"

namespace windrow::perf {
namespace {

std::string number(double value, int digits) {
  if (!std::isfinite(value)) return "-";
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

/// Escapes the text for a cell of a Markdown table.
std::string escaped_cell(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '|') result += '\\';
    result += c;
  }
  return result;
}

/// The file name extensions of a result.
constexpr const char* endings[] = {".md", ".json", ".svg"};

}  // namespace

void Table::add(std::vector<Entry> row) {
  if (row.size() != columns_.size()) {
    throw MisuseError("a row of " + std::to_string(row.size()) + " entries; expected " +
                      std::to_string(columns_.size()));
  }
  rows_.push_back(std::move(row));
}

std::string Table::markdown() const {
  std::string text = "|";
  for (const Column& column : columns_) text += " " + escaped_cell(column.name) + " |";
  text += "\n|";
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const bool numbers = rows_.empty() || std::holds_alternative<double>(rows_.front()[c]);
    text += numbers ? "---:|" : "---|";
  }
  text += "\n";
  for (const std::vector<Entry>& row : rows_) {
    text += "|";
    for (std::size_t c = 0; c < row.size(); ++c) {
      const double* const value = std::get_if<double>(&row[c]);
      text += " ";
      if (value == nullptr) {
        text += escaped_cell(std::get<std::string>(row[c]));
      } else {
        text += number(*value, columns_[c].digits) + (std::isfinite(*value) ? columns_[c].unit : "");
      }
      text += " |";
    }
    text += "\n";
  }
  return text;
}

std::string Table::json() const {
  std::string text;
  for (const std::vector<Entry>& row : rows_) {
    Record record;
    for (std::size_t c = 0; c < row.size(); ++c) {
      std::visit([&](const auto& value) { record.add(columns_[c].name, value); }, row[c]);
    }
    text += (text.empty() ? "    " : ",\n    ") + record.json();
  }
  return "[\n" + text + "\n  ]";
}

std::string Result::markdown() const {
  return "# " + title + "\n\n" + about + "\n\n```\n" + command + "\n```\n\n" + table.markdown() + "\n![" + title +
         "](" + name + ".svg)\n";
}

std::string Result::json() const {
  Record head;
  head.add("name", name).add("title", title).add("command", command).add("about", about);
  std::string text = head.json();
  text.pop_back();
  return text + ",\n  \"rows\": " + table.json() + "\n}\n";
}

std::string command_line(std::string program, const std::vector<std::string>& arguments) {
  // Any other character may have a meaning in some shell.
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=,./:@%";
  for (const std::string& argument : arguments) {
    program += ' ';
    if (!argument.empty() && argument.find_first_not_of(plain) == std::string::npos) {
      program += argument;
      continue;
    }
    program += '\'';
    for (const char c : argument) program += c == '\'' ? "'\\''" : std::string(1, c);
    program += '\'';
  }
  return program;
}

ResultFolder::ResultFolder(std::filesystem::path folder, const std::string& name) : folder_(std::move(folder)) {
  std::error_code ignored;  // without a folder, NewFile below throws
  std::filesystem::create_directories(folder_, ignored);
  for (const char* ending : endings) NewFile(folder_ / (name + ending), "");
}

void ResultFolder::write(const Result& result) const {
  const std::string texts[] = {result.markdown(), result.json(), svg(result.plots)};
  std::deque<NewFile> files;
  for (std::size_t i = 0; i < std::size(endings); ++i) {
    files.emplace_back(folder_ / (result.name + endings[i]), texts[i]);
  }
  for (NewFile& file : files) file.take_place();
}

}  // namespace windrow::perf
