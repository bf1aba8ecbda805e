#include "program/output/chart.h"

#include <algorithm>
#include <cmath>

#include "program/output/text.h"

namespace windrow::program {
namespace {

// The size and the margins of a chart, in pixels at its natural size.
constexpr double width = 560, height = 300;
constexpr double left = 76, right = 16, top = 46, bottom = 48;
constexpr double inner_width = width - left - right, inner_height = height - top - bottom;
constexpr std::size_t colours = 4;  // of the style sheet
/// With more points than this, marks would hide the line.
constexpr std::size_t most_marks = 60;

/// The label of a tick, or of a point.
std::string label(double value) {
  if (std::abs(value) >= 1000 && std::abs(value) < 1e15 && value == std::floor(value)) {
    return (value < 0 ? "-" : "") + grouped(static_cast<std::size_t>(std::abs(value)));
  }
  return formatted("%.4g", value);
}

struct Range {
  double low = INFINITY, high = -INFINITY;

  void take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

/// A value of a series, drawn from `below` to `y`.
struct Point {
  std::size_t series;
  double x, below, y;
  std::string hint;
};

/// Draws one chart.
class Drawing {
 public:
  explicit Drawing(const Chart& chart) : chart_(chart) {
    std::vector<double> below;
    for (std::size_t s = 0; s < chart.series.size(); ++s) {
      const Chart::Series& series = chart.series[s];
      below.resize(std::max(below.size(), series.y.size()));
      for (std::size_t i = 0; i < series.y.size(); ++i) {
        if (!std::isfinite(series.x[i]) || !std::isfinite(series.y[i])) continue;
        const double from = chart.form == Chart::Form::stacked ? below[i] : 0;
        below[i] = from + series.y[i];
        points_.push_back(
            {s, series.x[i], from, below[i],
             "<title>" + escaped(series.name + ", " + chart.x + " " + label(series.x[i]) + ": " + label(series.y[i])) +
                 "</title>"});
      }
    }
    Range y;
    for (const Point& point : points_) {
      x_.take(point.x);
      y.take(point.y);
    }
    if (points_.empty()) return;
    if (bars() || y.low < 0.4 * y.high) y.low = std::min(y.low, 0.0);
    if (chart.top) y.high = *chart.top;
    ticks_ = linear_ticks(y.low, y.high);
    if (bars()) {
      const Chart::Series& first = chart.series.front();
      if (first.x.size() > 1) gap_ = (x_.high - x_.low) / static_cast<double>(first.x.size() - 1);
      x_ = {x_.low - gap_ / 2, x_.high + gap_ / 2};
    }
    if (x_.low == x_.high) x_ = {x_.low - 1, x_.high + 1};
  }

  std::string draw() {
    out_ = formatted("<svg class=\"chart\" viewBox=\"0 0 %.1f %.1f\" role=\"img\" aria-label=\"%s\">\n", width, height,
                     escaped(chart_.title).c_str());
    text(left, 18, chart_.title, "class=\"title\"");
    if (points_.empty()) {
      text(width / 2, height / 2, "nothing to show", "text-anchor=\"middle\"");
      return out_ + "</svg>\n";
    }
    draw_legend();
    draw_axes();
    for (std::size_t s = 0; s < chart_.series.size() && !bars(); ++s) draw_line(s);
    for (const Point& point : points_) {
      if (bars()) draw_bar(point);
    }
    return out_ + "</svg>\n";
  }

 private:
  bool bars() const { return chart_.form == Chart::Form::bars || chart_.form == Chart::Form::stacked; }
  double x_of(double value) const { return left + inner_width * (value - x_.low) / (x_.high - x_.low); }
  double y_of(double value) const {
    return top + inner_height * (1 - (value - ticks_.front()) / (ticks_.back() - ticks_.front()));
  }
  static std::size_t colour(std::size_t series) { return series % colours + 1; }

  void text(double x, double y, const std::string& words, const std::string& style) {
    out_ += formatted("<text x=\"%.1f\" y=\"%.1f\" %s>%s</text>\n", x, y, style.c_str(), escaped(words).c_str());
  }
  void line(double x1, double y1, double x2, double y2, const char* style) {
    out_ += formatted("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", x1, y1, x2, y2, style);
  }

  /// In a row below the title; nothing for a single series, which the y axis names.
  void draw_legend() {
    double x = left;
    for (std::size_t s = 0; s < chart_.series.size() && chart_.series.size() > 1; ++s) {
      out_ += formatted("<rect x=\"%.1f\" y=\"27\" width=\"10\" height=\"10\" rx=\"2\" class=\"fill c%zu\"/>\n", x,
                        colour(s));
      text(x + 15, 36, chart_.series[s].name, "");
      x += 32 + 6.2 * static_cast<double>(chart_.series[s].name.size());
    }
  }

  void draw_axes() {
    for (const double tick : ticks_) {
      line(left, y_of(tick), left + inner_width, y_of(tick), "grid");
      text(left - 8, y_of(tick) + 4, label(tick), "text-anchor=\"end\"");
    }
    const double floor = top + inner_height, middle = top + inner_height / 2;
    line(left, floor, left + inner_width, floor, "axis");
    for (const double tick : whole_ticks()) {
      if (tick < x_.low || tick > x_.high) continue;
      line(x_of(tick), floor, x_of(tick), floor + 4, "axis");
      text(x_of(tick), floor + 18, label(tick), "text-anchor=\"middle\"");
    }
    text(left + inner_width / 2, height - 10, chart_.x, "text-anchor=\"middle\" class=\"name\"");
    text(16, middle, chart_.y,
         formatted("transform=\"rotate(-90 16 %.1f)\" text-anchor=\"middle\" class=\"name\"", middle));
  }

