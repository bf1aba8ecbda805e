#include "program/output/chart.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "program/output/text.h"

namespace windrow::program {
namespace {

// The size and the margins of a chart, in pixels at its natural size.
constexpr double width = 560, height = 300;
constexpr double left = 76, right = 16, top = 46, bottom = 48;
constexpr std::array colours = {"#3b8fd9", "#d9742f", "#2f9e68", "#8f99a5"};  // readable on light and on dark

std::string label(double value) {
  const bool long_integer = std::abs(value) >= 1000 && std::abs(value) < 1e15 && value == std::floor(value);
  if (!long_integer) return formatted("%.4g", value);
  return (value < 0 ? "-" : "") + grouped(static_cast<std::size_t>(std::abs(value)));
}

/// An axis from its first tick to its last. Ticks are multiples of 1, 2 or 5 times a power of ten.
class Axis {
 public:
  /// The axis contains `low` and `high`. `finest`: the least distance of ticks. It is drawn from pixel `from` to `to`.
  Axis(double low, double high, double finest, double from, double to) : from_(from), to_(to) {
    if (!(high > low)) high = low + 1;
    const double power = std::pow(10, std::floor(std::log10(high - low))), times = (high - low) / power;
    const double step = std::max(power * (times <= 1 ? 0.2 : times <= 2 ? 0.5 : times <= 5 ? 1 : 2), finest);
    const double first = std::floor(low / step + 1e-9);
    do {
      ticks_.push_back((first + static_cast<double>(ticks_.size())) * step);
    } while (ticks_.back() < high - 1e-9 * step);
  }

  const std::vector<double>& ticks() const { return ticks_; }
  double pixel(double value) const {
    return from_ + (to_ - from_) * (value - ticks_.front()) / (ticks_.back() - ticks_.front());
  }

 private:
  const double from_, to_;
  std::vector<double> ticks_;
};

std::string text_at(double x, double y, const std::string& words, const std::string& style = "") {
  return formatted("<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, style.c_str()) + escaped(words) + "</text>\n";
}

std::string line_between(double x1, double y1, double x2, double y2) {
  return formatted("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", x1, y1, x2, y2);
}

constexpr const char* centred = "text-anchor=\"middle\"";

std::string axes_of(const Chart& chart, const Axis& x, const Axis& y) {
  std::string out;
  for (const double tick : y.ticks()) {
    out += line_between(left, y.pixel(tick), width - right, y.pixel(tick)) +
           text_at(left - 8, y.pixel(tick) + 4, label(tick), "text-anchor=\"end\"");
  }
  for (const double tick : x.ticks()) {
    out += line_between(x.pixel(tick), height - bottom, x.pixel(tick), height - bottom + 4) +
           text_at(x.pixel(tick), height - bottom + 18, label(tick), centred);
  }
  const double middle = (top + height - bottom) / 2;
  return out + text_at((left + width - right) / 2, height - 10, chart.x, centred) +
         text_at(16, middle, chart.y, formatted("transform=\"rotate(-90 16 %.1f)\" %s", middle, centred));
}

constexpr const char* style = R"(
:root { color-scheme: light dark; }
body { margin: 0 auto; max-width: 1160px; padding: 28px 24px 48px; font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; } h2 { font-size: 17px; }
.charts, .tables { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 16px; }
details { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
td, th { padding: 4px 10px 4px 0; border-bottom: 1px solid #8886; text-align: left; vertical-align: top; }
.numbers td, .numbers th { text-align: right; } td:last-child { overflow-wrap: anywhere; }
text { font-size: 12px; fill: currentColor; }
line { stroke: #8886; } polyline { fill: none; stroke-width: 2; }
)";

}  // namespace

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const char* const entity = c == '&'   ? "&amp;"
                               : c == '<' ? "&lt;"
                               : c == '>' ? "&gt;"
                               : c == '"' ? "&quot;"
                                          : nullptr;
    result += entity != nullptr ? entity : std::string(1, c);
  }
  return result;
}

std::string svg(const Chart& chart) {
  std::string out = formatted("<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"", width, height) +
                    escaped(chart.title) + "\">\n" + text_at(left, 18, chart.title, "font-weight=\"600\"");
  struct Point {
    std::size_t series;
    double x, y;
  };
  std::vector<Point> points;  // those that are finite
  for (std::size_t s = 0; s < chart.series.size(); ++s) {
    const auto& [name, x, y] = chart.series[s];
    for (std::size_t i = 0; i < y.size(); ++i) {
      if (std::isfinite(x[i]) && std::isfinite(y[i])) points.push_back({s, x[i], y[i]});
    }
  }
  if (points.empty()) return out + text_at(width / 2, height / 2, "nothing to show", centred) + "</svg>\n";
  const auto [first, last] = std::ranges::minmax(points, {}, &Point::x);
  const auto [lowest, highest] = std::ranges::minmax(points, {}, &Point::y);
  const Axis x(first.x, last.x, 1, left, width - right);  // epochs, levels and minibatches are whole numbers
  const Axis y(lowest.y < 0.4 * highest.y ? std::min(lowest.y, 0.0) : lowest.y, highest.y, 0, height - bottom, top);
  out += axes_of(chart, x, y);
  double place = left;  // in the legend
  for (std::size_t s = 0; s < chart.series.size(); ++s) {
    const std::string& name = chart.series[s].name;
    std::string line, marks;
    for (const Point& point : points) {
      if (point.series != s) continue;
      line += formatted("%s%.1f,%.1f", line.empty() ? "" : " ", x.pixel(point.x), y.pixel(point.y));
      marks += formatted("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2\"><title>", x.pixel(point.x), y.pixel(point.y)) +
               escaped(name + ", " + chart.x + " " + label(point.x) + ": " + label(point.y)) + "</title></circle>\n";
    }
    const char* const colour = colours[s % colours.size()];
    out += formatted("<g fill=\"%s\" stroke=\"%s\">\n<polyline points=\"%s\"/>\n", colour, colour, line.c_str()) +
           marks + formatted("<rect x=\"%.1f\" y=\"27\" width=\"10\" height=\"10\"/></g>\n", place) +
           text_at(place + 15, 36, name);
    place += 32 + 6.2 * static_cast<double>(name.size());
  }
  return out + "</svg>\n";
}

std::string page(const std::string& title, const std::string& body) {
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
         escaped(title) + "</title>\n<style>" + style + "</style>\n</head>\n<body>\n" + body + "</body>\n</html>\n";
}

}  // namespace windrow::program
