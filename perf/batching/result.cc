#include "batching/result.h"

#include <cmath>
#include <cstdio>
#include <fstream>

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

/// As a cell of a table may have it.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '|') result += '\\';
    result += c;
  }
  return result;
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream out(path);
  out << text;
  out.close();
  if (!out) throw Error(path.string() + ": cannot be written; expected a file that can");
}

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
  for (const Column& column : columns_) text += " " + escaped(column.name) + " |";
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
        text += escaped(std::get<std::string>(row[c]));
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

ResultFolder::ResultFolder(std::filesystem::path folder, const std::string& name) : folder_(std::move(folder)) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  for (const char* ending : {".md", ".json", ".svg"}) {
    const std::filesystem::path path = folder_ / (name + ending);
    const bool there = std::filesystem::exists(path, error);
    const bool writable = static_cast<bool>(std::ofstream(path, std::ios::app));
    if (!writable) throw Error(path.string() + ": cannot be written; expected a folder in which results can be");
    if (!there) std::filesystem::remove(path, error);
  }
}

void ResultFolder::write(const Result& result) const {
  write_file(folder_ / (result.name + ".md"), result.markdown());
  write_file(folder_ / (result.name + ".json"), result.json());
  write_file(folder_ / (result.name + ".svg"), svg(result.plots));
}

}  // namespace windrow::perf
