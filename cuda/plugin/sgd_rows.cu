// The kernels of sgd_rows and sum_parts: a table's step along a gradient that is given as rows, and that gradient
// alone.
#include "kernel_call.h"

namespace windrow::cuda {
namespace {

constexpr int most_parts = 64;

/// Matrices that are taken as one, one below the other.
struct Stack {
  In parts[most_parts];
  Index ends[most_parts];  ///< of the rows of each part, in the whole
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
  template <class A>
  void accesses(A& to) const {
    for (int p = 0; p < count; ++p) to.reads(parts[p]);
  }
};

/// Copies all parts into one dense matrix.
struct CopyStack {
  static constexpr const char* name = "copy_parts";
  Stack from;
  Out out;

  template <class Team>
  WINDROW_ON_DEVICE void operator()(Team& team) const {
    for_elements(team, out.rows, out.width, [&](Index r, Index c) { at(out, r, c) = from.row(r)[c]; });
  }
  template <class A>
  void accesses(A& to) const {
    from.accesses(to);
    to.writes(out);
  }
};

/// The rows of a gradient. A row of `bounds` is a row of the table, and its segment in `order`; ascending by row.
struct Parts {
  Stack gradient;
  Index gradient_rows;
  Indices bounds, order;

  /// What has a bad index is left out.
  WINDROW_ON_DEVICE float sum(Index place, Index c) const {
    float sum = 0;
    const Segment segment{at(bounds, place, 1), at(bounds, place, 2)};
    if (!segment.good(order.rows)) return sum;
    for (Index i = segment.first; i < segment.last; ++i) {
      const Index from = at(order, i, 0);
      if (within(from, gradient_rows)) sum += gradient.row(from)[c];
    }
    return sum;
  }
  template <class A>
  void accesses(A& to) const {
    gradient.accesses(to);
    to.reads(bounds);
    to.reads(order);
  }
};

struct SumParts {
  static constexpr const char* name = "sum_parts";
  Parts parts;

  WINDROW_ON_DEVICE float operator()(Index r, Index c) const { return parts.sum(r, c); }
  template <class A>
  void accesses(A& to) const {
    parts.accesses(to);
  }
};

/// What both kernels of sgd_rows know.
struct Update {
  Parts parts;
  Out table;
  float rate, decay;

  /// The first of the bounds that is not below the row. For any bounds, at most one place is found for one row, so
  /// no row changes twice even if the bounds are not ascending.
  WINDROW_ON_DEVICE Index place_of(Index row) const { return place_in(parts.bounds, row); }
  WINDROW_ON_DEVICE void change(Index row, Index c, Index place) const {
    const bool found = place < parts.bounds.rows && at(parts.bounds, place, 0) == row;
    float& old = at(table, row, c);
    old -= rate * ((found ? parts.sum(place, c) : 0) + decay * old);
  }
  template <class A>
  void accesses(A& to) const {
    parts.accesses(to);
    to.writes(table);
  }
};

/// Changes all rows of the table, for a decay.
struct ChangeAll {
  static constexpr const char* name = "sgd_rows_decay";
  Update update;
  template <class Team>
  WINDROW_ON_DEVICE void operator()(Team& team) const {
    for_elements(team, update.table.rows, update.table.width,
                 [&](Index row, Index c) { update.change(row, c, update.place_of(row)); });
  }
  template <class A>
  void accesses(A& to) const {
    update.accesses(to);
  }
};

/// Changes the rows that have a segment.
struct ChangeFew {
  static constexpr const char* name = "sgd_rows";
  Update update;
  template <class Team>
  WINDROW_ON_DEVICE void operator()(Team& team) const {
    for_elements(team, update.parts.bounds.rows, update.table.width, [&](Index place, Index c) {
      const Index row = at(update.parts.bounds, place, 0);
      if (within(row, update.table.rows) && update.place_of(row) == place) update.change(row, c, place);
    });
  }
  template <class A>
  void accesses(A& to) const {
    update.accesses(to);
  }
};
static_assert(sizeof(ChangeFew) < 4096);  // what a kernel's arguments may take

Index rows_of_parts(const Call& call) {
  Index rows = 0;
  for (const In& part : call.in) rows += part.rows;
  return rows;
}

/// More parts than a kernel takes are copied into the workspace first, so many at a time.
int stack(const Call& call, const Queue& queue, Stack* made) {
  if (call.in.size() <= most_parts) {
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

int parts_of(const Call& call, const Queue& queue, Parts* made) {
  *made = {{}, rows_of_parts(call), call.indices[0], call.indices[1]};
  return stack(call, queue, &made->gradient);
}

}  // namespace

namespace kernel {

int sgd_rows(const Call& call, const Queue& queue) {
  const Out table = call.out;
  Update update{.parts = {},
                .table = table,
                .rate = static_cast<float>(call.attributes.values[0]),
                .decay = static_cast<float>(call.attributes.values[1])};
  if (const int error = parts_of(call, queue, &update.parts); error != cudaSuccess) return error;
  if (update.decay != 0) return launch(queue, shape_for_elements(queue, table.rows * table.width), ChangeAll{update});
  return launch(queue, shape_for_elements(queue, update.parts.bounds.rows * table.width), ChangeFew{update});
}

int sum_parts(const Call& call, const Queue& queue) {
  SumParts sum{};
  if (const int error = parts_of(call, queue, &sum.parts); error != cudaSuccess) return error;
  return run_each(call, queue, sum);
}

std::size_t parts_workspace(const Call& call) {
  if (call.in.size() <= most_parts) return 0;
  return static_cast<std::size_t>(rows_of_parts(call) * call.in[0].width) * sizeof(float);
}

}  // namespace kernel
}  // namespace windrow::cuda
