// A table of figures, printed as Markdown or as a JSON object per row. It knows no benchmark.
#pragma once

#include <string>
#include <variant>
#include <vector>

namespace windrow::perf {

/// Rows of texts and numbers with named columns. A value.
class Table {
 public:
  struct Column {
    std::string name;
    int digits = 1;         ///< digits after the decimal point
    std::string unit = {};  ///< follows each number in Markdown, such as " %" or " x"
  };
  using Entry = std::variant<std::string, double>;

  /// `about`: what was measured and how.
  Table(std::string title, std::string about, std::vector<Column> columns)
      : title_(std::move(title)), about_(std::move(about)), columns_(std::move(columns)) {}
  /// Throws MisuseError unless the row has one entry per column.
  void add(std::vector<Entry> row);

  /// Numbers are aligned right; "-" stands for a number that is not finite.
  std::string markdown() const;
  /// One object per row, each on its own line. Null stands for one that is not finite.
  std::string json() const;

 private:
  std::string title_, about_;
  std::vector<Column> columns_;
  std::vector<std::vector<Entry>> rows_;
};

}  // namespace windrow::perf
