// Output of a running training: a row for each epoch, and a line that shows the progress of the epoch.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "windrow/models/trainer.h"

namespace windrow::program {

/// The table of epochs, of at most 80 columns. A value.
class EpochTable {
 public:
  EpochTable(Trainer& trainer, const Workload& workload);

  void print_head() const { print_row(columns_); }
  void print_epoch(std::uint64_t epoch, const Trainer::Pass& pass, const std::vector<Metric>& score) const;

 private:
  void print_row(const std::vector<std::string>& cells) const;

  std::vector<std::string> columns_;
  const Workload& workload_;
};

/// The contents of the line. A value.
struct ProgressLine {
  std::size_t epoch, epochs;  ///< the number of the current epoch; the number of all epochs
  std::size_t samples, of;    ///< of this epoch
  double loss;                ///< 0: not known yet
  double units_per_second;
  std::string unit;
  double seconds_left;  ///< of all epochs; not finite if that is not known yet
};
/// At most `width` characters: the least important parts are left out first.
std::string to_string(const ProgressLine& line, std::size_t width);

/// The text, or its begin of so many characters of UTF-8.
std::string fitted(const std::string& text, std::size_t width);

/// Shows the line on standard output. On a terminal it fits the present width, is rewritten at most ten times a second,
/// and disappears when other output begins. Elsewhere, such as in a log, a line is printed after some seconds, and then
/// every half minute. An owner.
class Progress {
 public:
  Progress();
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Calls make(width) only if the line is to be shown now, and cuts its result at that width.
  template <class Make>
  void show(Make make) {
    const Clock::time_point now = Clock::now();
    if (form_ == Form::none || now < next_) return;
    next_ = now + (form_ == Form::terminal ? std::chrono::milliseconds(100) : std::chrono::seconds(30));
    const std::size_t width = this->width();
    write(fitted(make(width), width));
  }
  /// Removes the line.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  enum class Form { none, terminal, log };

  static Form form_here();
  std::size_t width() const;
  void write(const std::string& line);

  const Form form_ = form_here();
  Clock::time_point next_;
  bool shown_ = false;
};

}  // namespace windrow::program