  /// Of the x axis: epochs, levels and minibatches are whole numbers.
  std::vector<double> whole_ticks() const {
    constexpr double few = 13;
    if (x_.high - x_.low > few) return linear_ticks(x_.low, x_.high);
    std::vector<double> ticks;
    for (double tick = std::ceil(x_.low); tick <= x_.high; ++tick) ticks.push_back(tick);
    return ticks;
  }

  void draw_line(std::size_t series) {
    std::string points, marks;
    for (const Point& point : points_) {
      if (point.series != series) continue;
      points += formatted("%s%.1f,%.1f", points.empty() ? "" : " ", x_of(point.x), y_of(point.y));
      marks += formatted("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" class=\"fill c%zu\">%s</circle>\n", x_of(point.x),
                         y_of(point.y), colour(series), point.hint.c_str());
    }
    const bool faint = chart_.form == Chart::Form::faint_line && series == 0;
    out_ += formatted("<polyline points=\"%s\" class=\"line c%zu%s\"/>\n", points.c_str(), colour(series),
                      faint ? " faint" : "");
    if (!faint && chart_.series[series].y.size() <= most_marks) out_ += marks;
  }

  void draw_bar(const Point& point) {
    const double wide = std::min(0.8 * (x_of(gap_) - x_of(0)), 60.0);
    out_ += formatted("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"fill c%zu\">%s</rect>\n",
                      x_of(point.x) - wide / 2, y_of(point.y), wide, y_of(point.below) - y_of(point.y),
                      colour(point.series), point.hint.c_str());
  }

  const Chart& chart_;
  std::vector<Point> points_;  // those that are finite
  Range x_;
  double gap_ = 1;  // between bars
  std::vector<double> ticks_;
  std::string out_;
};

constexpr const char* style = R"(
:root { color-scheme: light dark; --paper: #ffffff; --card: #f7f8fa; --ink: #1c2430; --soft: #5c6775; --rule: #dde2e8;
  --c1: #1f6fb4; --c2: #cf5a1c; --c3: #2b8a5b; --c4: #9aa5b1; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181e; --card: #1c222b; --ink: #e6eaf0; --soft: #9aa6b4;
  --rule: #333c48; --c1: #62aef0; --c2: #f0945c; --c3: #62c796; --c4: #667281; } }
body { margin: 0 auto; max-width: 1160px; padding: 28px 24px 48px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
h1 { font-size: 24px; margin: 0 0 2px; } h2 { font-size: 17px; margin: 30px 0 10px; }
p { margin: 0 0 12px; color: var(--soft); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 18px 0; }
.card { background: var(--card); border: 1px solid var(--rule); border-radius: 8px; padding: 10px 14px; }
.card b { display: block; font-size: 20px; font-weight: 600; } .card span { color: var(--soft); font-size: 13px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 16px; }
.chart { width: 100%; height: auto; background: var(--card); border: 1px solid var(--rule); border-radius: 8px; }
.tables { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 0 32px; }
details { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
td, th { padding: 4px 10px 4px 0; border-bottom: 1px solid var(--rule); text-align: left; vertical-align: top; }
th { color: var(--soft); font-weight: 600; } .numbers td, .numbers th { text-align: right; }
td:last-child { overflow-wrap: anywhere; } .facts td:first-child { color: var(--soft); width: 38%; }
text { font-size: 12px; fill: var(--soft); } text.title { font-size: 14px; font-weight: 600; fill: var(--ink); }
.grid { stroke: var(--rule); } .axis { stroke: var(--soft); }
.line { fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; }
.faint { stroke-width: 1; opacity: 0.45; } .fill { fill: currentColor; }
.c1 { color: var(--c1); } .c2 { color: var(--c2); } .c3 { color: var(--c3); } .c4 { color: var(--c4); }
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

std::string svg(const Chart& chart) { return Drawing(chart).draw(); }

std::string page(const std::string& title, const std::string& body) {
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
         escaped(title) + "</title>\n<style>" + style + "</style>\n</head>\n<body>\n" + body + "</body>\n</html>\n";
}

std::vector<double> linear_ticks(double least, double most) {
  if (!(most > least)) {
    const double half = most == 0 ? 1 : std::abs(most) / 2;
    return linear_ticks(most - half, most + half);
  }
  const double extent = most - least, power = std::pow(10, std::floor(std::log10(extent)));
  const double times = extent / power;  // from 1 to 10
  const double step = power * (times <= 1 ? 0.2 : times <= 2 ? 0.5 : times <= 5 ? 1 : 2);
  const double first = std::floor(least / step + 1e-9);
  std::vector<double> ticks = {first * step};
  while (ticks.back() < most - 1e-9 * extent) ticks.push_back((first + static_cast<double>(ticks.size())) * step);
  return ticks;
}

}  // namespace windrow::program
