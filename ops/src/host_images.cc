// Host kernels of convolution and pooling.
//
// A convolution is a product an image: the filters times what each window covers, written out as a column (Chellapilla,
// Puri and Simard 2006). So what an image gives does not depend on the batch that it is in, and nothing is compiled or
// kept for a shape. docs/design.md compares it with oneDNN's own convolutions.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "host.h"
#include "host_product.h"
#include "images.h"

namespace windrow {
namespace {

using op::Window2d;
using As = Factor::As;

/// Rows [begin, end) of the positions of a window.
struct Strip {
  Index begin, end;
};

/// ceil(x / y), or 0 if that is negative; y > 0.
Index positive_ceil(Index x, Index y) { return x <= 0 ? 0 : (x + y - 1) / y; }

/// What the windows of a strip cover: a column for each position, a row for each place in the window. Owns the memory
/// for one strip, which is cut so that large images take no more than small ones.
class Columns {
 public:
  explicit Columns(const Window2d& w)
      : w_(w),
        height_(std::clamp<Index>(strip_elements / (w.window() * w.positions_across()), 1, w.positions_down())),
        elements_(std::make_unique_for_overwrite<float[]>(
            static_cast<std::size_t>(w.window() * height_ * w.positions_across()))) {}

  /// Calls f(strip) for strips that cover all positions, cut by the shape alone.
  template <class F>
  void each_strip(F f) const {
    for (Index y = 0; y < w_.positions_down(); y += height_) f(Strip{y, std::min(y + height_, w_.positions_down())});
  }

  Matrix<float> matrix(Strip strip) const {
    const Index width = (strip.end - strip.begin) * w_.positions_across();
    return {elements_.get(), w_.window(), width, width};
  }
  /// The part of a row of results, or of their gradients, that belongs to the strip: a row for each filter.
  template <class T>
  Matrix<T> part(T* row, Index filters, Strip strip) const {
    return {row + strip.begin * w_.positions_across(), filters, (strip.end - strip.begin) * w_.positions_across(),
            w_.positions()};
  }

  Matrix<const float> unfold(const float* image, Strip strip) const {
    each_line(strip, [&](float* line, const Run& run) {
      std::fill(line, line + run.begin, 0.0f);
      if (w_.stride == 1) {
        std::copy_n(image + run.from, run.end - run.begin, line + run.begin);
      } else {
        for (Index i = run.begin; i < run.end; ++i) line[i] = image[run.from + (i - run.begin) * w_.stride];
      }
      std::fill(line + run.end, line + w_.positions_across(), 0.0f);
    });
    return matrix(strip);
  }

  /// Adds each element to where unfold() would take it from.
  void fold(Strip strip, float* image) const {
    each_line(strip, [&](const float* line, const Run& run) {
      float* to = image + run.from;
      if (w_.stride == 1) {
        for (Index i = run.begin; i < run.end; ++i) to[i - run.begin] += line[i];
      } else {
        for (Index i = run.begin; i < run.end; ++i) to[(i - run.begin) * w_.stride] += line[i];
      }
    });
  }

 private:
  static constexpr Index strip_elements = Index{1} << 18;  // a megabyte; half or four times that is as fast

  /// Of a line of positions, those that meet the image: the first at its element `from`, each a stride further.
  struct Run {
    Index begin, end, from;
  };

  /// The run of place (y, s) of the windows; y is the row of the image, which may be outside.
  Run run_of(Index c, Index y, Index s) const {
    if (y < 0 || y >= w_.height) return {0, 0, 0};
    const Index end = std::min(positive_ceil(w_.width + w_.padding - s, w_.stride), w_.positions_across());
    const Index begin = std::min(positive_ceil(w_.padding - s, w_.stride), end);
    return {begin, end, (c * w_.height + y) * w_.width + begin * w_.stride + s - w_.padding};
  }

  /// Calls f(line, run) for each line of positions in the strip and each place in the window.
  template <class F>
  void each_line(Strip strip, F f) const {
    float* line = elements_.get();
    for (Index place = 0; place < w_.window(); ++place) {
      const Index s = place % w_.window_width, r = place / w_.window_width % w_.window_height;
      const Index c = place / (w_.window_width * w_.window_height);
      for (Index y = strip.begin; y < strip.end; ++y, line += w_.positions_across()) {
        f(line, run_of(c, y * w_.stride + r - w_.padding, s));
      }
    }
  }

