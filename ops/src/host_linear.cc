// Host kernels of the linear operators: matrix products by oneDNN, the rest by loops.
#include <dnnl.h>

#include <algorithm>
#include <string>

#include "host.h"
#include "windrow/ops/operators.h"

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

/// out = x y, either transposed by 'T' or not by 'N'; `inner` is the width of x as it enters the product.
void product(const HostCall& call, char x_as, char y_as, Index inner) {
  const Matrix<const float> x = call.in[0], y = call.in[1];
  const Matrix<float> out = call.out;
  if (out.rows == 0 || out.width == 0) return;
  const float beta = call.write == Write::add ? 1.0f : 0.0f;
  if (inner == 0) {  // dnnl_sgemm would leave the result as it is
    zero_unless_adding(call);
    return;
  }
  const OneThread one_thread;
  const dnnl_status_t status = dnnl_sgemm(x_as, y_as, out.rows, out.width, inner, 1.0f, x.data, leading(x), y.data,
                                          leading(y), beta, out.data, leading(out));
  if (status != dnnl_success) throw Error("oneDNN refused a matrix product, status " + std::to_string(status));
}

/// out(r, c) = value(r, c), or is increased by it.
template <class Value>
void each(const HostCall& call, Value value) {
  for (Index r = 0; r < call.out.rows; ++r) {
    float* to = call.out.row(r);
    if (call.write == Write::add) {
      for (Index c = 0; c < call.out.width; ++c) to[c] += value(r, c);
    } else {
      for (Index c = 0; c < call.out.width; ++c) to[c] = value(r, c);
    }
  }
}

void transpose(const HostCall& call) {
  // By tiles, so that neither side leaves the cache line it is in.
  constexpr Index tile = 16;
  const Matrix<const float> x = call.in[0];
  for (Index r0 = 0; r0 < call.out.rows; r0 += tile) {
    for (Index c0 = 0; c0 < call.out.width; c0 += tile) {
      for (Index r = r0; r < std::min(r0 + tile, call.out.rows); ++r) {
        float* to = call.out.row(r);
        for (Index c = c0; c < std::min(c0 + tile, call.out.width); ++c) {
          to[c] = x.row(c)[r] + (call.write == Write::add ? to[c] : 0);
        }
      }
    }
  }
}

void add_bias(const HostCall& call) {
  each(call, [x = call.in[0], bias = call.in[1].row(0)](Index r, Index c) { return x.row(r)[c] + bias[c]; });
}

void column_sum(const HostCall& call) {
  zero_unless_adding(call);
  const Matrix<const float> x = call.in[0];
  for (Index r = 0; r < x.rows; ++r) add_scaled(call.out.data, x.row(r), x.width, 1);
}

}  // namespace

void add_host_linear(KernelTable<float>& table) {
  table.add(op::matmul, [](const HostCall& k) { product(k, 'N', 'N', k.in[0].width); });
  table.add(op::matmul_nt, [](const HostCall& k) { product(k, 'N', 'T', k.in[0].width); });
  table.add(op::matmul_tn, [](const HostCall& k) { product(k, 'T', 'N', k.in[0].rows); });
  table.add(op::transpose, transpose);
  table.add(op::add_bias, add_bias);
  table.add(op::column_sum, column_sum);
  table.add(op::spread_rows,
            [](const HostCall& k) { each(k, [from = k.in[0].data](Index, Index c) { return from[c]; }); });
  table.add(op::spread_columns,
            [](const HostCall& k) { each(k, [x = k.in[0]](Index r, Index) { return *x.row(r); }); });
}

}  // namespace windrow
