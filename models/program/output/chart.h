// Charts as SVG inside an HTML page, and the page around them. A page needs no other file and no script. Its colours
// follow the reader's choice of a light or a dark display. Equal charts give equal bytes.
#pragma once

#include <string>
#include <vector>

namespace windrow::program {

/// Lines with a mark for each point. A value. Points that are not finite are left out.
struct Chart {
  struct Series {
    std::string name;
    std::vector<double> x, y;  ///< of one length
  };

  std::string title, x, y;  ///< of the axes, with units
  std::vector<Series> series = {};
};

/// The chart as an <svg> element, which uses the style sheet of page(). It says "nothing to show" without points.
std::string svg(const Chart& chart);

/// A complete HTML page. `body` is HTML.
std::string page(const std::string& title, const std::string& body);
/// A text as HTML shows it.
std::string escaped(const std::string& text);

}  // namespace windrow::program
