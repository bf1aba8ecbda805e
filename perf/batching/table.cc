#include "batching/table.h"

#include <cmath>
#include <cstdio>

#include "report.h"
#include "windrow/engine/error.h"

namespace windrow::perf {
namespace {

std::string cell(const Table::Entry& entry, const Table::Column& column) {
  if (const auto* text = std::get_if<std::string>(&entry)) return *text;
  const double value = std::get<double>(entry);
  if (!std::isfinite(value)) return "-";
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", column.digits, value);
  return text + column.unit;
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
  std::string text = "# " + title_ + "\n\n" + about_ + "\n\n|";
  for (const Column& column : columns_) text += " " + column.name + " |";
  text += "\n|";
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const bool numbers = rows_.empty() || std::holds_alternative<double>(rows_.front()[c]);
    text += numbers ? "---:|" : "---|";
  }
  text += "\n";
  for (const std::vector<Entry>& row : rows_) {
    text += "|";
    for (std::size_t c = 0; c < row.size(); ++c) text += " " + cell(row[c], columns_[c]) + " |";
    text += "\n";
  }
  return text;
}

std::string Table::json() const {
  std::string text;
  for (const std::vector<Entry>& row : rows_) {
    Record record;
    for (std::size_t c = 0; c < row.size(); ++c) {
      std::visit([&](const auto& value) { record[columns_[c].name] = value; }, row[c]);
    }
    text += perf::json(record) + "\n";
  }
  return text;
}

}  // namespace windrow::perf
