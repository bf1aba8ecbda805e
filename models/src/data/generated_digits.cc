// Digits drawn as strokes, with the variation that makes handwriting hard to read.
#include <algorithm>
#include <cmath>

#include "data/draws.h"
#include "windrow/models/datasets.h"

namespace windrow {
namespace {

struct Point {
  double x, y;
};
using Stroke = std::vector<Point>;

/// Part of an ellipse, from one angle to another, in turns; 0 is to the right, a quarter is down.
Stroke arc(Point centre, Point radius, double from, double to) {
  constexpr int pieces = 16;
  Stroke stroke;
  for (int i = 0; i <= pieces; ++i) {
    const double angle = 2 * 3.14159265358979323846 * (from + (to - from) * i / pieces);
    stroke.push_back({centre.x + radius.x * std::cos(angle), centre.y + radius.y * std::sin(angle)});
  }
  return stroke;
}

/// The strokes of a digit in a square from -1 to 1; y grows downwards.
std::vector<Stroke> strokes_of(int digit) {
  switch (digit) {
    case 0:
      return {arc({0, 0}, {0.6, 0.9}, 0, 1)};
    case 1:
      return {{{-0.3, -0.6}, {0.05, -0.9}, {0.05, 0.9}}};
    case 2:
      return {arc({0, -0.4}, {0.55, 0.5}, -0.5, 0.12), {{0.4, -0.05}, {-0.55, 0.9}, {0.6, 0.9}}};
    case 3:
      return {arc({-0.05, -0.45}, {0.5, 0.45}, -0.42, 0.25), arc({-0.05, 0.45}, {0.55, 0.45}, -0.25, 0.42)};
    case 4:
      return {{{0.2, -0.9}, {-0.6, 0.3}, {0.6, 0.3}}, {{0.3, -0.2}, {0.3, 0.9}}};
    case 5:
      return {{{0.5, -0.9}, {-0.4, -0.9}, {-0.45, -0.1}}, arc({-0.05, 0.35}, {0.55, 0.55}, -0.37, 0.4)};
    case 6:
      return {arc({0.3, 0.2}, {0.85, 1.1}, -0.29, -0.5), arc({0, 0.4}, {0.55, 0.5}, 0, 1)};
    case 7:
      return {{{-0.55, -0.9}, {0.55, -0.9}, {-0.1, 0.9}}};
    case 8:
      return {arc({0, -0.45}, {0.45, 0.42}, 0, 1), arc({0, 0.45}, {0.55, 0.45}, 0, 1)};
    default:
      return {arc({0, -0.4}, {0.5, 0.5}, 0, 1), {{0.5, -0.4}, {0.45, 0.3}, {0.2, 0.9}}};
  }
}

/// The squared distance between a point and the line from a to b.
double squared_distance(Point p, Point a, Point b) {
  const double dx = b.x - a.x, dy = b.y - a.y, length = dx * dx + dy * dy;
  const double along = length == 0 ? 0 : std::clamp(((p.x - a.x) * dx + (p.y - a.y) * dy) / length, 0.0, 1.0);
  const double x = a.x + along * dx - p.x, y = a.y + along * dy - p.y;
  return x * x + y * y;
}

/// One image of a digit.
class Drawing {
 public:
  Drawing(int digit, Draws& draws) : strokes_(strokes_of(digit)) {
    const auto between = [&](double low, double high) { return low + (high - low) * draws.share(); };
    const double width = between(5.5, 9), height = between(7.5, 10.5), slant = between(-0.35, 0.35);
    const double bend = between(-0.15, 0.15), wave = between(0, 6), x = between(12, 15), y = between(12, 15);
    thickness_ = between(0.8, 1.7);
    for (Stroke& stroke : strokes_) {
      for (Point& p : stroke) {
        const double bent = p.x + bend * std::sin(3 * p.y + wave) - slant * p.y;
        p = {x + width * bent, y + height * p.y};
      }
    }
  }

  /// Ink at a place, from 0 to 1: full within the stroke, and fading over one pixel at its edge.
  double ink(Point place) const {
    double nearest = 1e9;
    for (const Stroke& stroke : strokes_) {
      for (std::size_t i = 0; i + 1 < stroke.size(); ++i) {
        nearest = std::min(nearest, squared_distance(place, stroke[i], stroke[i + 1]));
      }
    }
    return std::clamp(thickness_ + 0.5 - std::sqrt(nearest), 0.0, 1.0);
  }

 private:
  std::vector<Stroke> strokes_;
  double thickness_ = 1;  // half the width of a stroke, in pixels
};

}  // namespace

LabelledImages generate_digits(std::size_t count, std::uint64_t seed) {
  constexpr int side = 28;
  LabelledImages images{.height = side, .width = side};
  images.pixels.reserve(count * side * side);
  Draws draws(seed);
  for (std::size_t i = 0; i < count; ++i) {
    const int digit = draws.below(10);
    const Drawing drawing(digit, draws);
    images.labels.push_back(static_cast<std::uint8_t>(digit));
    for (int y = 0; y < side; ++y) {
      for (int x = 0; x < side; ++x) {
        const double noise = draws.chance(0.04) ? 0.5 * draws.share() : 0;
        const double ink = std::max(drawing.ink({static_cast<double>(x), static_cast<double>(y)}), noise);
        images.pixels.push_back(static_cast<std::uint8_t>(std::lround(255 * ink)));
      }
    }
  }
  return images;
}

}  // namespace windrow
