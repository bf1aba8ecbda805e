// What a table of perf/batching comes to: rows of figures and plots of them; written as Markdown, JSON and SVG. It
// knows no benchmark.
#pragma once

#include <filesystem>
#include <string>
#include <variant>
#include <vector>

namespace windrow::perf {

/// Rows of texts and numbers under named columns. A value.
class Table {
 public:
  struct Column {
    std::string name;
    int digits = 1;         ///< of numbers, behind the point
    std::string unit = {};  ///< written behind each number in Markdown, as " %" or " x"
  };
  using Entry = std::variant<std::string, double>;

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// Throws MisuseError unless it has an entry for each column.
  void add(std::vector<Entry> row);

  std::size_t rows() const { return rows_.size(); }
  /// Numbers to the right; "-" for those that are not finite.
  std::string markdown() const;
  /// An array with an object for each row, a row a line; numbers with six digits, null for those that are not finite.
  std::string json() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Entry>> rows_;
};

/// Series over places that lie equally far apart, such as sizes that double. A value.
struct Plot {
  struct Series {
    std::string name;
    std::vector<double> values;  ///< of each place; what is not finite is left out
  };
  enum class Form { lines, bars, stacked };
  enum class Scale { linear, logarithmic };

  std::string title, x, y;  ///< of the plot and its axes
  std::vector<std::string> places;
  std::vector<Series> series;
  Form form = Form::lines;
  Scale scale = Scale::linear;  ///< of y
};

/// What a command found. A value.
struct Result {
  std::string name;  ///< of its files
  std::string title;
  std::string command;  ///< that reproduces it
  std::string about;    ///< what was measured and how, for people; paragraphs without line breaks
  Table table;
  std::vector<Plot> plots;

  std::string markdown() const;
  std::string json() const;
};

/// As a shell reads it back: arguments are in quotes where they have to be.
std::string command_line(std::string program, const std::vector<std::string>& arguments);

/// A folder for results: made if it is not there. Throws Error if files of that name cannot be written in it, or if
/// something else has one of their names; so who has one before measuring will not have measured in vain.
class ResultFolder {
 public:
  ResultFolder(std::filesystem::path folder, const std::string& name);
  /// NAME.md, NAME.json and NAME.svg: all of them, or, where one cannot be written, none. Throws Error then.
  void write(const Result& result) const;

 private:
  const std::filesystem::path folder_;
};

}  // namespace windrow::perf
