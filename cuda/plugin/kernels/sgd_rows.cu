// The kernels of sgd_rows (steps a table along a gradient that is given as rows) and sum_parts (computes that
// gradient).
#include "plugin/kernel_call.h"

namespace windrow::cuda {
namespace {

constexpr int most_parts = 64;

/// Matrices that are stacked vertically and used as one.
struct Stack {
  In parts[most_parts];
  Index ends[most_parts];  ///< where the rows of each part end, in the stack
  int count = 0;

  Index rows() const { return count == 0 ? 0 : ends[count - 1]; }
  void push(const In& part) {
    ends[count] = rows() + part.rows;
    parts[count++] = part;
  }
  WINDROW_ON_DEVICE const float* row(Index r) const {
    int first = 0, last = count - 1;  // the part is in [first, last]
    while (first < last) {
      const int middle = (first + last) / 2;
      if (r < ends[middle]) {
        last = middle;
      } else {
        first = middle + 1;
      }
    }
    return parts[first].row(r - (first == 0 ? 0 : ends[first - 1]));
  }
  void accesses(Accesses& to) const {
    for (int p = 0; p < count; ++p) to.reads(parts[p]);
  }
};

/// Copies all parts into one dense matrix.
struct CopyStack {
  static constexpr const char* name = "copy_parts";
  Stack from;
  Out out;

  WINDROW_ON_DEVICE void operator()(auto& team) const {
    for_elements(team, out.rows, out.width, [&](Index r, Index c) { at(out, r, c) = from.row(r)[c]; });
  }
  void accesses(Accesses& to) const { to.all(from, out); }
};

/// Sums of 16 and of 256 successive rows in the order of `order`. They speed up long segments: a frequent word has many
/// rows.
constexpr Index fine = 16, coarse = fine * fine;
struct Sums {
  const float *of_fine = nullptr, *of_coarse = nullptr;  ///< sums of complete groups only; null if there are none
};

/// The rows of a gradient. Each row of `bounds` holds a row number of the table and its segment in `order`; ascending
/// by row number.
struct Parts {
  Stack gradient;
  Index gradient_rows;
  Indices bounds, order;
  Sums sums = {};

  WINDROW_ON_DEVICE Index width() const { return gradient.parts[0].width; }
  /// Rows with a bad index are left out.
  WINDROW_ON_DEVICE float sum_rows(Index first, Index last, Index c) const {
    float sum = 0;
    for (Index i = first; i < last; ++i) {
      const Index from = at(order, i, 0);
      sum += within(from, gradient_rows) ? gradient.row(from)[c] : 0;
    }
    return sum;
  }
  WINDROW_ON_DEVICE float sum(Index place, Index c) const {
    const Segment segment{at(bounds, place, 1), at(bounds, place, 2)};
    if (!segment.good(order.rows)) return 0;
    const auto rows = [&](Index first, Index last) { return sum_rows(first, last, c); };
    if (sums.of_fine == nullptr) return rows(segment.first, segment.last);
    const auto fines = [&](Index first, Index last) { return sum_of(sums.of_fine, first, last, c); };
    const auto coarses = [&](Index first, Index last) { return sum_of(sums.of_coarse, first, last, c); };
    return in_pieces(segment.first, segment.last, rows,
                     [&](Index first, Index last) { return in_pieces(first, last, fines, coarses); });
  }
  void accesses(Accesses& to) const {
    gradient.accesses(to);
    to.reads(bounds);
    to.reads(order);
    if (sums.of_fine == nullptr) return;
    to.reads(sums.of_fine, order.rows / fine * gradient.parts[0].width);
    to.reads(sums.of_coarse, order.rows / coarse * gradient.parts[0].width);
  }

 private:
  WINDROW_ON_DEVICE float sum_of(const float* of, Index first, Index last, Index c) const {
    LongSum sum;
    for (Index i = first; i < last; ++i) sum += of[i * width() + c];
    return sum;
  }
  /// The sum of [first, last): `large` sums the complete groups of `fine` rows, and `small` the rest.
  template <class Small, class Large>
  WINDROW_ON_DEVICE static float in_pieces(Index first, Index last, const Small& small, const Large& large) {
    const Index begin = parts_of(first, fine), end = last / fine;
    if (begin >= end) return small(first, last);
    return small(first, begin * fine) + large(begin, end) + small(end * fine, last);
  }
};

/// Computes Sums. A team handles 256 rows of 16 columns.
struct AddUp {
  static constexpr const char* name = "sum_rows";
  Parts parts;
  float *of_fine, *of_coarse;

  WINDROW_ON_DEVICE void operator()(auto& team) const {
    const Index width = parts.width(), across = parts_of(width, fine), rows = parts.order.rows;
    auto shared = team.template shared<float>(most_threads);
    for (Index t = team.index(); t < parts_of(rows, coarse) * across; t += team.count()) {
      const Index group = t / across, left = t % across * fine;
      team.sync();  // the previous sums have been read
      team.each([&](int thread) {
        const Index c = left + thread % fine, small = group * fine + thread / fine;
        const bool whole = c < width && (small + 1) * fine <= rows;
        const float sum = whole ? parts.sum_rows(small * fine, (small + 1) * fine, c) : 0;
        if (whole) of_fine[small * width + c] = sum;
        shared[thread] = sum;
      });
      team.sync();
      team.each([&](int thread) {
        const Index c = left + thread;
        if (thread >= fine || c >= width || (group + 1) * coarse > rows) return;
        float sum = 0;
        for (Index i = 0; i < fine; ++i) sum += shared[i * fine + thread];
        of_coarse[group * width + c] = sum;
      });
    }
  }
  void accesses(Accesses& to) const {
    parts.accesses(to);
    to.writes(of_fine, parts.order.rows / fine * parts.gradient.parts[0].width);
    to.writes(of_coarse, parts.order.rows / coarse * parts.gradient.parts[0].width);
  }
};
static_assert(most_threads == coarse && sizeof(AddUp) < 4096);  // what a kernel's arguments may take

struct SumParts {
  static constexpr const char* name = "sum_parts";
  Parts parts;

