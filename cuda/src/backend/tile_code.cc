// The code of products in kernels for levels by groups.
#include "backend/fusion.h"

namespace windrow::cuda {

const char* const tile_code = R"(
// A team multiplies 16 rows at a time. Rows and weights lie in shared memory, in rows of a multiple of eight floats with
// zeros at the end; four more floats put the rows that a warp reads at a time into different banks.
enum Precision { float32, tf32, bf16 };
#ifdef WINDROW_ON_HOST
static unsigned bits_of(float value) { unsigned bits; __builtin_memcpy(&bits, &value, 4); return bits; }
static float float_of(unsigned bits) { float value; __builtin_memcpy(&value, &bits, 4); return value; }
#else
static __device__ inline unsigned bits_of(float value) { return __float_as_uint(value); }
static __device__ inline float float_of(unsigned bits) { return __uint_as_float(bits); }
#endif
// To 10 bits of mantissa, ties away from zero; to 7 bits, ties to even.
template <Precision precision>
static __device__ inline float rounded(float value) {
  const unsigned bits = bits_of(value);
  if (precision == float32 || (bits >> 23 & 255) == 255) return value;
  if (precision == tf32) return float_of((bits + 0x1000) & 0xffffe000u);
  return float_of((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
}
static __device__ inline void store_four(float* to, const float (&from)[4]) {
#ifndef WINDROW_ON_HOST
  *(float4*)to = make_float4(from[0], from[1], from[2], from[3]);
#else
  for (int e = 0; e < 4; ++e) to[e] = from[e];
#endif
}
// Rows of x from column `shift` on; zeros instead of rows behind the last one.
template <Precision precision, int terms>
static __device__ inline void stage_rows(float* to, const Place& x, int shift, long long begin, long long rows) {
  constexpr int across = (terms + 7) / 8 * 2, pitch = 4 * across + 4;
  const bool whole = terms % 4 == 0 && divides_by_16(x.at + shift, x.stride);
  each_thread([&](int t) {
#pragma unroll 4
    for (int i = t; i < 16 * across; i += 256) {
      const int r = i / across, c = i % across * 4;
      const float* const from = x.at + (begin + r) * x.stride + shift + c;
      float value[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      if (r < rows && whole && c < terms) {
        load_four(from, true, value);
      } else if (r < rows) {
        for (int e = 0; e < 4; ++e) {
          if (c + e < terms) value[e] = from[e];
        }
      }
      for (int e = 0; e < 4; ++e) value[e] = rounded<precision>(value[e]);
      store_four(to + r * pitch + c, value);
    }
  });
}
// A team's columns of a matrix of `terms` rows; with `transposed`, rows of its transpose. In float32, column by column.
// Otherwise as mma.m16n8k8 takes its second operand: by 8 columns, by 8 terms, and by lane two terms, of which the second
// one comes four terms later.
template <Precision precision, int terms, int count, bool transposed, class Columns>
static __device__ inline void load_weights(float* to, const Place& from, Columns columns) {
  constexpr int padded = (terms + 7) / 8 * 8, all = precision == float32 ? count : (count + 7) / 8 * 8;
  each_thread([&](int t) {
    for (int i = t; i < padded * all; i += 256) {
      int row, q, at;
      if (precision == float32) {
        row = transposed ? i % padded : i / count;
        q = transposed ? i / padded : i % count;
        at = q * (padded + 4) + row;
      } else {
        const int lane = i / 2 % 32, eights = i / 64;
        row = eights % (padded / 8) * 8 + lane % 4 + i % 2 * 4;
        q = eights / (padded / 8) * 8 + lane / 4;
        at = i;
      }
      const bool there = row < terms && q < count && columns.has(q);
      const int column = there ? columns.column(q) : 0;
      const long long place = transposed ? column * from.stride + row : row * from.stride + column;
      to[at] = there ? rounded<precision>(from.at[place]) : 0.0f;
    }
  });
}
// Adds what the warps have summed up, in their order.
template <int count, class Columns>
static __device__ inline void add_up(const float* sums, const Product& p, long long begin, long long rows, int from,
                                     Columns columns, bool add) {
  each_thread([&](int t) {
    for (int i = t; i < 16 * count; i += 256) {
      const int r = i / count, q = i % count;
      if (r >= rows || !columns.has(from + q)) continue;
      float sum = sums[i];
      for (int w = 1; w < 8; ++w) sum += sums[w * 16 * count + i];
      float& to = p.out.at[(begin + r) * p.out.stride + columns.column(from + q)];
      to = add ? to + sum : sum;
    }
  });
}
// The warps divide the terms, of which the matrix has `all`. A lane has four rows and every eighth column.
template <int count, int terms, int all, int pitch, class Columns>
static __device__ inline void multiply_tile(const float* x, const float* y, float* sums, const Product& p,
                                            long long begin, long long rows, int from, Columns columns, bool add) {
  constexpr int each = (count + 7) / 8, padded = (terms + 7) / 8 * 8;
  each_thread([&](int t) {
    const int warp = t / 32, row = t % 32 / 8 * 4, first = t % 8;
    float sum[4][each];
    for (int r = 0; r < 4; ++r) {
      for (int q = 0; q < each; ++q) sum[r][q] = 0.0f;
    }
#pragma unroll 2
    for (int i = 4 * warp; i < padded; i += 32) {
      float value[4][4], weight[4];
      for (int r = 0; r < 4; ++r) load_four(x + (row + r) * pitch + i, true, value[r]);
      for (int q = 0; q < each; ++q) {
        if (first + 8 * q >= count) continue;
        load_four(y + (from + first + 8 * q) * (all + 4) + i, true, weight);
        for (int e = 0; e < 4; ++e) {
          for (int r = 0; r < 4; ++r) sum[r][q] += value[r][e] * weight[e];
        }
      }
    }
    for (int r = 0; r < 4; ++r) {
      for (int q = 0; q < each; ++q) {
        if (first + 8 * q < count) sums[(warp * 16 + row + r) * count + first + 8 * q] = sum[r][q];
      }
    }
  });
  add_up<count>(sums, p, begin, rows, from, columns, add);
}
// sum += x y, for 16 rows of 8 terms and 8 columns. A lane has two neighbouring columns of rows lane / 4 and eight more.
#ifdef WINDROW_ON_HOST
static void multiply_add(float (&sum)[4], const float* x, int pitch, const float* y, int lane) {
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < 8; ++k) sum[i] += x[row * pitch + k] * y[2 * (column * 4 + k % 4) + k / 4];
  }
}
#else
static __device__ inline void multiply_add(float (&sum)[4], const float* x, int pitch, const float* y, int lane) {
  const float* const a = x + lane / 4 * pitch + lane % 4;
  const float2 b = *(const float2*)(y + 2 * lane);
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(bits_of(a[0])), "r"(bits_of(a[8 * pitch])), "r"(bits_of(a[4])), "r"(bits_of(a[8 * pitch + 4])),
        "r"(bits_of(b.x)), "r"(bits_of(b.y)));
}
#endif
// The same as multiply_tile() on tensor cores.
template <int count, int terms, int all, int pitch, class Columns>
static __device__ inline void multiply_fragments(const float* x, const float* y, float* sums, const Product& p,
                                                 long long begin, long long rows, int from, Columns columns, bool add) {
  constexpr int eights = (count + 7) / 8, steps = (terms + 7) / 8;
  each_thread([&](int t) {
    const int warp = t / 32, lane = t % 32;
    float sum[eights][4];
    for (int j = 0; j < eights; ++j) {
      for (int i = 0; i < 4; ++i) sum[j][i] = 0.0f;
    }
    for (int k = warp; k < steps; k += 8) {
#pragma unroll
      for (int j = 0; j < eights; ++j) {
        multiply_add(sum[j], x + 8 * k, pitch, y + ((from / 8 + j) * (all / 8) + k) * 64, lane);
      }
    }
    for (int j = 0; j < eights; ++j) {
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i / 2 * 8, q = 8 * j + lane % 4 * 2 + i % 2;
        if (q < count) sums[(warp * 16 + row) * count + q] = sum[j][i];
      }
    }
  });
  add_up<count>(sums, p, begin, rows, from, columns, add);
}

)";

}  // namespace windrow::cuda
