// The functions of cuBLAS that cuda/plugin calls.
#include <cublas_v2.h>

#include <bit>
#include <cmath>

#include "runtime.h"

using namespace windrow::fake;
using windrow::cuda::Access;

namespace {

struct Handle {
  void* stream = nullptr;
};

/// The number with so many bits of mantissa, rounded to the nearest even one.
float rounded(float value, int bits) {
  std::uint32_t word = std::bit_cast<std::uint32_t>(value);
  const int dropped = 23 - bits;
  if (dropped == 0 || !std::isfinite(value)) return value;
  word += (std::uint32_t{1} << (dropped - 1)) - 1 + (word >> dropped & 1);
  return std::bit_cast<float>(word >> dropped << dropped);
}

int mantissa_of(cublasComputeType_t compute) {
  return compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? 10 : compute == CUBLAS_COMPUTE_32F_FAST_16BF ? 7 : 23;
}

/// Matrices are column-major: element (i, j) is at i + j * stride.
struct Factor {
  const float* start;
  int stride;
  bool transposed;
  int bits;  // of the mantissa
  float at(int i, int j) const {
    return rounded(transposed ? start[j + static_cast<std::ptrdiff_t>(i) * stride]
                              : start[i + static_cast<std::ptrdiff_t>(j) * stride],
                   bits);
  }
};

void multiply(int m, int n, int k, float alpha, const Factor& a, const Factor& b, float beta, float* c, int c_stride) {
  std::vector<double> column(static_cast<std::size_t>(m));
  for (int j = 0; j < n; ++j) {
    column.assign(column.size(), 0);
    for (int p = 0; p < k; ++p) {
      const double factor = b.at(p, j);
      for (int i = 0; i < m; ++i) column[static_cast<std::size_t>(i)] += factor * a.at(i, p);
    }
    for (int i = 0; i < m; ++i) {
      float& to = c[i + static_cast<std::ptrdiff_t>(j) * c_stride];
      const auto product = static_cast<float>(alpha * column[static_cast<std::size_t>(i)]);
      to = beta == 0 ? product : product + beta * to;
    }
  }
}

Access access_of(const float* start, int rows, int columns, int stride, bool writes) {
  return {start, static_cast<std::size_t>(columns), static_cast<std::size_t>(rows) * sizeof(float),
          static_cast<std::size_t>(stride) * sizeof(float), writes};
}

}  // namespace

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  Call call;
  if (call.begin() != 0) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = reinterpret_cast<cublasHandle_t>(new Handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete reinterpret_cast<Handle*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  reinterpret_cast<Handle*>(handle)->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, std::size_t) { return CUBLAS_STATUS_SUCCESS; }

/// `count` products; the operands of the next one begin so many elements further on.
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t of_a, cublasOperation_t of_b, int m,
                                          int n, int k, const void* alpha, const void* a, cudaDataType_t, int lda,
                                          long long a_step, const void* b, cudaDataType_t, int ldb, long long b_step,
                                          const void* beta, void* c, cudaDataType_t, int ldc, long long c_step,
                                          int count, cublasComputeType_t compute, cublasGemmAlgo_t) {
  const bool ta = of_a != CUBLAS_OP_N, tb = of_b != CUBLAS_OP_N;
  const int a_rows = ta ? k : m, b_rows = tb ? n : k;
  const bool valid = m >= 0 && n >= 0 && k >= 0 && lda >= std::max(1, a_rows) && ldb >= std::max(1, b_rows) &&
                     ldc >= std::max(1, m) && count >= 0;
  if (!valid) return CUBLAS_STATUS_INVALID_VALUE;
  Call call;
  if (call.begin() != 0) return CUBLAS_STATUS_EXECUTION_FAILED;
  ++world().counters.products;
  if (m == 0 || n == 0) return CUBLAS_STATUS_SUCCESS;
  std::vector<Access> accesses;
  for (int i = 0; i < count; ++i) {
    accesses.push_back(access_of(static_cast<const float*>(a) + i * a_step, a_rows, ta ? m : k, lda, false));
    accesses.push_back(access_of(static_cast<const float*>(b) + i * b_step, b_rows, tb ? k : n, ldb, false));
    accesses.push_back(access_of(static_cast<const float*>(c) + i * c_step, m, n, ldc, true));
  }
  const int bits = mantissa_of(compute);
  const float factor = *static_cast<const float*>(alpha), kept = *static_cast<const float*>(beta);
  const auto run = [=] {
    for (int i = 0; i < count; ++i) {
      const Factor left = {static_cast<const float*>(mapped(a)) + i * a_step, lda, ta, bits};
      const Factor right = {static_cast<const float*>(mapped(b)) + i * b_step, ldb, tb, bits};
      multiply(m, n, k, factor, left, right, kept, static_cast<float*>(mapped(c)) + i * c_step, ldc);
    }
  };
  issue(stream_of(reinterpret_cast<Handle*>(handle)->stream), count == 1 ? "a product" : "products", accesses,
        world().options.kernels_run ? std::function<void()>(run) : nullptr);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t of_a, cublasOperation_t of_b, int m, int n, int k,
                            const void* alpha, const void* a, cudaDataType_t a_type, int lda, const void* b,
                            cudaDataType_t b_type, int ldb, const void* beta, void* c, cudaDataType_t c_type, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  return cublasGemmStridedBatchedEx(handle, of_a, of_b, m, n, k, alpha, a, a_type, lda, 0, b, b_type, ldb, 0, beta, c,
                                    c_type, ldc, 0, 1, compute, algorithm);
}