  WINDROW_ON_DEVICE float operator()(Index r, Index c) const { return parts.sum(r, c); }
  void accesses(Accesses& to) const { parts.accesses(to); }
};

/// The common arguments of both kernels of sgd_rows.
struct Update {
  Parts parts;
  Out table;
  float rate, decay;

  /// The first of the bounds that is not below the row. It finds at most one place per row, so no row changes twice,
  /// even if the bounds are not ascending.
  WINDROW_ON_DEVICE Index place_of(Index row) const { return place_in(parts.bounds, row); }
  WINDROW_ON_DEVICE void change(Index row, Index c, Index place) const {
    const bool found = place < parts.bounds.rows && at(parts.bounds, place, 0) == row;
    float& old = at(table, row, c);
    old -= rate * ((found ? parts.sum(place, c) : 0) + decay * old);
  }
  void accesses(Accesses& to) const { to.all(parts, table); }
};

/// Changes all rows of the table, for a decay.
struct ChangeAll {
  static constexpr const char* name = "sgd_rows_decay";
  Update update;
  WINDROW_ON_DEVICE void operator()(auto& team) const {
    for_elements(team, update.table.rows, update.table.width,
                 [&](Index row, Index c) { update.change(row, c, update.place_of(row)); });
  }
  void accesses(Accesses& to) const { update.accesses(to); }
};

/// Changes the rows that have a segment.
struct ChangeFew {
  static constexpr const char* name = "sgd_rows";
  Update update;
  WINDROW_ON_DEVICE void operator()(auto& team) const {
    for_elements(team, update.parts.bounds.rows, update.table.width, [&](Index place, Index c) {
      const Index row = at(update.parts.bounds, place, 0);
      if (within(row, update.table.rows) && update.place_of(row) == place) update.change(row, c, place);
    });
  }
  void accesses(Accesses& to) const { update.accesses(to); }
};
static_assert(sizeof(ChangeFew) < 4096);  // what a kernel's arguments may take

Index rows_of_parts(const Call& call) {
  Index rows = 0;
  for (const In& part : call.in) rows += part.rows;
  return rows;
}

/// The number of floats that the workspace needs for copies of the parts (0 if a kernel can take all parts as
/// arguments); and whether it also needs sums after these copies.
Index copied(const Call& call) { return call.in.size() <= most_parts ? 0 : rows_of_parts(call) * call.in[0].width; }
bool adds_up(const Call& call) { return call.indices[1].rows >= coarse; }

int stack(const Call& call, const Queue& queue, Stack* made) {
  if (copied(call) == 0) {
    for (const In& part : call.in) made->push(part);
    return cudaSuccess;
  }
  const Index width = call.in[0].width;
  float* next = reinterpret_cast<float*>(call.workspace);
  made->push({next, rows_of_parts(call), width, width});
  for (std::size_t p = 0; p < call.in.size();) {
    Stack some;
    for (; p < call.in.size() && some.count < most_parts; ++p) some.push(call.in[p]);
    const Out out = {next, some.rows(), width, width};
    const int error = launch(queue, shape_for_elements(queue, out.rows * width), CopyStack{some, out});
    if (error != cudaSuccess) return error;
    next += out.rows * width;
  }
  return cudaSuccess;
}

int prepare(const Call& call, const Queue& queue, Parts* made) {
  *made = {{}, rows_of_parts(call), call.indices[0], call.indices[1]};
  const int error = stack(call, queue, &made->gradient);
  if (error != cudaSuccess || !adds_up(call)) return error;
  const Index rows = call.indices[1].rows, width = call.in[0].width;
  float* const of_fine = reinterpret_cast<float*>(call.workspace) + copied(call);
  float* const of_coarse = of_fine + rows / fine * width;
  const Index teams = parts_of(rows, coarse) * parts_of(width, fine);
  const LaunchShape shape{std::min(teams, Index{queue.multiprocessors} * 64), most_threads,
                          most_threads * sizeof(float)};
  if (const int added = launch(queue, shape, AddUp{*made, of_fine, of_coarse}); added != cudaSuccess) return added;
  made->sums = {of_fine, of_coarse};
  return cudaSuccess;
}

int sgd_rows(const Call& call, const Queue& queue) {
  const Out table = call.out;
  Update update{.parts = {},
                .table = table,
                .rate = static_cast<float>(call.attributes.values[0]),
                .decay = static_cast<float>(call.attributes.values[1])};
  if (const int error = prepare(call, queue, &update.parts); error != cudaSuccess) return error;
  if (update.decay != 0) return launch(queue, shape_for_elements(queue, table.rows * table.width), ChangeAll{update});
  return launch(queue, shape_for_elements(queue, update.parts.bounds.rows * table.width), ChangeFew{update});
}
int sum_parts(const Call& call, const Queue& queue) {
  SumParts sum{};
  if (const int error = prepare(call, queue, &sum.parts); error != cudaSuccess) return error;
  return run_each(call, queue, sum);
}
std::size_t parts_workspace(const Call& call) {
  const Index rows = adds_up(call) ? call.indices[1].rows : 0;
  return static_cast<std::size_t>(copied(call) + (rows / fine + rows / coarse) * call.in[0].width) * sizeof(float);
}

}  // namespace

const KernelEntry sgd_rows_kernels[] = {
    {"sgd_rows", sgd_rows, parts_workspace}, {"sum_parts", sum_parts, parts_workspace}, {}};

}  // namespace windrow::cuda
