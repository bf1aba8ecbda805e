#include "host/product.h"

#include <dnnl.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>

#include "windrow/engine/internal/process_exit.h"
#include "windrow/ops/internal/row_sums.h"

// Functions of libgomp, the OpenMP runtime that oneDNN uses. Declared here, since omp.h depends on the compiler.
extern "C" int omp_get_max_threads();
extern "C" void omp_set_num_threads(int);

namespace windrow {
namespace {

/// Restricts OpenMP to the calling thread, since the engine's workers provide the parallelism. Cheap: it sets a
/// thread-local number.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const int before_;
};

/// The stride for dnnl_sgemm, which requires at least the width even for matrices with one row or none.
dnnl_dim_t leading(Matrix<const float> x) { return std::max<Index>({x.stride, x.width, 1}); }

/// The most columns of y for one call. oneDNN allocates memory for a copy of y. For a wide y this exceeds what its
/// allocator caches, and each call would pay for new pages: `windrow-perf train --model var-lstm`, with a vocabulary of
/// 10,000, is sensitive to it.
Index columns_at_once(const Product& p) {
  constexpr Index most = 4096, line = 16;
  if (p.x.as == Factor::As::transposed || p.out.width <= most) return p.out.width;
  const Index parts = (p.out.width + most - 1) / most;
  return (p.out.width / parts / line + 1) * line;
}

/// oneDNN creates static objects, its kernels, at the first product of each kind. Engines must stop before these are
/// destroyed.
void note_kernels(const Product& p) {
  static std::atomic<std::uint64_t> known{0};
  const auto size = [](Index of) { return of <= 1 ? 0 : of <= 16 ? 1 : 2; };
  const int kind = (p.x.as == Factor::As::it_is) + 2 * (p.y.as == Factor::As::it_is) +
                   4 * (size(p.out.rows) + 3 * size(p.out.width));
  const std::uint64_t bit = std::uint64_t{1} << kind;
  if ((known.load(std::memory_order_relaxed) & bit) == 0 && (known.fetch_or(bit) & bit) == 0) rest_before_statics_end();
}

void set_zero(const Matrix<float>& out) {
  for (Index r = 0; r < out.rows; ++r) std::fill_n(out.row(r), out.width, 0.0f);
}

/// How a long sum is cut.
struct SumCut {
  Index terms;     // the most terms of one product
  Index products;  // the most products that are added one after the other
};

/// oneDNN sums a few hundred terms at a time, and adds these sums to the result one after the other. But if the result
/// is one row or column to which it adds the rows of a matrix, it adds each term by itself.
SumCut sum_cut_of(const Product& p) {
  const bool adds_rows =
      (p.out.rows == 1 && p.y.as == Factor::As::it_is) || (p.out.width == 1 && p.x.as == Factor::As::transposed);
  return adds_rows && !has_few_rows(p) ? SumCut{512, 1} : SumCut{4096, rows_of_block};
}

/// A product whose sums are short.
void multiply_short(const Product& p) {
  const Matrix<float> out = p.out;
  if (has_few_rows(p)) return multiply_few_rows(p);
  const bool adds = p.write == Write::add;
  if (p.x.width() == 0) {  // dnnl_sgemm would not write the result
    if (!adds) set_zero(out);
    return;
  }
  const OneThread one_thread;
  const Index columns = columns_at_once(p);
  for (Index begin = 0; begin < out.width; begin += columns) {
    const dnnl_status_t status =
        dnnl_sgemm(static_cast<char>(p.x.as), static_cast<char>(p.y.as), out.rows, std::min(columns, out.width - begin),
                   p.x.width(), 1.0f, p.x.matrix.data, leading(p.x.matrix),
                   p.y.matrix.data + begin * (p.y.as == Factor::As::it_is ? 1 : p.y.matrix.stride), leading(p.y.matrix),
                   adds ? 1.0f : 0.0f, out.data + begin, leading(out));
    if (status != dnnl_success) throw Error("oneDNN refused a matrix product, status " + std::to_string(status));
  }
  note_kernels(p);
}

}  // namespace

// For a single long row with a transposed matrix, oneDNN is faster. The bounds are rough, and were measured on one
// machine with AVX2. Batches of one are sensitive to them: `windrow-perf train --model tree-lstm --batch 1`. With a
// matrix that is not transposed, oneDNN is about as fast once it has compiled its kernels, and faster if the matrix
// exceeds the second-level cache. These bounds, measured on a machine with AVX-512, let a single sentence be predicted
// without oneDNN's kernels.
bool has_few_rows(const Product& p) {
  if (p.x.as != Factor::As::it_is) return false;
  if (p.y.as == Factor::As::it_is) return p.out.rows <= 32 && p.y.matrix.rows * p.y.matrix.width <= Index{1} << 19;
  if (p.out.rows == 1) return p.x.width() <= 256;
  return p.out.rows <= std::clamp<Index>(p.x.width() / 16, 8, 32);
}

void multiply(const Product& p) {
  if (p.out.rows == 0 || p.out.width == 0) return;
  const Index terms = p.x.width();
  const SumCut cut = sum_cut_of(p);
  if (terms <= cut.terms) return multiply_short(p);
  if (p.write != Write::add) set_zero(p.out);
  MatrixSum sum(p.out, (terms + cut.terms - 1) / cut.terms, cut.products);
  for (Index first = 0; first < terms; first += cut.terms) {
    const Index count = std::min(cut.terms, terms - first);
    const auto part = [&](const Factor& f, Factor::As of_columns) {
      const Matrix<const float> m = f.matrix;
      return f.as == of_columns ? Factor{{m.data + first, m.rows, count, m.stride}, f.as}
                                : Factor{{m.row(first), count, m.width, m.stride}, f.as};
    };
    multiply_short({part(p.x, Factor::As::it_is), part(p.y, Factor::As::transposed), sum.next(), Write::add});
  }
  sum.finish();
}

}  // namespace windrow
