// Kernels of linear operators: products of matrices, sums over rows, and results that spread rows or columns.
#include <climits>
#include <vector>

#include "plugin/kernel_call.h"

namespace windrow::cuda {
namespace {

struct Zeros {
  static constexpr const char* name = "zeros";
  WINDROW_ON_DEVICE float operator()(Index, Index) const { return 0; }
  template <class A>
  void accesses(A&) const {}
};

/// The distance between rows. A matrix of fewer than two rows may have any stride, which is ignored.
template <class T>
Index leading(const Matrix<T>& matrix) {
  return matrix.rows > 1 ? matrix.stride : std::max(Index{1}, matrix.width);
}

constexpr int tile = 32;

/// Passes tiles through shared memory, so that both the loads and the stores of a warp access neighbouring elements.
struct Transpose {
  static constexpr const char* name = "transpose";
  static constexpr int pitch = tile + 1;  // puts the elements of a column into different banks
  In x;
  Out out;
  bool add;

  WINDROW_ON_DEVICE void operator()(auto& team) const {
    const Index across = (x.width + tile - 1) / tile, tiles = (x.rows + tile - 1) / tile * across;
    const int step = team.threads() / tile;
    auto kept = team.template shared<float>(tile * pitch);
    for (Index t = team.index(); t < tiles; t += team.count()) {
      const Index top = t / across * tile, left = t % across * tile;
      team.sync();  // the previous tile has been read
      team.each([&](int thread) {
        const int c = thread % tile;
        for (int r = thread / tile; r < tile; r += step) {
          if (top + r < x.rows && left + c < x.width) kept[r * pitch + c] = at(x, top + r, left + c);
        }
      });
      team.sync();
      team.each([&](int thread) {
        const int r = thread % tile;
        for (int c = thread / tile; c < tile; c += step) {
          if (top + r < x.rows && left + c < x.width) write(at(out, left + c, top + r), kept[r * pitch + c], add);
        }
      });
    }
  }
  void accesses(Accesses& to) const { to.all(x, out); }
};

/// The terms of column_sum and column_dot.
struct Elements : OfX {
  static constexpr const char* name = "column_sum";
  WINDROW_ON_DEVICE float operator()(Index r, Index c) const { return at(x, r, c); }
};
struct ElementProducts : OfXY {
  static constexpr const char* name = "column_dot";
  WINDROW_ON_DEVICE float operator()(Index r, Index c) const { return at(x, r, c) * at(y, r, c); }
};

/// Row p of the result is the sum of the p-th `part` rows of terms, which have the shape of terms.x. A team sums 32
/// columns at a time: each warp sums every eighth row, and then one warp adds the sums of all. So the order of
/// additions depends only on the shape.
template <class Terms>
struct ColumnSum {
  static constexpr const char* name = Terms::name;
  static constexpr int strips = most_threads / tile;
  Terms terms;
  Out out;
  Index part;
  bool add;

  WINDROW_ON_DEVICE Index across() const { return (terms.x.width + tile - 1) / tile; }
  WINDROW_ON_DEVICE Index tiles() const { return out.rows * across(); }
  WINDROW_ON_DEVICE void operator()(auto& team) const {
    auto sums = team.template shared<float>(most_threads);
    for (Index t = team.index(); t < tiles(); t += team.count()) sum(team, sums, t);
  }
  WINDROW_ON_DEVICE void sum(auto& team, auto& sums, Index t) const {
    const Index rows = terms.x.rows, width = terms.x.width;
    const Index p = t / across(), left = t % across() * tile;
    const Index first = p * part, last = first + part < rows ? first + part : rows;
    team.sync();  // the previous sums have been read
    team.each([&](int thread) {
      const Index c = left + thread % tile;
      LongSum sum;
      if (c < width) {
        for (Index r = first + thread / tile; r < last; r += strips) sum += terms(r, c);
      }
      sums[thread] = sum;
    });
    team.sync();
    team.each([&](int thread) {
      const Index c = left + thread;
      if (thread >= tile || c >= width) return;
      float sum = sums[thread];
      for (int strip = 1; strip < strips; ++strip) sum += sums[thread + strip * tile];
      write(at(out, p, c), sum, add);
    });
  }
  void accesses(Accesses& to) const { to.all(terms, out); }
};

/// Several sums. Those of one result follow each other, and the team of a tile computes them all.
template <class Terms>
struct ColumnSums {
  static constexpr const char* name = Terms::name;
  static constexpr std::size_t most = 32;  // so that they fit into the arguments of a kernel
  std::size_t count = 0;
  ColumnSum<Terms> all[most];

