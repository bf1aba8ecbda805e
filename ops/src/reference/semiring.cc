// The reference kernels of products in the log and max-plus semirings.
#include <cmath>
#include <limits>

#include "reference/reference.h"
#include "windrow/ops/operators.h"

namespace windrow::reference {
namespace {

/// The number of the first NaN among the terms of an element, or otherwise of the first maximum.
Index best_of(const Call& k, Index r, Index c) {
  const auto term = [&](Index i) { return k.in[0].row(r)[i] + k.in[1].row(i)[c]; };
  Index best = 0;
  for (Index i = 1; i < k.in[0].width; ++i) {
    if (exceeds(term(i), term(best))) best = i;
  }
  return best;
}

double top_of(const Call& k, Index r, Index c) {
  const Index best = best_of(k, r, c);
  return k.in[0].row(r)[best] + k.in[1].row(best)[c];
}

/// The gradient of element (r, c) of the result, times the share that term i has of it.
double share(const Call& k, Index r, Index i, Index c) {
  const auto share = [&](Index term) {
    return share_of(k.in[0].row(r)[term] + k.in[1].row(term)[c], k.in[2].row(r)[c]);
  };
  double sum = 0;
  for (Index term = 0; term < k.in[0].width; ++term) sum += share(term);
  return k.in[3].row(r)[c] * share(i) / whole_of(sum);
}

}  // namespace

void add_semirings(KernelTable<double>& table) {
  table.add(op::log_matmul, [](const Call& k) {
    each(k, [&](Index r, Index c) {
      const double top = top_of(k, r, c);
      if (std::isinf(top)) return top;
      double sum = 0;
      for (Index i = 0; i < k.in[0].width; ++i) sum += std::exp(k.in[0].row(r)[i] + k.in[1].row(i)[c] - top);
      return top + std::log(sum);
    });
  });
  table.add(op::log_matmul_gradient, [](const Call& k) {
    each(k, [&](Index r, Index i) { return sum(0, k.in[1].width, [&](Index c) { return share(k, r, i, c); }); });
  });
  table.add(op::log_matmul_weight_gradient, [](const Call& k) {
    each(k, [&](Index i, Index c) { return sum(0, k.in[0].rows, [&](Index r) { return share(k, r, i, c); }); });
  });
  table.add(op::max_matmul, [](const Call& k) { each(k, [&](Index r, Index c) { return top_of(k, r, c); }); });
  table.add(op::max_matmul_gradient, [](const Call& k) {
    each(k, [&](Index r, Index i) {
      return sum(0, k.in[1].width, [&](Index c) { return best_of(k, r, c) == i ? k.in[2].row(r)[c] : 0; });
    });
  });
  table.add(op::max_matmul_weight_gradient, [](const Call& k) {
    each(k, [&](Index i, Index c) {
      return sum(0, k.in[0].rows, [&](Index r) { return best_of(k, r, c) == i ? k.in[2].row(r)[c] : 0; });
    });
  });
  table.add(op::argmax_matmul,
            [](const Call& k) { each(k, [&](Index r, Index c) { return static_cast<double>(best_of(k, r, c)); }); });
}

}  // namespace windrow::reference
