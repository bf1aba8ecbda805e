// Host kernels that move rows and columns, and add up segments.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "host/host.h"
#include "windrow/ops/internal/row_segments.h"
#include "windrow/ops/internal/row_sums.h"
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

/// Whether a row might be named more often than a block has rows. Counts in a table whose size depends only on the
/// number of indices. Large numbers share entries, so the answer may be a false yes.
bool may_repeat(Indices rows) {
  const Index all = rows.rows * rows.width;
  if (all <= rows_of_block) return false;
  std::vector<std::int32_t> count(std::bit_ceil(static_cast<std::size_t>(all)));
  for (Index r = 0; r < rows.rows; ++r) {
    for (Index i = 0; i < rows.width; ++i) {
      const std::int32_t row = rows.row(r)[i];
      if (row >= 0 && ++count[static_cast<std::size_t>(row) & (count.size() - 1)] > rows_of_block) return true;
    }
  }
  return false;
}

/// Adds row r of the operand to each row of the result that row r of the indices names. In most calls, each row of the
/// result gets few rows, and these are added in order. Otherwise, the rows are first grouped by row of the result.
template <Index (*checked)(Indices, Index, Index, Index)>
void scatter(const HostCall& k) {
  zero_unless_adding(k);
  const Indices rows = k.indices[0];
  const bool few = !may_repeat(rows);
  std::vector<std::int32_t> to;
  for (Index r = 0; r < k.in[0].rows; ++r) {
    for (Index i = 0; i < rows.width; ++i) {
      const Index row = checked(rows, r, i, k.out.rows);
      if (!few) {
        to.push_back(static_cast<std::int32_t>(row));
      } else if (row >= 0) {
        add_scaled(k.out.row(row), k.in[0].row(r), k.out.width, 1);
      }
    }
  }
  if (few) return;
  const RowSegments segments = row_segments(to, static_cast<std::size_t>(rows.width));
  for (std::size_t s = 0; s < segments.bounds.size(); s += 3) {
    const std::int32_t* const order = segments.order.data() + segments.bounds[s + 1];
    add_rows(
        k.out.row(segments.bounds[s]), k.out.width, segments.bounds[s + 2] - segments.bounds[s + 1],
        [&](Index i, Index begin, float* part, Index n) { add_scaled(part, k.in[0].row(order[i]) + begin, n, 1); });
  }
}

void embedding_bag(const HostCall& k) {
  zero_unless_adding(k);
  for (Index r = 0; r < k.out.rows; ++r) {
    add_rows(k.out.row(r), k.out.width, k.indices[0].width, [&](Index i, Index begin, float* part, Index n) {
      const Index from = checked_row_or_none(k.indices[0], r, i, k.in[0].rows);
      if (from >= 0) add_scaled(part, k.in[0].row(from) + begin, n, 1);
    });
  }
}

/// Several matrices of the same width, with consecutive row numbers.
class Stack {
 public:
  explicit Stack(std::span<const Matrix<const float>> parts) : parts_(parts) {
    for (const auto& part : parts) ends_.push_back(rows() + part.rows);
  }
  Index rows() const { return ends_.empty() ? 0 : ends_.back(); }
  const float* row(Index row) const {
    if (parts_.size() == 1) return parts_[0].row(row);
    const auto part = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), row) - ends_.begin());
    return parts_[part].row(row - ends_[part] + parts_[part].rows);
  }

 private:
  const std::span<const Matrix<const float>> parts_;
  std::vector<Index> ends_;
};

/// Adds up rows.
class RowSum {
 public:
  RowSum(const Stack& rows, Index width) : rows_(rows), sum_(static_cast<std::size_t>(width)) {}

  /// The sum of rows order[first, last), a non-empty range. Valid until the next call.
  const float* of(Indices order, Index first, Index last) {
    const auto row = [&](Index r) { return rows_.row(checked_row(order, r, rows_.rows())); };
    if (last - first == 1) return row(first);
    std::ranges::fill(sum_, 0.0f);
    add_rows(sum_.data(), static_cast<Index>(sum_.size()), last - first,
             [&](Index i, Index begin, float* part, Index n) { add_scaled(part, row(first + i) + begin, n, 1); });
    return sum_.data();
  }

 private:
  const Stack& rows_;
  std::vector<float> sum_;
};

/// Goes through the table from its first row to its last; the rows of segments ascend.
void sgd_rows(const HostCall& k) {
  const auto rate = static_cast<float>(k.attributes.values[0]), decay = static_cast<float>(k.attributes.values[1]);
  const Index width = k.out.width;
  const Stack rows(k.in);
  RowSum sum(rows, width);
  const std::vector<float> nothing(decay != 0 ? static_cast<std::size_t>(width) : 0);
  Index next = 0;
  const auto decay_up_to = [&](Index end) {
    for (; decay != 0 && next < end; ++next) descend(k.out.row(next), nothing.data(), width, rate, decay);
  };
  for (Index s = 0; s < k.indices[0].rows; ++s) {
    const auto [row, first, last] = checked_bounds(k.indices[0], s, {next, k.out.rows, k.indices[1].rows});
    decay_up_to(row);
    descend(k.out.row(row), sum.of(k.indices[1], first, last), width, rate, decay);
    next = row + 1;
  }
  decay_up_to(k.out.rows);
}

