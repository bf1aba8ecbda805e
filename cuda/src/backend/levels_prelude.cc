// The code that kernels for all levels share.
#include "backend/levels.h"

namespace windrow::cuda {

const char* const levels_prelude = R"(
// x y to out; y has `columns` columns of the team.
struct Product { Place x, y, out; };
#ifdef WINDROW_ON_HOST
extern "C" int sched_yield(void);
#define WINDROW_SHARED(floats) static thread_local float shared[floats]
template <class F>
void each_thread(F f) {
  for (int t = 0; t < 256; ++t) f(t);
}
static void wait_for_teams(int* arrived, int& expected) {
  expected += (int)gridDim.x;
  __atomic_add_fetch(arrived, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(arrived, __ATOMIC_SEQ_CST) < expected) sched_yield();
}
static void leave(int* arrived) {
  if (__atomic_add_fetch(arrived + 1, 1, __ATOMIC_SEQ_CST) == (int)gridDim.x) arrived[0] = arrived[1] = 0;
}
#else
extern __shared__ float windrow_shared[];
#define WINDROW_SHARED(floats) float* const shared = windrow_shared
// The threads meet afterwards.
template <class F>
static __device__ inline void each_thread(F f) {
  f((int)threadIdx.x);
  __syncthreads();
}
// The threads of a team have met: what they have written is before the first fence.
static __device__ inline void wait_for_teams(int* arrived, int& expected) {
  expected += (int)gridDim.x;
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1);
    while (*(volatile int*)arrived < expected) {
    }
    __threadfence();
  }
  __syncthreads();
}
// The last team leaves both counters as it found them.
static __device__ inline void leave(int* arrived) {
  if (threadIdx.x == 0 && atomicAdd(arrived + 1, 1) + 1 == (int)gridDim.x) arrived[0] = arrived[1] = 0;
}
#endif
// Columns begin to begin + owned of each block of `width` columns, as far as there are so many.
template <int width, int owned>
struct Owned {
  int begin;
  __device__ bool has(int q) const { return begin + q % owned < width; }
  __device__ int column(int q) const { return q / owned * width + begin + q % owned; }
};
template <int width, int owned, class F>
static __device__ inline void each_element(long long rows, Owned<width, owned> columns, F f) {
  each_thread([&](int t) {
    for (long long i = t; i < rows * owned; i += 256) {
      const int q = (int)(i % owned);
      if (columns.has(q)) f(i / owned, columns.column(q));
    }
  });
}
// A matrix of `rows` rows, column by column.
template <class Columns>
static __device__ inline void load_columns(float* to, const Place& from, int rows, int count, Columns columns) {
  each_thread([&](int t) {
    for (int i = t; i < rows * count; i += 256) {
      const int row = i / count, q = i % count;
      to[q * rows + row] = columns.has(q) ? from.at[row * from.stride + columns.column(q)] : 0.0f;
    }
  });
}
// A warp has four rows at a time, and its threads divide the terms of each sum. Where there are few rows, several warps
// have the same ones, and divide the terms first. Threads then add up what those of a warp have, and what warps have.
template <int count, int terms, class Columns>
static __device__ inline void multiply(const Product& p, const float* y, float* sums, long long begin, long long rows,
                                       int from, Columns columns, bool add) {
  const int warps = rows <= 4 ? 8 : rows <= 8 ? 4 : rows <= 16 ? 2 : 1;  // that have the same rows
  float* const of_warps = sums + 4 * count * 257;
  for (long long block = 0; block < rows; block += 32 / warps) {
    const auto put = [&](int row, int q, float sum) {
      if (block + row >= rows || !columns.has(from + q)) return;
      float& to = p.out.at[(begin + block + row) * p.out.stride + columns.column(from + q)];
      to = add ? to + sum : sum;
    };
    each_thread([&](int t) {
      const int warp = t / 32;
      const long long first = block + warp / warps * 4;
      if (first >= rows) return;
      const float* x[4];
      float sum[4][count];
      for (int r = 0; r < 4; ++r) {
        x[r] = p.x.at + (begin + (first + r < rows ? first + r : rows - 1)) * p.x.stride;
        for (int q = 0; q < count; ++q) sum[r][q] = 0.0f;
      }
      for (int i = warp % warps * 32 + t % 32; i < terms; i += 32 * warps) {
        float value[4];
        for (int r = 0; r < 4; ++r) value[r] = x[r][i];
        for (int q = 0; q < count; ++q) {
          const float weight = y[(from + q) * terms + i];
          for (int r = 0; r < 4; ++r) sum[r][q] += value[r] * weight;
        }
      }
      for (int r = 0; r < 4; ++r) {
        for (int q = 0; q < count; ++q) sums[(r * count + q) * 257 + t] = sum[r][q];
      }
    });
    each_thread([&](int t) {
      for (int i = t; i < 32 * count; i += 256) {
        const int r = i / count % 4, q = i % count, warp = i / count / 4;
        if (block + warp / warps * 4 >= rows) return;
        const float* const parts = sums + (r * count + q) * 257 + warp * 32;
        float sum = 0.0f;
        for (int lane = 0; lane < 32; ++lane) sum += parts[lane];
        if (warps == 1) {
          put(warp * 4 + r, q, sum);
        } else {
          of_warps[i] = sum;
        }
      }
    });
    if (warps == 1) continue;
    each_thread([&](int t) {
      for (int i = t; i < 32 / warps * count; i += 256) {
        const int row = i / count, q = i % count;
        if (block + row >= rows) return;
        float sum = 0.0f;
        for (int w = 0; w < warps; ++w) sum += of_warps[((row / 4 * warps + w) * 4 + row % 4) * count + q];
        put(row, q, sum);
      }
    });
  }
}

)";

}  // namespace windrow::cuda
