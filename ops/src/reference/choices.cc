// The reference kernels of the largest elements of rows, and of draws.
#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "reference/reference.h"
#include "windrow/ops/operators.h"
#include "windrow/ops/philox.h"

namespace windrow::reference {
namespace {

/// The places of the largest elements of each column of the matrix in row r of x, in the order of the result: its
/// element (j, c) is [j * columns + c].
std::vector<Index> chosen(const Call& k, Index r) {
  const auto [count, columns, by_place] =
      std::tuple(k.attributes.sizes[0], k.attributes.sizes[1], k.attributes.sizes[2]);
  const double* const x = k.in[0].row(r);
  const Index rows = k.in[0].width / columns;
  std::vector<Index> result(static_cast<std::size_t>(count * columns));
  for (Index c = 0; c < columns; ++c) {
    std::vector<Index> places;
    for (Index j = 0; j < count; ++j) {
      Index best = -1;
      for (Index i = 0; i < rows; ++i) {
        if (std::find(places.begin(), places.end(), i) != places.end()) continue;
        if (best < 0 || exceeds(x[i * columns + c], x[best * columns + c])) best = i;
      }
      places.push_back(best);
    }
    if (by_place == 1) std::sort(places.begin(), places.end());
    for (Index j = 0; j < count; ++j) {
      result[static_cast<std::size_t>(j * columns + c)] = places[static_cast<std::size_t>(j)];
    }
  }
  return result;
}

/// Calls visit(r, column of x, column of the result, place) for all rows and chosen elements.
template <class Visit>
void each_chosen(const Call& k, Visit visit) {
  const Index columns = k.attributes.sizes[1];
  for (Index r = 0; r < k.in[0].rows; ++r) {
    Index to = 0;
    for (Index place : chosen(k, r)) {
      visit(r, place * columns + to % columns, to, place);
      ++to;
    }
  }
}

}  // namespace

void add_top_choices(KernelTable<double>& table) {
  table.add(op::top_k, [](const Call& k) {
    zero_unless_adding(k);
    each_chosen(k, [&](Index r, Index from, Index to, Index) { k.out.row(r)[to] += k.in[0].row(r)[from]; });
  });
  table.add(op::arg_top_k, [](const Call& k) {
    zero_unless_adding(k);
    each_chosen(k, [&](Index r, Index, Index to, Index place) { k.out.row(r)[to] += static_cast<double>(place); });
  });
  table.add(op::top_k_gradient, [](const Call& k) {
    zero_unless_adding(k);
    each_chosen(k, [&](Index r, Index from, Index to, Index) { k.out.row(r)[from] += k.in[1].row(r)[to]; });
  });
  table.add(op::sample, [](const Call& k) {
    const auto site = static_cast<std::uint32_t>(k.attributes.sizes[1]);
    const PhiloxKey key = philox_key(static_cast<std::uint64_t>(k.attributes.sizes[0]));
    each(k, [&](Index r, Index) {
      Index best = 0;
      double top = 0;
      for (Index c = 0; c < k.in[0].width; ++c) {
        PhiloxCounter counter = {site * 65536 + static_cast<std::uint32_t>(c / 4)};
        for (std::size_t i = 0; i < 3; ++i) counter[i + 1] = static_cast<std::uint32_t>(k.indices[0].row(r)[i]);
        const double uniform = open_uniform(philox(counter, key)[static_cast<std::size_t>(c % 4)]);
        const double value = k.in[0].row(r)[c] - std::log(-std::log(uniform));
        if (c > 0 && !exceeds(value, top)) continue;
        best = c;
        top = value;
      }
      return static_cast<double>(best);
    });
  });
}

}  // namespace windrow::reference
