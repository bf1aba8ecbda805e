#include "program/output/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "program/output/program.h"
#include "windrow/comm/mpi.h"

namespace windrow::program {
namespace {

/// "1:02:03", "2:03", or nothing.
std::string time_text(double seconds) {
  if (!std::isfinite(seconds) || seconds > 1e6) return {};
  const auto all = static_cast<long>(std::ceil(seconds));
  const long hours = all / 3600, minutes = all / 60 % 60, rest = all % 60;
  if (hours > 0) return formatted("%ld:%02ld:%02ld left", hours, minutes, rest);
  return formatted("%ld:%02ld left", minutes, rest);
}

}  // namespace

std::string to_string(const ProgressLine& line, std::size_t width) {
  const std::size_t of = std::max<std::size_t>(line.of, 1), done = std::min(line.samples, of);
  std::string text = formatted("epoch %zu/%zu  %2zu %%", line.epoch, line.epochs, 100 * done / of);
  const std::string speed = grouped(static_cast<std::size_t>(line.units_per_second)) + " " + line.unit + "/s";
  for (const std::string& more :
       {time_text(line.seconds_left), line.loss == 0 ? "" : "loss " + loss_text(line.loss), speed}) {
    if (text.size() + 2 + more.size() > width) break;
    if (!more.empty()) text += "  " + more;
  }
  return fitted(text, width);
}

std::string fitted(const std::string& text, std::size_t width) {
  std::size_t characters = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80;
    if (begins && ++characters > width) return text.substr(0, i);
  }
  return text;
}

EpochTable::EpochTable(Trainer& trainer, const Workload& workload)
    : columns_{"epoch", "training loss"}, workload_(workload) {
  for (const std::string& name : trainer.metric_names()) {
    columns_.push_back((columns_.size() == 2 ? "validation: " : "") + name);
  }
  columns_.push_back(workload.kind->unit + "/s");
}

void EpochTable::print_epoch(std::uint64_t epoch, const Trainer::Pass& pass, const std::vector<Metric>& score) const {
  std::vector<std::string> cells = {std::to_string(epoch), loss_text(pass.loss)};
  for (const Metric& metric : score) {
    cells.push_back(workload_.validation.empty() ? "-" : metric_text(metric));  // without a validation set
  }
  cells.push_back(std::to_string(std::llround(pass.units_per_second())));
  print_row(cells);
}

void EpochTable::print_row(const std::vector<std::string>& cells) const {
  std::string row;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::size_t width = i == 0 ? 5 : std::max<std::size_t>(columns_[i].size(), 8);
    row += (i == 0 ? "" : "  ") + std::string(width - std::min(width, cells[i].size()), ' ') + cells[i];
  }
  print_text(row + "\n");
}

Progress::Form Progress::form_here() {
  if (Silence::here()) return Form::none;
  return !MpiWorld::under_mpirun() && ::isatty(STDOUT_FILENO) == 1 ? Form::terminal : Form::log;
}

Progress::Progress() : next_(form_ == Form::terminal ? Clock::time_point{} : Clock::now() + std::chrono::seconds(4)) {}

/// Without the last column, in which some terminals begin a new line.
std::size_t Progress::width() const {
  winsize size{};
  if (form_ != Form::terminal || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 79;
  return std::max<std::size_t>(size.ws_col, 2) - 1;
}

void Progress::write(const std::string& line) {
  if (form_ == Form::log) return print_text(line + "\n");
  print("\r\033[K%s", line.c_str());
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  std::fputs("\r\033[K", stdout);  // a closed terminal does not fail the training
  std::fflush(stdout);
  shown_ = false;
}

}  // namespace windrow::program
