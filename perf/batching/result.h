// The result of a table command: rows and plots, written as Markdown, JSON and SVG. It knows no benchmark.
#pragma once

#include <filesystem>
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

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// Throws MisuseError unless the row has one entry per column.
  void add(std::vector<Entry> row);

  std::size_t rows() const { return rows_.size(); }
  /// Numbers are aligned right; "-" stands for a number that is not finite.
  std::string markdown() const;
  /// An array of objects, one per row, each on its own line. Numbers have six digits; null stands for one that is not
  /// finite.
  std::string json() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Entry>> rows_;
};

/// Series over equidistant places, such as sizes that double. A value.
struct Plot {
  struct Series {
    std::string name;
    std::vector<double> values;  ///< one per place; values that are not finite are left out
  };
  enum class Form { lines, bars, stacked };
  enum class Scale { linear, logarithmic };

  std::string title, x, y;  ///< titles of the plot and of its axes
  std::vector<std::string> places;
  std::vector<Series> series;
  Form form = Form::lines;
  Scale scale = Scale::linear;  ///< of the y axis
};

/// The result of a command. A value.
struct Result {
  std::string name;  ///< base name of its files
  std::string title;
  std::string command;  ///< the command that reproduces the result
  std::string about;    ///< what was measured and how; no line breaks
  Table table;
  std::vector<Plot> plots;

  std::string markdown() const;
  std::string json() const;
};

/// The command as a shell reads it, with quotes where necessary.
std::string command_line(std::string program, const std::vector<std::string>& arguments);

/// A folder for results, created if missing. Throws Error if files of that name cannot be written, or if one of the
/// names belongs to something other than a regular file. Create it before measuring, so that no measurement is lost.
class ResultFolder {
 public:
  ResultFolder(std::filesystem::path folder, const std::string& name);
  /// Writes NAME.md, NAME.json and NAME.svg. If one of them cannot be written, writes none and throws Error.
  void write(const Result& result) const;

 private:
  const std::filesystem::path folder_;
};

}  // namespace windrow::perf
