// Host kernels of convolution and pooling.
//
// A convolution is one product for each image: the filters times a matrix that has the elements of each window in a
// column (Chellapilla, Puri and Simard 2006). So the result of an image does not depend on its batch, and nothing is
// compiled or cached for a shape. docs/ops.md compares this with oneDNN's convolutions.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "host/host.h"
#include "host/product.h"
#include "operators/attributes.h"
#include "windrow/ops/row_sums.h"

namespace windrow {
namespace {

using op::Window2d;
using As = Factor::As;

/// Memory for one image at a time, with padding around it.
class Padded {
 public:
  /// The number of elements beyond the end that may be read.
  static constexpr Index slack = 8;

  Padded(const Window2d& w, float padding)
      : w_(w),
        height_(w.height + 2 * w.padding),
        width_(w.width + 2 * w.padding),
        elements_(static_cast<std::size_t>(w.channels * height_ * width_ + slack), padding) {}

  /// Sets all elements, including the padding, to `value`.
  void fill(float value) { std::fill(elements_.begin(), elements_.end(), value); }
  void take(const float* image) {
    each_line([&](float* line, Index at) { std::copy_n(image + at, w_.width, line); });
  }
  void add_to(float* image) {
    each_line([&](const float* line, Index at) { add_scaled(image + at, line, w_.width, 1); });
  }

  /// The begin of the line of channel c that line r of a window at vertical position y covers.
  float* line(Index c, Index y, Index r) { return elements_.data() + (c * height_ + y * w_.stride + r) * width_; }

  /// Replaces each element by the maximum of itself and the element at that distance. Across the ends of lines and
  /// planes this gives meaningless values, but no window begins there.
  void take_larger_one(Index right, Index down) {
    const Index by = down * width_ + right;
    take_larger(elements_.data(), elements_.data() + by, static_cast<Index>(elements_.size()) - by);
  }

 private:
  /// Calls f(line, its begin in an image) for each line of the image, without its padding.
  template <class F>
  void each_line(F f) {
    Index at = 0;
    for (Index c = 0; c < w_.channels; ++c) {
      float* line = elements_.data() + (c * height_ + w_.padding) * width_ + w_.padding;
      for (Index y = 0; y < w_.height; ++y, at += w_.width, line += width_) f(line, at);
    }
  }

  const Window2d w_;
  const Index height_, width_;  // with padding
  std::vector<float> elements_;
};

/// Rows [begin, end) of window positions.
struct Strip {
  Index begin, end;
};

/// The elements that the windows of a strip cover: a column for each position, a row for each element of the window.
/// Owns the memory for one image and one strip. The size of strips is bounded, so large images take no more memory.
class Columns {
 public:
  explicit Columns(const Window2d& w)
      : image(w, 0),
        w_(w),
        across_(w.positions_across()),
        height_(std::clamp<Index>(strip_elements / (w.window() * across_), 1, w.positions_down())),
        elements_(std::make_unique_for_overwrite<float[]>(
            static_cast<std::size_t>(w.window() * height_ * across_ + Padded::slack))) {}

  /// Calls f(strip) for strips that cover all positions; the cut depends on the shape only.
  template <class F>
  void each_strip(F f) const {
    const Index down = w_.positions_down();
    for (Index y = 0; y < down; y += height_) f(Strip{y, std::min(y + height_, down)});
  }

  Matrix<float> matrix(Strip strip) const {
    const Index width = (strip.end - strip.begin) * across_;
    return {elements_.get(), w_.window(), width, width};
  }
  /// The part of a row of results, or of their gradients, that belongs to the strip: a row for each filter.
  template <class T>
  Matrix<T> part(T* row, Index filters, Strip strip) const {
    return {row + strip.begin * across_, filters, (strip.end - strip.begin) * across_, w_.positions()};
  }

  /// Fills the columns of the strip from the image.
  Matrix<const float> unfold(Strip strip) {
    each_line(strip, [&](float* line, const float* from) {
      if (w_.stride == 1) {  // in blocks of `slack` elements; the next line overwrites the excess
        for (Index i = 0; i < across_; i += Padded::slack) std::copy_n(from + i, Padded::slack, line + i);
      } else {
        for (Index i = 0; i < across_; ++i) line[i] = from[i * w_.stride];
      }
    });
    return matrix(strip);
  }

  /// Adds each element to the image at the position from which unfold() reads it.
  void fold(Strip strip) {
    each_line(strip, [&](const float* line, float* to) {
      if (w_.stride == 1) {
        for (Index i = 0; i < across_; ++i) to[i] += line[i];
      } else {
        for (Index i = 0; i < across_; ++i) to[i * w_.stride] += line[i];
      }
    });
  }

  Padded image;

 private:
  static constexpr Index strip_elements = Index{1} << 18;  // 1 MiB; half or four times this is as fast

  /// Calls f(line, position in the image) for each element of the window and each line of positions in the strip.
  template <class F>
  void each_line(Strip strip, F f) {
    float* line = elements_.get();
    for (Index c = 0; c < w_.channels; ++c) {
      for (Index r = 0; r < w_.window_height; ++r) {
        for (Index s = 0; s < w_.window_width; ++s) {
          for (Index y = strip.begin; y < strip.end; ++y, line += across_) f(line, image.line(c, y, r) + s);
        }
      }
    }
  }

