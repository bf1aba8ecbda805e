// The reference kernels that move rows and columns, and reduce segments.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "reference/reference.h"
#include "windrow/ops/operators.h"

namespace windrow::reference {
namespace {

void gather(const Call& k) {
  each(k, [&](Index r, Index c) { return k.in[0].row(checked_row(k.indices[0], r, k.in[0].rows))[c]; });
}

void scatter(const Call& k) {
  zero_unless_adding(k);
  for (Index r = 0; r < k.in[0].rows; ++r) {
    double* to = k.out.row(checked_row(k.indices[0], r, k.out.rows));
    for (Index c = 0; c < k.out.width; ++c) to[c] += k.in[0].row(r)[c];
  }
}

void embedding_bag(const Call& k) {
  each(k, [&](Index r, Index c) {
    double sum = 0;
    for (Index i = 0; i < k.indices[0].width; ++i) {
      const Index from = checked_row_or_none(k.indices[0], r, i, k.in[0].rows);
      if (from >= 0) sum += k.in[0].row(from)[c];
    }
    return sum;
  });
}

void scatter_bags(const Call& k) {
  zero_unless_adding(k);
  for (Index r = 0; r < k.in[0].rows; ++r) {
    for (Index i = 0; i < k.indices[0].width; ++i) {
      const Index to = checked_row_or_none(k.indices[0], r, i, k.out.rows);
      for (Index c = 0; to >= 0 && c < k.out.width; ++c) k.out.row(to)[c] += k.in[0].row(r)[c];
    }
  }
}

/// The rows of all operands.
std::vector<const double*> rows_of(const Call& k) {
  std::vector<const double*> rows;
  for (const In& part : k.in) {
    for (Index r = 0; r < part.rows; ++r) rows.push_back(part.row(r));
  }
  return rows;
}

void sum_parts(const Call& k) {
  const std::vector<const double*> rows = rows_of(k);
  const auto row_count = static_cast<Index>(rows.size());
  each(k, [&](Index r, Index c) {
    const auto [row, first, last] =
        checked_bounds(k.indices[0], r, {0, std::numeric_limits<Index>::max(), k.indices[1].rows});
    return sum(first, last,
               [&](Index i) { return rows[static_cast<std::size_t>(checked_row(k.indices[1], i, row_count))][c]; });
  });
}

/// Equals op::sgd with a gradient in which the rows have been added up.
void sgd_rows(const Call& k) {
  const std::vector<const double*> rows = rows_of(k);
  const auto row_count = static_cast<Index>(rows.size());
  const auto elements = static_cast<std::size_t>(k.out.rows * k.out.width);
  std::vector<double> gradient(elements, 0);
  Index next = 0;
  for (Index s = 0; s < k.indices[0].rows; ++s) {
    const auto [row, first, last] = checked_bounds(k.indices[0], s, {next, k.out.rows, k.indices[1].rows});
    next = row + 1;
    for (Index i = first; i < last; ++i) {
      const double* const from = rows[static_cast<std::size_t>(checked_row(k.indices[1], i, row_count))];
      for (Index c = 0; c < k.out.width; ++c) gradient[static_cast<std::size_t>(row * k.out.width + c)] += from[c];
    }
  }
  const auto [rate, decay] = k.attributes.values;
  for (Index r = 0; r < k.out.rows; ++r) {
    for (Index c = 0; c < k.out.width; ++c) {
      double& value = k.out.row(r)[c];
      value -= rate * (gradient[static_cast<std::size_t>(r * k.out.width + c)] + decay * value);
    }
  }
}

/// out(r, c) += reduce(column c of x, begin and end of segment r).
template <class Reduce>
void segments(const Call& k, Reduce reduce) {
  each(k, [&](Index r, Index c) {
    const auto [first, last] = checked_segment(k.indices[0], r, k.in[0].rows);
    return first == last ? 0.0 : reduce(k.in[0], c, first, last);
  });
}

double sum_of(In x, Index c, Index first, Index last) {
  return sum(first, last, [&](Index r) { return x.row(r)[c]; });
}

/// The row of the first NaN, or otherwise of the first maximum.
Index first_maximum(In x, Index c, Index first, Index last) {
  Index top = first;
  for (Index r = first; r < last; ++r) {
    if (exceeds(x.row(r)[c], x.row(top)[c])) top = r;
  }
  return top;
}

enum class ShareOfGradient { whole, mean };

void spread(const Call& k, ShareOfGradient share) {
  zero_unless_adding(k);
  for (Index r = 0; r < k.in[0].rows; ++r) {
    const auto [first, last] = checked_segment(k.indices[0], r, k.out.rows);
    for (Index to = first; to < last; ++to) {
      const double parts = share == ShareOfGradient::mean ? static_cast<double>(last - first) : 1;
      for (Index c = 0; c < k.out.width; ++c) k.out.row(to)[c] += k.in[0].row(r)[c] / parts;
    }
  }
}

/// The sum of term(x, y) over the pairs of rows of a segment.
template <class Term>
double over_pairs(const Call& k, Index r, Term term) {
  const auto [first, last] = checked_segment(k.indices[0], r, k.indices[1].rows);
  double sum = 0;
  for (Index q = first; q < last; ++q) {
    sum += term(checked_row(k.indices[1], q, 0, k.in[0].rows), checked_row(k.indices[1], q, 1, k.in[1].rows));
  }
  return sum;
}

void add_segments(KernelTable<double>& table) {
  table.add(op::segment_sum, [](const Call& k) { segments(k, sum_of); });
  table.add(op::segment_mean, [](const Call& k) {
    segments(k, [](In x, Index c, Index b, Index e) { return sum_of(x, c, b, e) / static_cast<double>(e - b); });
  });
  table.add(op::segment_max, [](const Call& k) {
    segments(k, [](In x, Index c, Index b, Index e) { return x.row(first_maximum(x, c, b, e))[c]; });
  });
  table.add(op::segment_argmax, [](const Call& k) {
    segments(k, [](In x, Index c, Index b, Index e) { return static_cast<double>(first_maximum(x, c, b, e) - b); });
  });
  table.add(op::gather_sum, [](const Call& k) {
    each(k, [&](Index r, Index c) {
      const auto [first, last] = checked_segment(k.indices[0], r, k.indices[1].rows);
      return sum(first, last, [&](Index q) { return k.in[0].row(checked_row(k.indices[1], q, k.in[0].rows))[c]; });
    });
  });
  table.add(op::gather_weighted_sum, [](const Call& k) {
    each(k, [&](Index r, Index c) {
      return over_pairs(k, r, [&](Index x, Index y) { return k.in[0].row(x)[c] * *k.in[1].row(y); });
    });
  });
  table.add(op::gather_dot, [](const Call& k) {
    each(k, [&](Index r, Index) {
      return over_pairs(k, r, [&](Index x, Index y) {
        return std::inner_product(k.in[0].row(x), k.in[0].row(x) + k.in[0].width, k.in[1].row(y), 0.0);
      });
    });
  });
  table.add(op::segment_spread, [](const Call& k) { spread(k, ShareOfGradient::whole); });
  table.add(op::segment_spread_mean, [](const Call& k) { spread(k, ShareOfGradient::mean); });
  table.add(op::segment_max_gradient, [](const Call& k) {
    zero_unless_adding(k);
    for (Index r = 0; r < k.in[1].rows; ++r) {
      const auto [first, last] = checked_segment(k.indices[0], r, k.in[0].rows);
      for (Index c = 0; c < k.out.width && first < last; ++c) {
        k.out.row(first_maximum(k.in[0], c, first, last))[c] += k.in[1].row(r)[c];
      }
    }
  });
}

/// The column of the first NaN, or otherwise of the first maximum.
Index top_of(const double* x, Index width) {
  Index top = 0;
  for (Index c = 1; c < width; ++c) {
    if (exceeds(x[c], x[top])) top = c;
  }
  return top;
}

void add_choices(KernelTable<double>& table) {
  table.add(op::pick, [](const Call& k) {
    each(k, [&](Index r, Index) {
      const Index c = checked_label(k.indices[0], r, k.in[0].width);
      return c < 0 ? 0.0 : k.in[0].row(r)[c];
    });
  });
  table.add(op::pick_gradient, [](const Call& k) {
    each(k,
         [&](Index r, Index c) { return c == checked_label(k.indices[0], r, k.out.width) ? k.in[0].row(r)[0] : 0.0; });
  });
  table.add(op::row_max, [](const Call& k) {
    const Index width = k.in[0].width;
    each(k, [&](Index r, Index) { return width == 0 ? 0.0 : k.in[0].row(r)[top_of(k.in[0].row(r), width)]; });
  });
  table.add(op::row_max_gradient, [](const Call& k) {
    each(k, [&](Index r, Index c) { return c == top_of(k.in[0].row(r), k.out.width) ? k.in[1].row(r)[0] : 0.0; });
  });
}

}  // namespace

void add_rows(KernelTable<double>& table) {
  add_segments(table);
  add_choices(table);
  table.add(op::gather_rows, gather);
  table.add(op::embedding, gather);
  table.add(op::gather_where, [](const Call& k) {
    each(k, [&](Index r, Index c) {
      const Index from = checked_row(k.indices[0], r, k.in[0].rows);
      return k.in[0].row(from)[c] == k.indices[0].row(r)[1] ? k.in[1].row(from)[c] : 0.0;
    });
  });
  table.add(op::scatter_rows, scatter);
  table.add(op::embedding_bag, embedding_bag);
  table.add(op::scatter_bags, scatter_bags);
  table.add(op::sgd_rows, sgd_rows);
  table.add(op::sum_parts, sum_parts);
  table.add(op::concat, [](const Call& k) {
    each(k, [&](Index r, Index c) {
      std::size_t part = 0;
      while (c >= k.in[part].width) c -= k.in[part++].width;
      return k.in[part].row(r)[c];
    });
  });
  table.add(op::slice, [](const Call& k) {
    each(k, [&](Index r, Index c) { return k.in[0].row(r)[k.attributes.sizes[0] + c]; });
  });
  table.add(op::place, [](const Call& k) {
    each(k, [&](Index r, Index c) {
      const Index from = c - k.attributes.sizes[0];
      return 0 <= from && from < k.in[0].width ? k.in[0].row(r)[from] : 0.0;
    });
  });
}

}  // namespace windrow::reference
