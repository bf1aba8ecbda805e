#include "windrow/ops/internal/cut.h"

#include <algorithm>

#include "host/host.h"
#include "windrow/engine/error.h"
#include "windrow/engine/parallel.h"
#include "windrow/ops/internal/inline_array.h"
#include "windrow/ops/internal/row_sums.h"
#include "windrow/ops/operators.h"

namespace windrow {
namespace {

using Call = KernelCall<float>;
using In = Matrix<const float>;

constexpr Index products_a_unit = 16, fewest_pieces = 4, most_pieces = 64;
/// Narrower products are slower, and those of one row round differently.
constexpr Index product_side = 64;
constexpr Index line = 16;  // elements of a cache line

bool is_product(const Operator& op) { return &op == &op::matmul || &op == &op::matmul_nt || &op == &op::matmul_tn; }
bool is_whole(const Operator& op, std::size_t operand) { return operand < 32 && (op.whole >> operand & 1u) != 0; }

/// The side along which a call is cut: rows or columns of the result, or the rows of the operands that it sums.
struct Cut {
  enum class Along { nothing, rows, columns, summands } along = Along::nothing;
  Index length = 0;  ///< of that side
  Index finest = 1;  ///< lengths of pieces are multiples of this, except for the last piece
};

Cut cut_of(const Operator& op, const Call& call) {
  const Cut rows{Cut::Along::rows, call.out.rows, is_product(op) ? product_side : 1};
  const Cut columns{Cut::Along::columns, call.out.width, is_product(op) ? product_side : line};
  if (is_product(op)) {
    if (call.out.rows >= 2 * product_side) return rows;
    if (call.out.width >= 2 * product_side || &op != &op::matmul_tn) return columns;
    return {Cut::Along::summands, call.in[0].rows, product_side};
  }
  if (op.locality == Locality::elementwise || op.locality == Locality::rowwise) return rows;
  if (op.locality != Locality::sums_rows) return {};
  return op.columnwise ? columns : Cut{Cut::Along::summands, call.in[0].rows};
}

template <class T>
Index elements(const Matrix<T>& matrix) {
  return matrix.rows * matrix.width;
}

Index units_of(const Operator& op, const Call& call) {
  Index units = elements(call.out) * static_cast<Index>(1 + call.states.size()), products = 0;
  for (std::size_t k = 0; k < call.in.size(); ++k) {
    if (!is_whole(op, k)) {
      units += elements(call.in[k]);
    } else if (call.indices.empty()) {  // with indices, only some rows are read
      products += call.out.rows * elements(call.in[k]);
    }
  }
  if (&op == &op::matmul_tn) products = call.in[0].rows * elements(call.out);
  return units + products / products_a_unit;
}

/// The most pieces of a call with `units` of work.
Index pieces_of(const Cut& cut, const Call& call, Index units, Index smallest) {
  Index pieces = std::min(units / smallest, most_pieces);
  if (cut.along == Cut::Along::summands) {
    // Each piece has its own sum; together these are at most half as large as the operands.
    Index summed = 0;
    for (const In& x : call.in) summed += elements(x);
    pieces = std::min(pieces, summed / (2 * std::max<Index>(elements(call.out), 1)));
  }
  return pieces < fewest_pieces ? 1 : pieces;
}

/// The length of a piece along the side; the whole length if the call is not cut.
Index grain_of(const Cut& cut, Index pieces) {
  if (pieces == 1) return cut.length;
  const auto rounded_up = [&](Index n) { return (n + cut.finest - 1) / cut.finest * cut.finest; };
  Index grain = rounded_up((cut.length + pieces - 1) / pieces);
  while (cut.finest > 1 && grain < cut.length && cut.length % grain == 1) grain += cut.finest;
  return grain;
}

template <class T>
Matrix<T> rows_of(const Matrix<T>& m, Index begin, Index end) {
  return {m.data + begin * m.stride, end - begin, m.width, m.stride};
}
template <class T>
Matrix<T> columns_of(const Matrix<T>& m, Index begin, Index end) {
  return {m.data + begin, m.rows, end - begin, m.stride};
}

/// The part of an operand that rows [begin, end) of the result need, or its rows [begin, end) for a sum over rows.
In for_rows(const Operator& op, std::size_t operand, const In& x, Index begin, Index end) {
  return is_whole(op, operand) ? x : rows_of(x, begin, end);
}
/// The part of an operand that columns [begin, end) of the result need.
In for_columns(const Operator& op, std::size_t operand, const In& x, Index begin, Index end) {
  if (is_product(op) && operand == 0) return x;
  return &op == &op::matmul_nt ? rows_of(x, begin, end) : columns_of(x, begin, end);
}

/// Memory for partial sums.
class Sums {
 public:
  Sums(Allocator& memory, Index elements)
      : memory_(memory), bytes_(static_cast<std::size_t>(elements) * sizeof(float)), start_(memory.allocate(bytes_)) {}
  ~Sums() { memory_.deallocate(start_, bytes_); }
  Sums(const Sums&) = delete;
  Sums& operator=(const Sums&) = delete;