void sum_parts(const HostCall& k) {
  const Stack rows(k.in);
  RowSum sum(rows, k.out.width);
  for (Index s = 0; s < k.out.rows; ++s) {
    const auto [row, first, last] =
        checked_bounds(k.indices[0], s, {0, std::numeric_limits<Index>::max(), k.indices[1].rows});
    put(k.out.row(s), sum.of(k.indices[1], first, last), k.out.width, k.write);
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
    add_rows(k.out.row(r), k.out.width, last - first, [&, first = first](Index i, Index begin, float* part, Index n) {
      add_scaled(part, k.in[0].row(first + i) + begin, n, factor);
    });
  }
}

void gather_sum(const HostCall& k) {
  zero_unless_adding(k);
  for (Index r = 0; r < k.out.rows; ++r) {
    const auto [first, last] = checked_segment(k.indices[0], r, k.indices[1].rows);
    add_rows(k.out.row(r), k.out.width, last - first, [&, first = first](Index i, Index begin, float* part, Index n) {
      add_scaled(part, k.in[0].row(checked_row(k.indices[1], first + i, k.in[0].rows)) + begin, n, 1);
    });
  }
}

/// The row in the non-empty range [first, last) with the maximum of column c: the first NaN, or otherwise the first
/// maximum.
Index first_maximum(Matrix<const float> x, Index c, Index first, Index last) {
  Index best = first;
  for (Index r = first + 1; r < last; ++r) {
    const float top = x.row(best)[c], value = x.row(r)[c];
    if (value > top || (std::isnan(value) && !std::isnan(top))) best = r;
  }
  return best;
}

/// Whether a row might lie in more segments than a block has rows. May be a false yes.
bool may_overlap(Indices segments) {
  if (segments.rows <= rows_of_block) return false;
  Index end = 0;
  for (Index r = 0; r < segments.rows; ++r) {
    const Index first = segments.row(r)[0], last = segments.row(r)[1];
    if (first == last) continue;
    if (first < end) return true;
    end = last;
  }
  return false;
}

/// Calls add_all(add) after which each row of the result has the sum of what add(row, c, n, from, factor) added to its
/// n columns from c on: in double, if a row might get many rows.
template <class AddAll>
void add_by_segment(const HostCall& k, AddAll add_all) {
  zero_unless_adding(k);
  if (!may_overlap(k.indices[0])) {
    return add_all([&](Index row, Index c, Index n, const float* from, float factor) {
      add_scaled(k.out.row(row) + c, from, n, factor);
    });
  }
  const Index width = k.out.width;
  std::vector<double> sums(static_cast<std::size_t>(k.out.rows * width));
  add_all([&](Index row, Index c, Index n, const float* from, float factor) {
    double* const to = sums.data() + row * width + c;
    for (Index i = 0; i < n; ++i) to[i] += static_cast<double>(factor * from[i]);
  });
  for (Index r = 0; r < k.out.rows; ++r) {
    float* const out = k.out.row(r);
    std::transform(out, out + width, sums.begin() + r * width, out,
                   [](float x, double sum) { return static_cast<float>(static_cast<double>(x) + sum); });
  }
}

void segment_max_gradient(const HostCall& k) {
  add_by_segment(k, [&](auto add) {
    for (Index r = 0; r < k.in[1].rows; ++r) {
      const auto [first, last] = checked_segment(k.indices[0], r, k.in[0].rows);
      if (first == last) continue;
      for (Index c = 0; c < k.out.width; ++c) {
        add(first_maximum(k.in[0], c, first, last), c, 1, k.in[1].row(r) + c, 1.0f);
      }
    }
  });
}

void segment_spread(const HostCall& k, Share share) {
  add_by_segment(k, [&](auto add) {
    for (Index r = 0; r < k.in[0].rows; ++r) {
      const auto [first, last] = checked_segment(k.indices[0], r, k.out.rows);
      const float factor = share_of(share, first, last);
      for (Index to = first; to < last; ++to) add(to, Index{0}, k.out.width, k.in[0].row(r), factor);
    }
  });
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
  table.add(op::scatter_rows, scatter<checked_row>);
  table.add(op::embedding_bag, embedding_bag);
  table.add(op::scatter_bags, scatter<checked_row_or_none>);
  table.add(op::sgd_rows, sgd_rows);
  table.add(op::sum_parts, sum_parts);
  table.add(op::concat, concat);
  table.add(op::slice, slice);
  table.add(op::place, place);
  table.add(op::segment_sum, [](const HostCall& k) { segment_sum(k, Share::whole); });
  table.add(op::segment_mean, [](const HostCall& k) { segment_sum(k, Share::mean); });
  table.add(op::gather_sum, gather_sum);
  table.add(op::segment_max_gradient, segment_max_gradient);
  table.add(op::segment_spread, [](const HostCall& k) { segment_spread(k, Share::whole); });
  table.add(op::segment_spread_mean, [](const HostCall& k) { segment_spread(k, Share::mean); });
  table.add(op::pick, pick);
  table.add(op::pick_gradient, pick_gradient);
}

}  // namespace windrow
