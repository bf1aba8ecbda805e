#include "host_product.h"

#include <dnnl.h>

#include <algorithm>
#include <string>

// Of the OpenMP runtime that oneDNN brings, libgomp, whichever compiler's omp.h may be at hand.
extern "C" int omp_get_max_threads();
extern "C" void omp_set_num_threads(int);

namespace windrow {
namespace {

/// Keeps OpenMP to the calling thread: the engine's workers are what runs in parallel. Cheap: a thread-local number.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const int before_;
};

/// What dnnl_sgemm asks of strides, also of matrices with one row or none.
dnnl_dim_t leading(Matrix<const float> x) { return std::max<Index>({x.stride, x.width, 1}); }

/// oneDNN takes fresh memory for a copy of y, which for a wide one is more than its allocator keeps: each call would
/// pay for new pages, which `windrow-perf train --model var-lstm` feels by its vocabulary of 10,000.
Index columns_at_once(const Product& p) {
  constexpr Index most = 4096, line = 16;
  if (p.x.as == Factor::As::transposed || p.out.width <= most) return p.out.width;
  const Index parts = (p.out.width + most - 1) / most;
  return (p.out.width / parts / line + 1) * line;
}

}  // namespace

void multiply(const Product& p) {
  const Matrix<float> out = p.out;
  if (out.rows == 0 || out.width == 0) return;
  const bool adds = p.write == Write::add;
  if (p.x.width() == 0) {  // dnnl_sgemm would leave the result as it is
    for (Index r = 0; r < out.rows && !adds; ++r) std::fill_n(out.row(r), out.width, 0.0f);
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
}

}  // namespace windrow
