#include "batching/svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "chart.h"

namespace windrow::perf {
namespace {

using program::escaped;

// The size and the margins of a plot, in pixels.
constexpr double width = 860, height = 420;
constexpr double left = 76, right = 190, top = 44, bottom = 74;
constexpr double inner_width = width - left - right, inner_height = height - top - bottom;

/// Colours that colour-blind readers can distinguish too (Okabe and Ito 2008).
constexpr std::array colours = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7f7f7f", "#000000"};

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

std::string label(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

struct Spot {
  double x, y;
};

/// Draws one plot, at a vertical offset in the picture.
class Drawing {
 public:
  Drawing(const Plot& plot, double from_top) : plot_(plot), from_top_(from_top), ticks_(ticks_of(plot)) {}

  std::string draw() {
    text({left, top - 18}, plot_.title, "font-size=\"15\" font-weight=\"bold\"");
    draw_axes();
    if (plot_.form == Plot::Form::lines) {
      for (std::size_t s = 0; s < plot_.series.size(); ++s) draw_line(s);
    } else {
      draw_bars();
    }
    draw_legend();
    return std::move(out_);
  }

 private:
  static std::vector<double> ticks_of(const Plot& plot) {
    double least = INFINITY, most = 0;
    for (std::size_t place = 0; place < plot.places.size(); ++place) {
      double sum = 0;
      for (const Plot::Series& series : plot.series) {
        const double value = place < series.values.size() ? series.values[place] : NAN;
        if (!std::isfinite(value)) continue;
        sum += value;
        if (value > 0) least = std::min(least, value);
        if (plot.form != Plot::Form::stacked) most = std::max(most, value);
      }
      if (plot.form == Plot::Form::stacked) most = std::max(most, sum);
    }
    if (plot.scale == Plot::Scale::linear || !std::isfinite(least)) return linear_ticks(most);
    return logarithmic_ticks(least, most);
  }

  bool logarithmic() const { return ticks_.front() > 0; }
  double share(double value) const {
    const double low = ticks_.front(), high = ticks_.back();
    if (logarithmic()) return value <= low ? 0 : std::log(value / low) / std::log(high / low);
    return (value - low) / (high - low);
  }
  double y_of(double value) const { return top + inner_height * (1 - share(value)); }
  double pitch() const { return inner_width / static_cast<double>(std::max<std::size_t>(plot_.places.size(), 1)); }
  double x_of(std::size_t place) const { return left + pitch() * (static_cast<double>(place) + 0.5); }
  static const char* colour(std::size_t series) { return colours[series % colours.size()]; }

  void text(Spot at, const std::string& words, const std::string& style) {
    out_ += "<text x=\"" + number(at.x) + "\" y=\"" + number(from_top_ + at.y) + "\" " + style + ">" + escaped(words) +
            "</text>\n";
  }
  void line(Spot from, Spot to, const std::string& style) {
    out_ += "<line x1=\"" + number(from.x) + "\" y1=\"" + number(from_top_ + from.y) + "\" x2=\"" + number(to.x) +
            "\" y2=\"" + number(from_top_ + to.y) + "\" " + style + "/>\n";
  }
  void box(Spot corner, double wide, double high, const std::string& fill) {
    out_ += "<rect x=\"" + number(corner.x) + "\" y=\"" + number(from_top_ + corner.y) + "\" width=\"" + number(wide) +
            "\" height=\"" + number(high) + "\" fill=\"" + fill + "\"/>\n";
  }

  void draw_axes() {
    for (const double tick : ticks_) {
      line({left, y_of(tick)}, {left + inner_width, y_of(tick)}, "stroke=\"#dddddd\"");
      text({left - 8, y_of(tick) + 4}, label(tick), "text-anchor=\"end\"");
    }
    const double floor = top + inner_height;
    line({left, top}, {left, floor}, "stroke=\"black\"");
    line({left, floor}, {left + inner_width, floor}, "stroke=\"black\"");
    for (std::size_t place = 0; place < plot_.places.size(); ++place) {
      line({x_of(place), floor}, {x_of(place), floor + 5}, "stroke=\"black\"");
      text({x_of(place), floor + 20}, plot_.places[place], "text-anchor=\"middle\"");
    }
    text({left + inner_width / 2, floor + 46}, plot_.x, "text-anchor=\"middle\"");
    const std::string middle = number(from_top_ + top + inner_height / 2);
    out_ += "<text transform=\"rotate(-90 18 " + middle + ")\" x=\"18\" y=\"" + middle + "\" text-anchor=\"middle\">" +
            escaped(plot_.y) + "</text>\n";
  }

  void draw_line(std::size_t number_of) {
    const Plot::Series& series = plot_.series[number_of];
    std::string points, marks;
    for (std::size_t place = 0; place < std::min(series.values.size(), plot_.places.size()); ++place) {
      if (!std::isfinite(series.values[place])) continue;
      const std::string x = number(x_of(place)), y = number(from_top_ + y_of(series.values[place]));
      points += (points.empty() ? "" : " ") + x + "," + y;
      marks += "<circle cx=\"" + x + "\" cy=\"" + y + "\" r=\"3.5\" fill=\"" + colour(number_of) + "\"/>\n";
    }
    out_ += "<polyline points=\"" + points + "\" fill=\"none\" stroke-width=\"2\" stroke=\"" + colour(number_of) +
            "\"/>\n" + marks;
  }

  void draw_bars() {
    const bool stacked = plot_.form == Plot::Form::stacked;
    const double group = 0.8 * pitch();
    const double wide = stacked ? group : group / static_cast<double>(std::max<std::size_t>(plot_.series.size(), 1));
    for (std::size_t place = 0; place < plot_.places.size(); ++place) {
      double below = 0;
      for (std::size_t s = 0; s < plot_.series.size(); ++s) {
        const std::vector<double>& values = plot_.series[s].values;
        if (place >= values.size() || !std::isfinite(values[place])) continue;
        const double upper = y_of(below + values[place]);
        const double lower = stacked ? y_of(below) : top + inner_height;
        const double x = x_of(place) - group / 2 + (stacked ? 0 : wide * static_cast<double>(s));
        box({x, upper}, wide, lower - upper, colour(s));
        if (stacked) below += values[place];
      }
    }
  }

  void draw_legend() {
    double y = top + 8;
    for (std::size_t s = 0; s < plot_.series.size(); ++s, y += 20) {
      box({width - right + 16, y - 9}, 12, 12, colour(s));
      text({width - right + 34, y + 2}, plot_.series[s].name, "");
    }
  }

  const Plot& plot_;
  const double from_top_;
  const std::vector<double> ticks_;
  std::string out_;
};

}  // namespace

std::vector<double> logarithmic_ticks(double least, double most) {
  const int low = static_cast<int>(std::floor(std::log10(least) + 1e-9));
  const int high = std::max(static_cast<int>(std::ceil(std::log10(most) - 1e-9)), low + 1);
  std::vector<double> ticks;
  for (int power = low; power <= high; ++power) {
    for (const double times : {1, 2, 5}) {
      if (times > 1 && (high - low > 3 || power == high)) continue;
      ticks.push_back(times * std::pow(10, power));
    }
  }
  return ticks;
}

std::string svg(const std::vector<Plot>& plots) {
  const std::string all = number(height * static_cast<double>(plots.size()));
  std::string text = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + number(width) + "\" height=\"" + all +
                     "\" viewBox=\"0 0 " + number(width) + " " + all +
                     "\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" "
                     "fill=\"white\"/>\n";
  for (std::size_t p = 0; p < plots.size(); ++p) text += Drawing(plots[p], height * static_cast<double>(p)).draw();
  return text + "</svg>\n";
}

}  // namespace windrow::perf