  const Window2d w_;
  const Index height_;  // of a strip
  const std::unique_ptr<float[]> elements_;
};

void conv2d(const HostCall& k) {
  const Columns columns(window_of(k.attributes));
  for (Index r = 0; r < k.out.rows; ++r) {
    columns.each_strip([&](Strip strip) {
      multiply({.x = {k.in[1]},
                .y = {columns.unfold(k.in[0].row(r), strip)},
                .out = columns.part(k.out.row(r), k.in[1].rows, strip),
                .write = k.write});
    });
  }
}

void conv2d_data_gradient(const HostCall& k) {
  zero_unless_adding(k);
  const Columns columns(window_of(k.attributes));
  for (Index r = 0; r < k.out.rows; ++r) {
    columns.each_strip([&](Strip strip) {
      multiply({.x = {k.in[1], As::transposed},
                .y = {columns.part(k.in[0].row(r), k.in[1].rows, strip)},
                .out = columns.matrix(strip)});
      columns.fold(strip, k.out.row(r));
    });
  }
}

void conv2d_filter_gradient(const HostCall& k) {
  zero_unless_adding(k);
  const Columns columns(window_of(k.attributes));
  for (Index r = 0; r < k.in[0].rows; ++r) {
    columns.each_strip([&](Strip strip) {
      multiply({.x = {columns.part(k.in[1].row(r), k.out.rows, strip)},
                .y = {columns.unfold(k.in[0].row(r), strip), As::transposed},
                .out = k.out,
                .write = Write::add});
    });
  }
}

/// Images one after the other, each brought to the maxima of its windows.
class Pool {
 public:
  explicit Pool(const Window2d& w)
      : w_(w),
        height_(w.height + 2 * w.padding),
        width_(w.width + 2 * w.padding),
        padded_(static_cast<std::size_t>(w.channels * height_ * width_)) {}

  void run(const float* image, float* out, Write write) {
    fill(image);
    for (Index s = 1; s < w_.window_width; ++s) take_following(1);
    for (Index r = 1; r < w_.window_height; ++r) take_following(width_);
    for (Index c = 0; c < w_.channels; ++c) {
      for (Index y = 0; y < w_.positions_down(); ++y, out += w_.positions_across()) {
        const float* line = padded_.data() + (c * height_ + y * w_.stride) * width_;
        for (Index x = 0; x < w_.positions_across(); ++x) {
          out[x] = line[x * w_.stride] + (write == Write::add ? out[x] : 0);
        }
      }
    }
  }

 private:
  void fill(const float* image) {
    if (w_.padding > 0) std::fill(padded_.begin(), padded_.end(), -std::numeric_limits<float>::infinity());
    for (Index c = 0; c < w_.channels; ++c) {
      for (Index y = 0; y < w_.height; ++y, image += w_.width) {
        std::copy_n(image, w_.width, padded_.data() + (c * height_ + y + w_.padding) * width_ + w_.padding);
      }
    }
  }

  /// Each element becomes the larger of itself and the one so much further. That also happens across the ends of lines
  /// and planes, to elements at which no window begins.
  void take_following(Index by) {
    const Index n = static_cast<Index>(padded_.size()) - by;
    take_larger(padded_.data(), padded_.data() + by, n);
  }

  const Window2d w_;
  const Index height_, width_;  // with padding
  std::vector<float> padded_;
};

void max_pool2d(const HostCall& k) {
  Pool pool(window_of(k.attributes));
  for (Index r = 0; r < k.out.rows; ++r) pool.run(k.in[0].row(r), k.out.row(r), k.write);
}

/// The place in a plane of the first NaN, or of the first maximum, of the window at a position. Without branches, which
/// would be mispredicted as often as not.
Index first_maximum(const Window2d& w, const float* plane, Index down, Index across) {
  const Index top = down * w.stride - w.padding, left = across * w.stride - w.padding;
  const Index first_x = std::max<Index>(left, 0), last_x = std::min(left + w.window_width, w.width);
  Index best = std::max<Index>(top, 0) * w.width + first_x;
  float largest = plane[best];
  for (Index y = std::max<Index>(top, 0); y < std::min(top + w.window_height, w.height); ++y) {
    for (Index at = y * w.width + first_x; at < y * w.width + last_x; ++at) {
      const float value = plane[at];
      const bool better = (value > largest) | (std::isnan(value) & !std::isnan(largest));
      best = better ? at : best;
      largest = better ? value : largest;
    }
  }
  return best;
}

/// out += g, each element at the place of its window's maximum; of one plane.
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
  for (Index r = 0; r < k.in[0].rows; ++r) {
    for (Index c = 0; c < k.out.width; ++c) k.out.data[c] += sum_row(k.in[0].row(r) + c * positions, positions);
  }
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