  const Window2d w_;
  const Index across_, height_;  // of a strip
  const std::unique_ptr<float[]> elements_;
};

void conv2d(const HostCall& k) {
  Columns columns(window_of(k.attributes));
  for (Index r = 0; r < k.out.rows; ++r) {
    columns.image.take(k.in[0].row(r));
    columns.each_strip([&](Strip strip) {
      multiply({.x = {k.in[1]},
                .y = {columns.unfold(strip)},
                .out = columns.part(k.out.row(r), k.in[1].rows, strip),
                .write = k.write});
    });
  }
}

void conv2d_data_gradient(const HostCall& k) {
  zero_unless_adding(k);
  Columns columns(window_of(k.attributes));
  for (Index r = 0; r < k.out.rows; ++r) {
    columns.image.fill(0);
    columns.each_strip([&](Strip strip) {
      multiply({.x = {k.in[1], As::transposed},
                .y = {columns.part(k.in[0].row(r), k.in[1].rows, strip)},
                .out = columns.matrix(strip)});
      columns.fold(strip);
    });
    columns.image.add_to(k.out.row(r));
  }
}

void conv2d_filter_gradient(const HostCall& k) {
  zero_unless_adding(k);
  Columns columns(window_of(k.attributes));
  MatrixSum sum(k.out, k.in[0].rows);
  for (Index r = 0; r < k.in[0].rows; ++r) {
    columns.image.take(k.in[0].row(r));
    const Matrix<float> out = sum.next();
    columns.each_strip([&](Strip strip) {
      multiply({.x = {columns.part(k.in[1].row(r), k.out.rows, strip)},
                .y = {columns.unfold(strip), As::transposed},
                .out = out,
                .write = Write::add});
    });
  }
  sum.finish();
}

/// Writes n elements of `from`, at distance `stride`, to `out`, or adds them.
void put_each(float* out, const float* from, Index n, Index stride, Write write) {
  if (write == Write::add) {
    for (Index i = 0; i < n; ++i) out[i] += from[i * stride];
  } else {
    for (Index i = 0; i < n; ++i) out[i] = from[i * stride];
  }
}

void max_pool2d(const HostCall& k) {
  const Window2d w = window_of(k.attributes);
  const Index down = w.positions_down(), across = w.positions_across();
  constexpr float nothing = -std::numeric_limits<float>::infinity();
  Padded image(w, nothing);
  for (Index r = 0; r < k.out.rows; ++r) {
    if (w.padding > 0) image.fill(nothing);  // the maxima reach into it
    image.take(k.in[0].row(r));
    for (Index i = 1; i < w.window_width; ++i) image.take_larger_one(1, 0);
    for (Index i = 1; i < w.window_height; ++i) image.take_larger_one(0, 1);
    float* out = k.out.row(r);
    for (Index c = 0; c < w.channels; ++c) {
      for (Index y = 0; y < down; ++y, out += across) put_each(out, image.line(c, y, 0), across, w.stride, k.write);
    }
  }
}

/// The index in a plane of the first NaN, or otherwise of the first maximum, in the window at a position.
Index first_maximum(const Window2d& w, const float* plane, Index down, Index across) {
  const Index top = down * w.stride - w.padding, left = across * w.stride - w.padding;
  const Index first_x = std::max<Index>(left, 0), last_x = std::min(left + w.window_width, w.width);
  Index best = std::max<Index>(top, 0) * w.width + first_x;
  float largest = plane[best];
  for (Index y = std::max<Index>(top, 0); y < std::min(top + w.window_height, w.height); ++y) {
    for (Index at = y * w.width + first_x; at < y * w.width + last_x; ++at) {
      const float value = plane[at];
      const bool better = !(value <= largest) && !std::isnan(largest);
      best = better ? at : best;
      largest = better ? value : largest;
    }
  }
  return best;
}

/// For one plane: adds each element of g to `out` at the maximum of its window.
void pool_gradient(const Window2d& w, const float* plane, const float* g, float* out) {
  const Index across = w.positions_across(), down = w.positions_down();
  for (Index y = 0; y < down; ++y) {
    for (Index x = 0; x < across; ++x) out[first_maximum(w, plane, y, x)] += *g++;
  }
}

void max_pool2d_gradient(const HostCall& k) {
  zero_unless_adding(k);
  const Window2d w = window_of(k.attributes);
  const Index plane = w.height * w.width, positions = w.positions();
  for (Index r = 0; r < k.out.rows; ++r) {
    for (Index c = 0; c < w.channels; ++c) {
      pool_gradient(w, k.in[0].row(r) + c * plane, k.in[1].row(r) + c * positions, k.out.row(r) + c * plane);
    }
  }
}

void add_channel_bias(const HostCall& k) {
  const Index channels = k.in[1].width, positions = k.out.width / channels;
  for (Index r = 0; r < k.out.rows; ++r) {
    for (Index c = 0; c < channels; ++c) {
      const float bias = k.in[1].row(0)[c], *x = k.in[0].row(r) + c * positions;
      float* out = k.out.row(r) + c * positions;
      for (Index p = 0; p < positions; ++p) out[p] = x[p] + bias + (k.write == Write::add ? out[p] : 0);
    }
  }
}

void add_channel_bias_gradient(const HostCall& k) {
  zero_unless_adding(k);
  const Index positions = k.in[0].width / k.out.width;
  add_rows(k.out.data, k.out.width, k.in[0].rows, [&](Index r, Index begin, float* part, Index n) {
    for (Index c = 0; c < n; ++c) part[c] += sum_elements(k.in[0].row(r) + (begin + c) * positions, positions);
  });
}

}  // namespace

void add_host_images(KernelTable<float>& table) {
  table.add(op::conv2d, conv2d);
  table.add(op::conv2d_data_gradient, conv2d_data_gradient);
  table.add(op::conv2d_filter_gradient, conv2d_filter_gradient);
  table.add(op::max_pool2d, max_pool2d);
  table.add(op::max_pool2d_gradient, max_pool2d_gradient);
  table.add(op::add_channel_bias, add_channel_bias);
  table.add(op::add_channel_bias_gradient, add_channel_bias_gradient);
}

}  // namespace windrow
