// Host kernels that move rows and columns, and add up segments.
#include <algorithm>
#include <cmath>

#include "host.h"
#include "windrow/ops/operators.h"

namespace windrow {
namespace {

void put(float* to, const float* from, Index n, Write write) {
  if (write == Write::add) {
    add_scaled(to, from, n, 1);
  } else {
    std::copy_n(from, n, to);
  }
}

void gather(const HostCall& k) {
  for (Index r = 0; r < k.out.rows; ++r) {
    put(k.out.row(r), k.in[0].row(checked_row(k.indices[0], r, k.in[0].rows)), k.out.width, k.write);
  }
}

void scatter(const HostCall& k, float factor) {
  for (Index r = 0; r < k.in[0].rows; ++r) {
    add_scaled(k.out.row(checked_row(k.indices[0], r, k.out.rows)), k.in[0].row(r), k.out.width, factor);
  }
}

void concat(const HostCall& k) {
  Index begin = 0;
  for (const auto& part : k.in) {
    for (Index r = 0; r < part.rows; ++r) put(k.out.row(r) + begin, part.row(r), part.width, k.write);
    begin += part.width;
  }
}

void slice(const HostCall& k) {
  const Index begin = k.attributes.sizes[0];
  for (Index r = 0; r < k.out.rows; ++r) put(k.out.row(r), k.in[0].row(r) + begin, k.out.width, k.write);
}

void place(const HostCall& k) {
  zero_unless_adding(k);
  const Index begin = k.attributes.sizes[0];
  for (Index r = 0; r < k.out.rows; ++r) put(k.out.row(r) + begin, k.in[0].row(r), k.in[0].width, k.write);
}

enum class Share { whole, mean };

float share_of(Share share, Index first, Index last) {
  return share == Share::mean ? 1.0f / static_cast<float>(last - first) : 1;
}

void segment_sum(const HostCall& k, Share share) {
  zero_unless_adding(k);
  for (Index r = 0; r < k.out.rows; ++r) {
    const auto [first, last] = checked_segment(k.indices[0], r, k.in[0].rows);
    const float factor = share_of(share, first, last);
    for (Index from = first; from < last; ++from) add_scaled(k.out.row(r), k.in[0].row(from), k.out.width, factor);
  }
}

/// The row of [first, last), not empty, that has the maximum of column c: the first that is NaN, or the first of the
/// largest.
Index first_maximum(Matrix<const float> x, Index c, Index first, Index last) {
  Index best = first;
  for (Index r = first + 1; r < last; ++r) {
    const float top = x.row(best)[c], value = x.row(r)[c];
    if (value > top || (std::isnan(value) && !std::isnan(top))) best = r;
  }
  return best;
}

void segment_max_gradient(const HostCall& k) {
  zero_unless_adding(k);
  for (Index r = 0; r < k.in[1].rows; ++r) {
    const auto [first, last] = checked_segment(k.indices[0], r, k.in[0].rows);
    if (first == last) continue;
    for (Index c = 0; c < k.out.width; ++c) {
      k.out.row(first_maximum(k.in[0], c, first, last))[c] += k.in[1].row(r)[c];
    }
  }
}

void segment_spread(const HostCall& k, Share share) {
  zero_unless_adding(k);
  for (Index r = 0; r < k.in[0].rows; ++r) {
    const auto [first, last] = checked_segment(k.indices[0], r, k.out.rows);
    const float factor = share_of(share, first, last);
    for (Index to = first; to < last; ++to) add_scaled(k.out.row(to), k.in[0].row(r), k.out.width, factor);
  }
}

void pick(const HostCall& k) {
  for (Index r = 0; r < k.out.rows; ++r) {
    const Index c = checked_label(k.indices[0], r, k.in[0].width);
    const float value = c < 0 ? 0 : k.in[0].row(r)[c];
    float& out = *k.out.row(r);
    out = k.write == Write::add ? out + value : value;
  }
}

void pick_gradient(const HostCall& k) {
  zero_unless_adding(k);
  for (Index r = 0; r < k.out.rows; ++r) {
    const Index c = checked_label(k.indices[0], r, k.out.width);
    if (c >= 0) k.out.row(r)[c] += *k.in[0].row(r);
  }
}

}  // namespace

void add_host_rows(KernelTable<float>& table) {
  table.add(op::gather_rows, gather);
  table.add(op::embedding, gather);
  table.add(op::scatter_rows, [](const HostCall& k) {
    zero_unless_adding(k);
    scatter(k, 1);
  });
  table.add(op::sgd_rows, [](const HostCall& k) { scatter(k, static_cast<float>(-k.attributes.values[0])); });
  table.add(op::concat, concat);
  table.add(op::slice, slice);
  table.add(op::place, place);
  table.add(op::segment_sum, [](const HostCall& k) { segment_sum(k, Share::whole); });
  table.add(op::segment_mean, [](const HostCall& k) { segment_sum(k, Share::mean); });
  table.add(op::segment_max_gradient, segment_max_gradient);
  table.add(op::segment_spread, [](const HostCall& k) { segment_spread(k, Share::whole); });
  table.add(op::segment_spread_mean, [](const HostCall& k) { segment_spread(k, Share::mean); });
  table.add(op::pick, pick);
  table.add(op::pick_gradient, pick_gradient);
}

}  // namespace windrow
