// Charts as SVG inside an HTML page, and the page around them. A page needs no other file and no script. Its colours
// follow the reader's choice of a light or a dark display. Equal charts give equal bytes.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace windrow::program {

/// A value. Points that are not finite are left out.
struct Chart {
  enum class Form {
    lines,
    faint_line,  ///< the first series is drawn faintly, behind the others
    bars,        ///< one series; a bar for each point
    stacked,     ///< the bars of all series on one another; they have the same x
  };
  struct Series {
    std::string name;
    std::vector<double> x, y;  ///< of one length
  };

  std::string title, x, y;  ///< of the axes, with units
  Form form = Form::lines;
  std::vector<Series> series = {};
  std::optional<double> top = {};  ///< the end of the y axis, if it does not follow from the points
};

/// The chart as an <svg> element, which uses the style sheet of page(). It says "nothing to show" without points.
std::string svg(const Chart& chart);

/// A complete HTML page. `body` is HTML.
std::string page(const std::string& title, const std::string& body);
/// A text as HTML shows it.
std::string escaped(const std::string& text);

/// The ticks of an axis: multiples of 1, 2 or 5 times a power of ten, the first at `least` or below, the last at `most`
/// or above. From 0 they are four to six.
std::vector<double> linear_ticks(double least, double most);

}  // namespace windrow::program
