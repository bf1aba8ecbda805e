// The reference kernels of convolution and pooling.
#include <cmath>

#include "operators/attributes.h"
#include "reference/reference.h"
#include "windrow/ops/operators.h"

namespace windrow::reference {
namespace {

/// Calls f(index in the image, index in the window) for each element of channel c that the window at `position` covers,
/// except padding.
template <class F>
void each_place(const op::Window2d& w, Index c, Index position, F f) {
  const Index top = position / w.positions_across() * w.stride - w.padding;
  const Index left = position % w.positions_across() * w.stride - w.padding;
  for (Index r = 0; r < w.window_height; ++r) {
    for (Index s = 0; s < w.window_width; ++s) {
      const Index y = top + r, x = left + s;
      if (y < 0 || y >= w.height || x < 0 || x >= w.width) continue;
      f((c * w.height + y) * w.width + x, (c * w.window_height + r) * w.window_width + s);
    }
  }
}

/// Calls f(index in the image, index in the window, index in the result, filter) for each product of a convolution.
template <class F>
void each_product(const op::Window2d& w, Index filters, F f) {
  for (Index k = 0; k < filters; ++k) {
    for (Index position = 0; position < w.positions(); ++position) {
      for (Index c = 0; c < w.channels; ++c) {
        each_place(w, c, position,
                   [&](Index image, Index window) { f(image, window, k * w.positions() + position, k); });
      }
    }
  }
}

void add_convolution(KernelTable<double>& table) {
  table.add(op::conv2d, [](const Call& k) {
    zero_unless_adding(k);
    for (Index r = 0; r < k.out.rows; ++r) {
      each_product(window_of(k.attributes), k.in[1].rows, [&](Index image, Index window, Index result, Index filter) {
        k.out.row(r)[result] += k.in[0].row(r)[image] * k.in[1].row(filter)[window];
      });
    }
  });
  table.add(op::conv2d_data_gradient, [](const Call& k) {
    zero_unless_adding(k);
    for (Index r = 0; r < k.out.rows; ++r) {
      each_product(window_of(k.attributes), k.in[1].rows, [&](Index image, Index window, Index result, Index filter) {
        k.out.row(r)[image] += k.in[0].row(r)[result] * k.in[1].row(filter)[window];
      });
    }
  });
  table.add(op::conv2d_filter_gradient, [](const Call& k) {
    zero_unless_adding(k);
    for (Index r = 0; r < k.in[0].rows; ++r) {
      each_product(window_of(k.attributes), k.out.rows, [&](Index image, Index window, Index result, Index filter) {
        k.out.row(filter)[window] += k.in[0].row(r)[image] * k.in[1].row(r)[result];
      });
    }
  });
}

/// The index in the image of the first NaN, or otherwise of the first maximum, for element `result` of a pooled image.
Index pooled(const op::Window2d& w, const double* image, Index result) {
  Index top = -1;
  each_place(w, result / w.positions(), result % w.positions(), [&](Index place, Index) {
    if (top < 0 || exceeds(image[place], image[top])) top = place;
  });
  return top;
}

}  // namespace

void add_images(KernelTable<double>& table) {
  add_convolution(table);
  table.add(op::max_pool2d, [](const Call& k) {
    each(k, [&](Index r, Index c) { return k.in[0].row(r)[pooled(window_of(k.attributes), k.in[0].row(r), c)]; });
  });
  table.add(op::max_pool2d_gradient, [](const Call& k) {
    zero_unless_adding(k);
    for (Index r = 0; r < k.out.rows; ++r) {
      for (Index c = 0; c < k.in[1].width; ++c) {
        k.out.row(r)[pooled(window_of(k.attributes), k.in[0].row(r), c)] += k.in[1].row(r)[c];
      }
    }
  });
  table.add(op::add_channel_bias, [](const Call& k) {
    const Index positions = k.out.width / k.in[1].width;
    each(k, [&](Index r, Index c) { return k.in[0].row(r)[c] + k.in[1].row(0)[c / positions]; });
  });
  table.add(op::add_channel_bias_gradient, [](const Call& k) {
    const Index positions = k.in[0].width / k.out.width;
    each(k, [&](Index, Index channel) {
      double sum = 0;
      for (Index r = 0; r < k.in[0].rows; ++r) {
        for (Index p = 0; p < positions; ++p) sum += k.in[0].row(r)[channel * positions + p];
      }
      return sum;
    });
  });
}

}  // namespace windrow::reference