  WINDROW_ON_DEVICE std::size_t end_of(std::size_t first) const {
    std::size_t end = first + 1;
    while (end < count && all[end].out.data == all[first].out.data) ++end;
    return end;
  }
  WINDROW_ON_DEVICE void operator()(auto& team) const {
    auto sums = team.template shared<float>(most_threads);
    Index before = 0;  // tiles
    for (std::size_t first = 0, end = 0; first < count; first = end) {
      end = end_of(first);
      const Index tiles = all[first].tiles(), skipped = before % team.count();
      for (Index t = (team.index() + team.count() - skipped) % team.count(); t < tiles; t += team.count()) {
        for (std::size_t k = first; k < end; ++k) all[k].sum(team, sums, t);
      }
      before += tiles;
    }
  }
  void accesses(Accesses& to) const {
    for (std::size_t k = 0; k < count; ++k) all[k].accesses(to);
  }
};

/// The number of bands and the rows of a band. Bands are summed first, then their sums. There are enough bands to
/// occupy a device.
struct BandsOfRows {
  Index count, rows;
};
BandsOfRows bands_of_sum(Index rows) {
  constexpr Index least = 128, most = 64;
  if (rows <= 2 * least) return {1, rows};
  const Index each = std::max(least, parts_of(rows, most));
  return {parts_of(rows, each), each};
}

LaunchShape shape_for_tiles(const Queue& queue, Index tiles) {
  return {std::min(tiles, Index{queue.multiprocessors} * 64), most_threads, most_threads * sizeof(float)};
}

template <class Terms>
cudaError_t sum_columns(const Queue& queue, const ColumnSum<Terms>& kernel) {
  return launch(queue, shape_for_tiles(queue, kernel.tiles()), kernel);
}
template <class Terms>
cudaError_t sum_columns(const Queue& queue, const ColumnSums<Terms>& kernel) {
  Index tiles = 0;
  for (std::size_t k = 0; k < kernel.count; ++k) tiles += kernel.all[k].tiles();
  return launch(queue, shape_for_tiles(queue, tiles), kernel);
}

/// The sums of the bands, in the call's workspace.
Out bands_of_call(const Call& call) {
  const Index width = call.in[0].width;
  return {reinterpret_cast<float*>(call.workspace), bands_of_sum(call.in[0].rows).count, width, width};
}
std::size_t column_sum_workspace(const Call& call) {
  const Out bands = bands_of_call(call);
  return static_cast<std::size_t>(bands.rows * bands.width) * sizeof(float);
}

/// The sum of all rows of terms.
template <class Terms>
int sum_all(const Call& call, const Queue& queue) {
  const auto terms = made_from<Terms>(call);
  const BandsOfRows bands = bands_of_sum(terms.x.rows);
  if (bands.count == 1) return sum_columns(queue, ColumnSum<Terms>{terms, call.out, bands.rows, adds(call)});
  const Out sums = bands_of_call(call);
  const int error = sum_columns(queue, ColumnSum<Terms>{terms, sums, bands.rows, false});
  if (error != cudaSuccess) return error;
  return sum_columns(queue, ColumnSum<Elements>{Elements{sums}, call.out, bands.count, adds(call)});
}

/// The same for several calls, by two launches.
template <class Terms>
int sum_each(const Call* calls, std::size_t count, const Queue& queue) {
  std::vector<const Call*> order;  // calls with one result follow each other
  for (std::size_t i = 0; i < count; ++i) {
    auto place = order.end();
    for (auto k = order.begin(); k != order.end(); ++k) {
      if ((*k)->out.data == calls[i].out.data) place = k + 1;
    }
    order.insert(place, &calls[i]);
  }
  for (std::size_t done = 0; done < count;) {
    ColumnSums<Terms> to_bands;
    ColumnSums<Elements> to_results;
    for (; done < count && to_bands.count < to_bands.most; ++done) {
      const Call& call = *order[done];
      const BandsOfRows bands = bands_of_sum(call.in[0].rows);
      const Out sums = bands_of_call(call);
      to_bands.all[to_bands.count++] = {made_from<Terms>(call), sums, bands.rows, false};
      to_results.all[to_results.count++] = {Elements{sums}, call.out, bands.count, adds(call)};
    }
    if (const int error = sum_columns(queue, to_bands); error != cudaSuccess) return error;
    if (const int error = sum_columns(queue, to_results); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

struct AddBias : OfXY {
  static constexpr const char* name = "add_bias";
  WINDROW_ON_DEVICE float operator()(Index r, Index c) const { return at(x, r, c) + at(y, 0, c); }
};

struct MulRow : OfXY {
  static constexpr const char* name = "mul_row";
  WINDROW_ON_DEVICE float operator()(Index r, Index c) const { return at(x, r, c) * at(y, 0, c); }
};

struct SpreadRows : OfX {
  static constexpr const char* name = "spread_rows";
  WINDROW_ON_DEVICE float operator()(Index, Index c) const { return at(x, 0, c); }
};

struct SpreadColumns : OfX {
  static constexpr const char* name = "spread_columns";
  WINDROW_ON_DEVICE float operator()(Index r, Index) const { return at(x, r, 0); }
};

struct MulColumns : OfXY {
  static constexpr const char* name = "mul_columns";
  WINDROW_ON_DEVICE float operator()(Index r, Index c) const { return at(x, r, c) * at(y, r, 0); }
};

/// The distances between neighbouring elements of a column and of a row, for a matrix that is stored in a row.
struct Steps {
  Index row, column;
};

struct MatmulEach : OfXY {
  static constexpr const char* name = "matmul_each";
  Index inner, columns;
  Steps of_x, of_y;

  WINDROW_ON_DEVICE float operator()(Index r, Index c) const {
    const Index row = c / columns;
    const float* left = x.row(r) + row * of_x.row;
    const float* right = y.row(r) + (c - row * columns) * of_y.column;
    float sum = 0;
    for (Index i = 0; i < inner; ++i) sum += left[i * of_x.column] * right[i * of_y.row];
    return sum;
  }
};

template <bool x_transposed, bool y_transposed>
int product_each(const Call& call, const Queue& queue) {
  const auto& sizes = call.attributes.sizes;
  const Steps of_x = x_transposed ? Steps{1, sizes[0]} : Steps{sizes[1], 1};
  const Steps of_y = y_transposed ? Steps{1, sizes[1]} : Steps{sizes[2], 1};
  return run_each(call, queue, MatmulEach{call.in[0], call.in[1], sizes[1], sizes[2], of_x, of_y});
}

template <bool x_transposed, bool y_transposed>
int product(const Call& call, const Queue& queue) {
  return multiply(queue, {.x = call.in[0],
                          .y = call.in[1],
                          .out = call.out,
                          .x_transposed = x_transposed,
                          .y_transposed = y_transposed,
                          .add = adds(call)});
}

int transpose(const Call& call, const Queue& queue) {
  const In x = call.in[0];
  const Index teams = std::min(parts_of(x.rows, tile) * parts_of(x.width, tile), Index{queue.multiprocessors} * 64);
  return launch(queue, {teams, most_threads, tile * Transpose::pitch * sizeof(float)},
                Transpose{x, call.out, adds(call)});
}

}  // namespace

int prepare_products(const Queue& queue) {
  if (queue.blas != nullptr) return cudaSuccess;
  cublasHandle_t made = nullptr;
  if (const cublasStatus_t error = cublasCreate(&made); error != CUBLAS_STATUS_SUCCESS) return of_blas(error);
  if (const cublasStatus_t error = cublasSetStream(made, queue.stream); error != CUBLAS_STATUS_SUCCESS) {
    cublasDestroy(made);
    return of_blas(error);
  }
  queue.blas = made;
  return cudaSuccess;
}

/// cuBLAS stores matrices by columns, so it sees all of them transposed: it computes y' * x'.
int multiply(const Queue& queue, const Products& products) {
  const auto& [x, y, out, x_transposed, y_transposed, add, count, x_step, y_step, out_step] = products;
  if (out.rows == 0 || out.width == 0 || count == 0) return cudaSuccess;
  const Index inner = x_transposed ? x.rows : x.width;
  if (inner == 0) {
    if (add) return cudaSuccess;
    for (Index i = 0; i < count; ++i) {
      const Out part{out.data + i * out_step, out.rows, out.width, out.stride};
      const cudaError_t error =
          launch(queue, shape_for_elements(queue, out.rows * out.width), EachElement<Zeros>{Zeros{}, part, false});
      if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
  }
  for (const Index size : {out.rows, out.width, inner, leading(x), leading(y), leading(out), count}) {
    if (size > INT_MAX) return cudaErrorInvalidValue;
  }
  if (const int error = prepare_products(queue); error != cudaSuccess) return error;
  const auto number = [](Index size) { return static_cast<int>(size); };
  const auto of = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  const float one = 1, kept = add ? 1 : 0;
  constexpr cudaDataType_t real = CUDA_R_32F;
  const auto product = [&](Index i) {
    return cublasGemmEx(queue.blas, of(y_transposed), of(x_transposed), number(out.width), number(out.rows),
                        number(inner), &one, y.data + i * y_step, real, number(leading(y)), x.data + i * x_step, real,
                        number(leading(x)), &kept, out.data + i * out_step, real, number(leading(out)), queue.compute,
                        CUBLAS_GEMM_DEFAULT);
  };
  if (count == 1) return of_blas(product(0));
  const cublasStatus_t status = cublasGemmStridedBatchedEx(
      queue.blas, of(y_transposed), of(x_transposed), number(out.width), number(out.rows), number(inner), &one, y.data,
      real, number(leading(y)), y_step, x.data, real, number(leading(x)), x_step, &kept, out.data, real,
      number(leading(out)), out_step, number(count), queue.compute, CUBLAS_GEMM_DEFAULT);
  // The documentation does not say whether steps may be negative.
  if (status != CUBLAS_STATUS_INVALID_VALUE && status != CUBLAS_STATUS_NOT_SUPPORTED) return of_blas(status);
  for (Index i = 0; i < count; ++i) {
    if (const cublasStatus_t alone = product(i); alone != CUBLAS_STATUS_SUCCESS) return of_blas(alone);
  }
  return cudaSuccess;
}

const KernelEntry linear_kernels[] = {{"matmul", product<false, false>},
                                      {"matmul_nt", product<false, true>},
                                      {"matmul_tn", product<true, false>},
                                      {"matmul_each", product_each<false, false>},
                                      {"matmul_each_nt", product_each<false, true>},
                                      {"matmul_each_tn", product_each<true, false>},
                                      {"transpose", transpose},
                                      {"column_sum", sum_all<Elements>, column_sum_workspace, sum_each<Elements>},
                                      {"column_dot", sum_all<ElementProducts>, column_sum_workspace},
                                      each<AddBias>,
                                      each<MulRow>,
                                      each<SpreadRows>,
                                      each<SpreadColumns>,
                                      each<MulColumns>,
                                      {}};

}  // namespace windrow::cuda