  float* data() const { return reinterpret_cast<float*>(start_); }

 private:
  Allocator& memory_;
  const std::size_t bytes_;
  std::byte* const start_;
};

/// A call that is cut. Shapes are those of the whole call; a piece is a range [begin, end) of the side that is cut.
struct CutCall {
  const Operator& op;
  const Kernel<float>& kernel;
  Allocator& memory;
  const Call& whole;
  Cut::Along along;

  void run_piece(Index begin, Index end) const {
    run_piece(begin, end,
              along == Cut::Along::rows ? rows_of(whole.out, begin, end) : columns_of(whole.out, begin, end),
              whole.write);
  }
  void run_piece(Index begin, Index end, const Matrix<float>& out, Write write) const {
    const bool columns = along == Cut::Along::columns;
    const bool first_transposed = &op == &op::matmul_tn && along == Cut::Along::rows;
    const InlineArray<In> in(whole.in.size(), [&](std::size_t k) {
      const In& x = whole.in[k];
      if (first_transposed) return k == 0 ? columns_of(x, begin, end) : x;
      return columns ? for_columns(op, k, x, begin, end) : for_rows(op, k, x, begin, end);
    });
    const InlineArray<Matrix<const std::int32_t>> indices(whole.indices.size(), [&](std::size_t k) {
      return columns ? whole.indices[k] : rows_of(whole.indices[k], begin, end);
    });
    const InlineArray<Matrix<float>> states(whole.states.size(), [&](std::size_t k) {
      return columns ? columns_of(whole.states[k], begin, end) : rows_of(whole.states[k], begin, end);
    });
    Call piece = whole;
    piece.in = in;
    piece.indices = indices;
    piece.states = states;
    piece.out = out;
    piece.write = write;
    kernel(piece, memory);
  }

  /// Sums each piece separately, then adds up the sums.
  void run_sum(Index length, Index grain) const {
    const Index elements = whole.out.rows * whole.out.width, pieces = (length + grain - 1) / grain;
    const Sums sums(memory, pieces * elements);
    const auto sum = [&](Index piece) {
      return Matrix<float>{sums.data() + piece * elements, whole.out.rows, whole.out.width, whole.out.width};
    };
    parallel_for(static_cast<std::size_t>(length), static_cast<std::size_t>(grain),
                 [&](std::size_t begin, std::size_t end) {
                   const auto first = static_cast<Index>(begin);
                   run_piece(first, static_cast<Index>(end), sum(first / grain), Write::overwrite);
                 });
    if (whole.write == Write::overwrite) {
      for (Index r = 0; r < whole.out.rows; ++r) std::fill_n(whole.out.row(r), whole.out.width, 0.0f);
    }
    for (Index r = 0; r < whole.out.rows; ++r) {
      add_rows(whole.out.row(r), whole.out.width, pieces, [&](Index piece, Index begin, float* part, Index n) {
        add_scaled(part, sum(piece).row(r) + begin, n, 1);
      });
    }
  }
};

}  // namespace

void run_in_pieces(const Operator& op, const Kernel<float>& kernel, const Call& call, Allocator& memory,
                   Index smallest) {
  const Cut cut = cut_of(op, call);
  const Index grain = grain_of(cut, pieces_of(cut, call, units_of(op, call), smallest));
  if (grain >= cut.length) return kernel(call, memory);
  const CutCall cut_call{op, kernel, memory, call, cut.along};
  try {
    if (cut.along == Cut::Along::summands) return cut_call.run_sum(cut.length, grain);
    parallel_for(static_cast<std::size_t>(cut.length), static_cast<std::size_t>(grain),
                 [&](std::size_t begin, std::size_t end) {
                   cut_call.run_piece(static_cast<Index>(begin), static_cast<Index>(end));
                 });
  } catch (const MisuseError&) {
    kernel(call, memory);  // throws again, but names rows of the whole call instead of the piece
    throw;
  }
}

}  // namespace windrow
