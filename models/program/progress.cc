#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "program.h"
#include "windrow/comm/mpi.h"

namespace windrow::program {
namespace {

template <class... Values>
std::string formatted(const char* format, Values... values) {
  std::array<char, 80> text{};
  std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

/// "1:02:03", "2:03", or nothing.
std::string time_text(double seconds) {
  if (!std::isfinite(seconds) || seconds > 1e6) return {};
  const auto all = static_cast<long>(std::ceil(seconds));
  const long hours = all / 3600, minutes = all / 60 % 60, rest = all % 60;
  if (hours > 0) return formatted("%ld:%02ld:%02ld left", hours, minutes, rest);
  return formatted("%ld:%02ld left", minutes, rest);
}

}  // namespace

std::string to_string(const ProgressLine& line) {
  constexpr std::size_t bar = 12;
  const std::size_t of = std::max<std::size_t>(line.of, 1), done = std::min(line.samples, of);
  std::string text = formatted("epoch %zu/%zu [", line.epoch, line.epochs);
  text += std::string(bar * done / of, '#') + std::string(bar - bar * done / of, '.');
  text += formatted("] %3zu %%  ", 100 * done / of);
  if (line.loss != 0) text += formatted("loss %.4f  ", line.loss);
  text += grouped(static_cast<std::size_t>(line.units_per_second)) + " " + line.unit + "/s  ";
  text += time_text(line.seconds_left);
  return text.substr(0, std::min<std::size_t>(text.find_last_not_of(' ') + 1, 79));
}

Progress::Progress() : terminal_(!Silence::here() && !MpiWorld::under_mpirun() && ::isatty(STDOUT_FILENO) == 1) {}

void Progress::write(const std::string& line) {
  print("\r\033[K%s", line.substr(0, 79).c_str());
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  std::fputs("\r\033[K", stdout);  // a terminal that is gone is no failure of the training
  std::fflush(stdout);
  shown_ = false;
}

}  // namespace windrow::program
