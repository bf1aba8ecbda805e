// The line on a terminal that shows how far an epoch is.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace windrow::program {

/// What the line shows. A value.
struct ProgressLine {
  std::size_t epoch, epochs;  ///< the number of the current one, and of all
  std::size_t samples, of;    ///< of this epoch
  double loss;                ///< 0: not known yet
  double units_per_second;
  std::string unit;
  double seconds_left;  ///< of all epochs; not finite if that is not known yet
};
/// At most 79 characters.
std::string to_string(const ProgressLine& line);

/// Shows the line on standard output if that is a terminal; otherwise nothing. The line is rewritten ten times a second
/// at most, and is gone when other output begins. An owner.
class Progress {
 public:
  Progress();
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `make` makes the line, when it is to be shown; it should have at most 79 characters.
  template <class Make>
  void show(Make make) {
    const auto now = std::chrono::steady_clock::now();
    if (!terminal_ || now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    write(make());
  }
  /// Removes the line.
  void clear();

 private:
  void write(const std::string& line);

  const bool terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_ = {};
};

}  // namespace windrow::program
