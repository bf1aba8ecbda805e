// Convolution and pooling: shapes and gradients.
#include <algorithm>
#include <string>

#include "operators/attributes.h"
#include "operators/rules.h"

namespace windrow::op {
namespace {

/// Throws unless operand k has that width.
void require_width(Index width, std::size_t k, const Operator& op, const Signature& s) {
  if (s.in[k].width == width) return;
  throw shape_error(op, s, "a width of " + std::to_string(width) + " of operand " + std::to_string(k));
}

/// Throws unless operand k has an element for each position and filter.
void require_positions(std::size_t k, const Operator& op, const Signature& s) {
  const Index positions = window_of(s.attributes).positions();
  if (s.in[k].width % positions == 0) return;
  throw shape_error(op, s, "a multiple of " + std::to_string(positions) + " as width of operand " + std::to_string(k));
}

Type infer_conv2d(const Operator& op, const Signature& s) {
  const Window2d window = window_of(s.attributes);
  require(s.in[1].rows.counted(), op, s, "a parameter as filters");
  require_width(window.image(), 0, op, s);
  require_width(window.window(), 1, op, s);
  return {s.in[0].rows, s.in[1].rows.number() * window.positions()};
}
Type infer_data_gradient(const Operator& op, const Signature& s) {
  const Window2d window = window_of(s.attributes);
  require(s.in[1].rows.counted(), op, s, "a parameter as filters");
  require_width(s.in[1].rows.number() * window.positions(), 0, op, s);
  require_width(window.window(), 1, op, s);
  return {s.in[0].rows, window.image()};
}
Type infer_filter_gradient(const Operator& op, const Signature& s) {
  const Window2d window = window_of(s.attributes);
  require(s.in[0].rows == s.in[1].rows, op, s, "as many rows of the one as of the other");
  require_width(window.image(), 0, op, s);
  require_positions(1, op, s);
  return {Rows::count(s.in[1].width / window.positions()), window.window()};
}
Type infer_max_pool2d(const Operator& op, const Signature& s) {
  const Window2d window = window_of(s.attributes);
  require_width(window.image(), 0, op, s);
  return {s.in[0].rows, window.channels * window.positions()};
}
Type infer_add_channel_bias(const Operator& op, const Signature& s) {
  const Index channels = s.in[1].width;
  require(s.in[1].rows == Rows::count(1) && channels > 0 && s.in[0].width % channels == 0, op, s,
          "a second of one row, with an element for each channel of the first");
  return s.in[0];
}
Type infer_add_channel_bias_gradient(const Operator& op, const Signature& s) {
  const Index channels = s.attributes.sizes[0];
  require(channels > 0 && s.in[0].width % channels == 0, op, s, "as many columns of each channel");
  return {Rows::count(1), channels};
}

Terms of_add_channel_bias(const Signature& s) {
  return {passed_on(s), GradientTerm{&add_channel_bias_gradient, {gradient()}, {}, to_width(s.in[1].width)}};
}

void require_sizes(const Window2d& w) {
  constexpr Index limit = 65536;  // so that products of three sizes do not overflow
  for (const Index size : {w.channels, w.height, w.width, w.window_height, w.window_width, w.stride}) {
    if (size >= 1 && size <= limit) continue;
    throw MisuseError("sliding: a size or stride of " + std::to_string(size) + "; expected 1 to " +
                      std::to_string(limit));
  }
}

}  // namespace

constinit const Operator conv2d =
    rowwise({.name = "conv2d",
             .inputs = 2,
             .infer = infer_conv2d,
             .gradients = terms<by<conv2d_data_gradient, gradient, y>, by<conv2d_filter_gradient, x, gradient>>,
             .whole = 0b10,
             .zero = 0b11,
             .attributes = "sliding"});
constinit const Operator conv2d_data_gradient = rowwise({.name = "conv2d_data_gradient",
                                                         .inputs = 2,
                                                         .infer = infer_data_gradient,
                                                         .whole = 0b10,
                                                         .zero = 0b11,
                                                         .attributes = "sliding"});
constinit const Operator conv2d_filter_gradient = sum_of_rows({.name = "conv2d_filter_gradient",
                                                               .inputs = 2,
                                                               .infer = infer_filter_gradient,
                                                               .zero = 0b11,
                                                               .attributes = "sliding"});
constinit const Operator max_pool2d = rowwise({.name = "max_pool2d",
                                               .infer = infer_max_pool2d,
                                               .gradients = term<max_pool2d_gradient, x, gradient>,
                                               .zero = 0b1,
                                               .attributes = "sliding"});
constinit const Operator max_pool2d_gradient = rowwise({.name = "max_pool2d_gradient",
                                                        .inputs = 2,
                                                        .infer = like_operand<infer_max_pool2d>,
                                                        .zero = 0b10,
                                                        .attributes = "sliding"});
constinit const Operator add_channel_bias = rowwise({.name = "add_channel_bias",
                                                     .inputs = 2,
                                                     .infer = infer_add_channel_bias,
                                                     .gradients = of_add_channel_bias,
                                                     .whole = 0b10});
constinit const Operator add_channel_bias_gradient = sum_of_rows({.name = "add_channel_bias_gradient",
                                                                  .infer = infer_add_channel_bias_gradient,
                                                                  .zero = 0b1,
                                                                  .attributes = "to_width"});

Attributes sliding(const Window2d& w) {
  require_sizes(w);
  if (w.padding < 0 || w.padding >= std::min(w.window_height, w.window_width)) {
    throw MisuseError("sliding: a padding of " + std::to_string(w.padding) + "; expected less than the window");
  }
  if (w.window_height > w.height + 2 * w.padding || w.window_width > w.width + 2 * w.padding) {
    throw MisuseError("sliding: a window larger than the image with its padding; expected one that fits");
  }
  return {.made_by = "sliding",
          .sizes = {w.channels, w.height, w.width, w.window_height, w.window_width, w.stride, w.padding}};
}

}  // namespace windrow::op
