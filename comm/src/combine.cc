#include "combine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "windrow/engine/parallel.h"
#include "windrow/ops/kernel.h"
#include "windrow/ops/operators.h"

namespace windrow::comm {
namespace {

/// Elements that are combined at a time: they stay in the first-level cache.
constexpr Index tile = 2048;
/// Bytes that a thread should move at least, so that waking it pays.
constexpr Index grain_bytes = Index{1} << 18;

/// Elements [begin, end) of one row of all pieces. A dense piece is one row.
struct TileRun {
  Index row, begin, end;
};

/// Calls body(run) for the tiles of a piece's shape, on several threads if that pays. `streams` pieces are touched.
template <class Body>
void for_each_tile(const Piece& shape, bool dense, std::size_t streams, Body body) {
  const Index rows = dense ? 1 : shape.rows;
  const Index width = dense ? shape.rows * shape.width : shape.width;
  if (rows * width == 0) return;
  if (rows == 1 && width <= tile) return body(TileRun{0, 0, width});
  const Index tiles = (width + tile - 1) / tile;
  const Index bytes = 4 * std::min(tile, width) * static_cast<Index>(streams);
  const auto grain = static_cast<std::size_t>(std::max<Index>(1, grain_bytes / bytes));
  parallel_for(static_cast<std::size_t>(rows * tiles), grain, [&](std::size_t first, std::size_t last) {
    for (auto i = static_cast<Index>(first); i < static_cast<Index>(last); ++i) {
      const Index begin = i % tiles * tile;
      body(TileRun{i / tiles, begin, std::min(begin + tile, width)});
    }
  });
}

bool all_dense(std::span<const Piece> pieces) {
  return std::ranges::all_of(pieces, [](const Piece& piece) { return piece.dense(); });
}

template <class T>
T* start(const Piece& piece, const TileRun& run) {
  return reinterpret_cast<T*>(piece.data + run.row * piece.stride) + run.begin;
}

bool is_nan(float x) { return std::isnan(x); }
bool is_nan(std::int32_t) { return false; }

// Sums of floats are most of the work, so they take the vector kernels of the host. The result may be an operand.

void add(const float* x, const float* y, float* to, Index count) {
  static const Kernel<float> kernel = host_kernels().find(op::add);
  const Matrix<const float> in[] = {{x, 1, count, count}, {y, 1, count, count}};
  kernel({.in = in, .out = {to, 1, count, count}, .op = &op::add});
}

void scale(const float* x, float* to, Index count, double factor) {
  static const Kernel<float> kernel = host_kernels().find(op::scale);
  const Matrix<const float> in[] = {{x, 1, count, count}};
  kernel({.in = in, .out = {to, 1, count, count}, .attributes = op::scaled_by(factor), .op = &op::scale});
}

/// `to` may be x or y.
template <class T, Combine how>
void combine_two(const T* x, const T* y, T* to, Index count) {
  if constexpr (how == Combine::sum && std::is_same_v<T, float>) return add(x, y, to, count);
#pragma GCC ivdep
  for (Index i = 0; i < count; ++i) {
    if constexpr (how == Combine::max) {
      to[i] = x[i] < y[i] || is_nan(y[i]) ? y[i] : x[i];
    } else {
      to[i] = static_cast<T>(static_cast<std::uint32_t>(x[i]) + static_cast<std::uint32_t>(y[i]));
    }
  }
}

/// The combination of a run of the pieces. If there is one piece, a place in it; otherwise the result is written to
/// `to`. `scratch` has a tile for each level.
template <class T, Combine how>
const T* combined(std::span<const Piece> pieces, const TileRun& run, T* scratch, T* to) {
  if (pieces.size() == 1) return start<T>(pieces.front(), run);
  const std::size_t half = (pieces.size() + 1) / 2;
  const T* const left = combined<T, how>(pieces.first(half), run, scratch, scratch);
  // The right half must not overwrite the left one.
  const T* const right = combined<T, how>(pieces.subspan(half), run, scratch + tile, scratch + tile);
  combine_two<T, how>(left, right, to, run.end - run.begin);
  return to;
}

template <class T, Combine how>
void combine_as(std::span<const Piece> from, std::span<const Piece> to) {
  const bool dense = all_dense(from) && all_dense(to);
  std::size_t levels = 1;
  for (std::size_t n = 1; n < from.size(); n *= 2) ++levels;
  for_each_tile(from.front(), dense, from.size() + to.size(), [&](const TileRun& run) {
    thread_local std::vector<T> scratch;
    if (scratch.size() < levels * tile) scratch.resize(levels * tile);
    const Index count = run.end - run.begin;
    T* const first = start<T>(to.front(), run);  // no piece is read after the last pair is combined
    constexpr Combine of_two = how == Combine::mean ? Combine::sum : how;
    const T* result = combined<T, of_two>(from, run, scratch.data(), first);
    if constexpr (how == Combine::mean) {
      scale(result, first, count, 1.0 / static_cast<double>(from.size()));
      result = first;
    }
    for (const Piece& piece : to) {
      T* const target = start<T>(piece, run);
      if (target != result) std::memcpy(target, result, static_cast<std::size_t>(count) * sizeof(T));
    }
  });
}

template <class T>
void combine_how(Combine how, std::span<const Piece> from, std::span<const Piece> to) {
  switch (how) {
    case Combine::sum:
      return combine_as<T, Combine::sum>(from, to);
    case Combine::max:
      return combine_as<T, Combine::max>(from, to);
    case Combine::mean:
      if constexpr (std::is_same_v<T, float>) return combine_as<T, Combine::mean>(from, to);
  }
}

}  // namespace

void combine(Combine how, Elements elements, std::span<const Piece> from, std::span<const Piece> to) {
  if (elements == Elements::float32) return combine_how<float>(how, from, to);
  combine_how<std::int32_t>(how, from, to);
}

void copy(const Piece& from, const Piece& to) {
  const bool dense = from.dense() && to.dense();
  for_each_tile(from, dense, 2, [&](const TileRun& run) {
    std::memcpy(start<std::byte>(to, {run.row, 4 * run.begin, 0}), start<std::byte>(from, {run.row, 4 * run.begin, 0}),
                static_cast<std::size_t>(4 * (run.end - run.begin)));
  });
}

}  // namespace windrow::comm
