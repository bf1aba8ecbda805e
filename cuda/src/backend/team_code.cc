// The code that kernels for all levels, and those for several steps of rows, share.
#include "backend/fusion.h"

namespace windrow::cuda {

const char* const team_code = R"(
// x y to out; y has `columns` columns of the team.
struct Product { Place x, y, out; };
#ifdef WINDROW_ON_HOST
extern "C" int sched_yield(void);
#define WINDROW_SHARED(floats) static thread_local float shared[floats]
// One call computes all threads of a team.
#define WINDROW_OF_TEAM(floats) \
  if (threadIdx.x != 0) return; \
  static thread_local float shared[floats]
template <class F>
void each_thread(F f) {
  for (int t = 0; t < 256; ++t) f(t);
}
static void wait_for_teams(int* arrived, int& expected, int teams) {
  expected += teams;
  __atomic_add_fetch(arrived, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(arrived, __ATOMIC_SEQ_CST) < expected) sched_yield();
}
static void leave(int* arrived, int teams) {
  if (__atomic_add_fetch(arrived + 1, 1, __ATOMIC_SEQ_CST) == teams) arrived[0] = arrived[1] = 0;
}
#else
extern __shared__ __align__(16) float windrow_shared[];
#define WINDROW_SHARED(floats) float* const shared = windrow_shared
#define WINDROW_OF_TEAM(floats) __shared__ float shared[floats]
// The threads meet afterwards.
template <class F>
static __device__ inline void each_thread(F f) {
  f((int)threadIdx.x);
  __syncthreads();
}
// The threads of a team have met: what they have written is before the first fence.
static __device__ inline void wait_for_teams(int* arrived, int& expected, int teams) {
  expected += teams;
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
static __device__ inline void leave(int* arrived, int teams) {
  if (threadIdx.x == 0 && atomicAdd(arrived + 1, 1) + 1 == teams) arrived[0] = arrived[1] = 0;
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
// The same of a matrix that is stored transposed: row by row.
template <class Columns>
static __device__ inline void load_rows(float* to, const Place& from, int rows, int count, Columns columns) {
  each_thread([&](int t) {
    for (int i = t; i < rows * count; i += 256) {
      const int row = i % rows, q = i / rows;
      to[i] = columns.has(q) ? from.at[columns.column(q) * from.stride + row] : 0.0f;
    }
  });
}
// Four floats of shared or device memory, in one access where `whole`.
static __device__ inline void load_four(const float* from, bool whole, float (&to)[4]) {
#ifndef WINDROW_ON_HOST
  if (whole) {
    const float4 four = *(const float4*)from;
    to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
    return;
  }
#endif
  for (int e = 0; e < 4; ++e) to[e] = from[e];
}
static __device__ inline bool divides_by_16(const float* at, long long stride) {
  return (unsigned long long)at % 16 == 0 && stride % 4 == 0;
}
// A group of threads has four rows at a time, and its threads divide the terms of each sum, four at a time: 64 threads
// where there are few rows, 8 where there are many. Then threads add up what those of a group have.
template <int count, int terms, class Columns>
static __device__ inline void multiply(const Product& p, const float* y, float* sums, long long begin, long long rows,
                                       int from, Columns columns, bool add) {
  const int members = rows <= 16 ? 64 : rows <= 32 ? 32 : rows <= 64 ? 16 : 8, groups = 256 / members;
  const bool whole = terms % 4 == 0 && divides_by_16(p.x.at, p.x.stride) && divides_by_16(y, terms);
  for (long long block = 0; block < rows; block += 4 * groups) {
    each_thread([&](int t) {
      const long long first = block + t / members * 4;
      if (first >= rows) return;
      const float* x[4];
      float sum[4][count];
      for (int r = 0; r < 4; ++r) {
        x[r] = p.x.at + (begin + (first + r < rows ? first + r : rows - 1)) * p.x.stride;
        for (int q = 0; q < count; ++q) sum[r][q] = 0.0f;
      }
      int i = t % members * 4;
#pragma unroll 2
      for (; i + 4 <= terms; i += 4 * members) {
        float value[4][4], weight[4];
        for (int r = 0; r < 4; ++r) load_four(x[r] + i, whole, value[r]);
        for (int q = 0; q < count; ++q) {
          load_four(y + (from + q) * terms + i, whole, weight);
          for (int e = 0; e < 4; ++e) {
            for (int r = 0; r < 4; ++r) sum[r][q] += value[r][e] * weight[e];
          }
        }
      }
      for (; terms % 4 != 0 && i < terms; ++i) {
        for (int q = 0; q < count; ++q) {
          for (int r = 0; r < 4; ++r) sum[r][q] += x[r][i] * y[(from + q) * terms + i];
        }
      }
      for (int r = 0; r < 4; ++r) {
        for (int q = 0; q < count; ++q) sums[(r * count + q) * 257 + t] = sum[r][q];
      }
    });
    each_thread([&](int t) {
      for (int i = t; i < 4 * groups * count; i += 256) {
        const int row = i / count, q = i % count;
        if (block + row >= rows) return;
        const float* const parts = sums + (row % 4 * count + q) * 257 + row / 4 * members;
        float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        for (int m = 0; m < members; m += 4) {
          for (int e = 0; e < 4; ++e) sum[e] += parts[m + e];
        }
        if (!columns.has(from + q)) continue;
        float& to = p.out.at[(begin + block + row) * p.out.stride + columns.column(from + q)];
        const float product = (sum[0] + sum[1]) + (sum[2] + sum[3]);
        to = add ? to + product : product;
      }
    });
  }
}
// The product of rows of `few` elements with a matrix of as many rows, which lies row by row in shared memory.
template <int few, int columns>
static __device__ inline void spread(const Product& p, const float* y, long long begin, long long rows, bool add) {
  each_element(rows, Owned<columns, columns>{0}, [&](long long r, int c) {
    const float* const x = p.x.at + (begin + r) * p.x.stride;
    float sum = 0.0f;
    for (int i = 0; i < few; ++i) sum += x[i] * y[i * columns + c];
    float& to = p.out.at[(begin + r) * p.out.stride + c];
    to = add ? to + sum : sum;
  });
}
// The cross entropy of the softmax of x with labels, -1 for none; and its gradient times that of the loss, g.
struct CrossEntropy { Place x, g, out; const int* labels; long long stride; };
struct Exponentials { float top, sum; };
template <int width>
static __device__ inline Exponentials exponentials(const float* x) {
  Exponentials of = {x[0], 0.0f};
  for (int c = 1; c < width; ++c) of.top = of.top != of.top || of.top > x[c] ? of.top : x[c];
  for (int c = 0; c < width; ++c) of.sum += exp(x[c] - of.top);
  return of;
}
static __device__ inline float not_a_number() { return sqrt(-1.0f); }
template <int width>
static __device__ inline void cross_entropy(const CrossEntropy& l, long long begin, long long rows, bool add) {
  each_element(rows, Owned<1, 1>{0}, [&](long long r, int) {
    const float* const x = l.x.at + (begin + r) * l.x.stride;
    const int label = l.labels[(begin + r) * l.stride];
    float loss = label == -1 ? 0.0f : not_a_number();
    if (label >= 0 && label < width) {
      const Exponentials of = exponentials<width>(x);
      loss = log(of.sum) - (x[label] - of.top);
    }
    float& to = l.out.at[(begin + r) * l.out.stride];
    to = add ? to + loss : loss;
  });
}
template <int width>
static __device__ inline void cross_entropy_gradient(const CrossEntropy& l, long long begin, long long rows, bool add) {
  each_element(rows, Owned<width, width>{0}, [&](long long r, int c) {
    const float* const x = l.x.at + (begin + r) * l.x.stride;
    const int label = l.labels[(begin + r) * l.stride];
    float value = label == -1 ? 0.0f : not_a_number();
    if (label >= 0 && label < width) {
      const float g = l.g.at[(begin + r) * l.g.stride];
      const Exponentials of = exponentials<width>(x);
      value = g * (exp(x[c] - of.top) / of.sum) - (c == label ? g : 0.0f);
    }
    float& to = l.out.at[(begin + r) * l.out.stride + c];
    to = add ? to + value : value;
  });
}

)";

}  // namespace windrow::cuda
