#include "program/output/text.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <iterator>

namespace windrow::program {

std::string formatted(const char* format, ...) {
  std::va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  std::string text(static_cast<std::size_t>(std::max(std::vsnprintf(nullptr, 0, format, arguments), 0)), ' ');
  std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  va_end(arguments);
  return text;
}

std::string in_quotes(const std::string& text) { return "'" + text + "'"; }

std::string joined(const std::vector<std::string>& words, const std::string& between) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) text += (i == 0 ? "" : between) + words[i];
  return text;
}

std::string in_one_line(std::string text) {
  for (char& c : text) c = c == '\n' || c == '\r' ? ' ' : c;
  return text;
}

std::string grouped(std::size_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

std::string counted(std::size_t number, const std::string& what) {
  return grouped(number) + " " + what + (number == 1 ? "" : "s");
}

std::string bytes_text(std::int64_t bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  return formatted("%.*f %s", unit == 0 || value >= 100 ? 0 : 1, value, units[unit]);
}

std::string seconds_text(double seconds) {
  const auto whole = static_cast<long>(std::lround(seconds));
  if (seconds < 60) return formatted("%.*f s", seconds < 10 ? 1 : 0, seconds);
  if (whole < 3600) return formatted("%ld min %ld s", whole / 60, whole % 60);
  return formatted("%ld h %ld min", whole / 3600, whole / 60 % 60);
}

std::string metric_text(const Metric& metric) {
  if (metric.unit == Metric::Unit::fraction) return formatted("%.1f %%", 100 * metric.value);
  return metric.value < 1e6 ? formatted("%.1f", metric.value) : formatted("%.3e", metric.value);
}

std::string loss_text(double loss) { return std::abs(loss) < 1e6 ? formatted("%.4f", loss) : formatted("%.4e", loss); }

std::string version() { return WINDROW_VERSION; }
std::string version_text() { return version() + ", commit " + source_commit(); }

}  // namespace windrow::program
