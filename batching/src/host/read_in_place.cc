// Steps that read values of other vertices where these lie: attention without copies.
#include <algorithm>
#include <array>

#include "host/host_execution.h"

namespace windrow {
namespace {

/// Collects pairs of rows of two matrices for ascending rows of a result, and adds what the operator makes of them by
/// few calls of its kernel. Each row of the result takes its pairs in their order. Only a row with more pairs than a
/// call takes is divided, and by its own pairs alone, so a row gets the same bits whatever rows come before it.
class PairCalls {
 public:
  PairCalls(const HostStep& step, Matrix<float> out, Allocator& memory) : step_(step), out_(out), memory_(memory) {}

  /// The pairs that follow name rows of these.
  void take_from(Matrix<const float> x, Matrix<const float> y) {
    flush();
    in_ = {x, y};
  }
  void add(Index row, Index x, Index y) {
    if (pairs_ == most && row == first_ + rows_ - 1) {
      flush_earlier_rows();
    } else if (pairs_ == most || (pairs_ > 0 && row - first_ >= most)) {
      flush();
    }
    if (pairs_ == 0) first_ = row;
    for (; first_ + rows_ <= row; ++rows_) bounds_[2 * at(rows_)] = bounds_[2 * at(rows_) + 1] = position(pairs_);
    order_[2 * at(pairs_)] = position(x);
    order_[2 * at(pairs_) + 1] = position(y);
    bounds_[2 * at(rows_) - 1] = position(++pairs_);
  }
  void flush() {
    call(rows_, pairs_);
    rows_ = pairs_ = 0;
  }

 private:
  static constexpr Index most = 1024;
  static std::size_t at(Index i) { return static_cast<std::size_t>(i); }
  static std::int32_t position(Index i) { return static_cast<std::int32_t>(i); }

  /// Keeps the pairs of the last row, unless there are no others.
  void flush_earlier_rows() {
    const Index begin = bounds_[2 * at(rows_ - 1)], kept = pairs_ - begin;
    if (begin == 0) return flush();
    call(rows_ - 1, begin);
    std::copy_n(order_.begin() + 2 * begin, 2 * kept, order_.begin());
    first_ += rows_ - 1;
    rows_ = 1;
    pairs_ = kept;
    bounds_[0] = 0;
    bounds_[1] = position(kept);
  }
  void call(Index rows, Index pairs) {
    if (pairs == 0) return;
    const std::array<Matrix<const std::int32_t>, 2> indices = {
        {{bounds_.data(), rows, 2, 2}, {order_.data(), pairs, 2, 2}}};
    const Matrix<float> out{out_.row(first_), rows, out_.width, out_.stride};
    step_.kernel({in_, indices, out, step_.attributes, Write::add, step_.op}, memory_);
  }

  const HostStep& step_;
  const Matrix<float> out_;
  Allocator& memory_;
  std::array<Matrix<const float>, 2> in_ = {};
  Index first_ = 0, rows_ = 0, pairs_ = 0;
  std::array<std::int32_t, 2 * most> bounds_, order_;  // of rows_ rows from first_ on; of pairs_ pairs
};

void clear(Matrix<float> matrix) {
  for (Index r = 0; r < matrix.rows; ++r) std::fill_n(matrix.row(r), matrix.width, 0.0f);
}

Matrix<const float> columns_of(Matrix<const float> matrix, Index begin, Index width) {
  return {matrix.data + begin, matrix.rows, width, matrix.stride};
}

}  // namespace

void HostExecution::read_in_place(const HostStep& step, const Tile& tile) {
  const Matrix<float> to = place(step.out, tile);
  if (step.write == Write::overwrite) clear(to);
  const bool dot = step.does == Step::Does::gather_dot, of_edges = tile.rate == Rate::edges;
  const Matrix<const float> operands = operand(step.in[0], tile);  // of the other rate, so all rows
  const Index width = dot ? operands.width : to.width;
  const TypePlan& here = plan_->types[tile.type];
  const auto& edge_begin = layout_.types[tile.type].edge_begin;
  const Producer* const producers = layout_.producers(tile.type, Rate::edges).data() + (step.child - here.by_number);
  PairCalls calls(step, to, *device_.memory);
  std::size_t type = plan_->types.size();  // of the last child; neighbours usually have children of one type
  bool stored = false;
  const auto look = [&](Index edge, Index row, Index operand_row) {
    const Producer& from = producers[edge * static_cast<Index>(here.per_edge)];
    if (from.row < 0) return;
    if (from.type != type) {
      type = from.type;
      const Place& lies = plan_->types[type].stored[step.state];
      stored = lies.in != Place::In::nowhere;
      const Tile all{type, Rate::vertices, {0, layout_.types[type].rows}};
      if (stored) calls.take_from(columns_of(operand(lies, all), step.first_column, width), operands);
    }
    if (stored) calls.add(row, from.row, operand_row);
  };
  const Range rows = tile.rows;
  if (of_edges) {
    const auto consumer = std::upper_bound(edge_begin.begin(), edge_begin.end(), rows.begin) - 1;
    Index vertex = consumer - edge_begin.begin();
    for (Index edge = rows.begin; edge < rows.end; ++edge) {
      while (edge_begin[static_cast<std::size_t>(vertex) + 1] <= edge) ++vertex;
      look(edge, edge - rows.begin, vertex);
    }
  } else {
    for (Index vertex = rows.begin; vertex < rows.end; ++vertex) {
      const auto at = static_cast<std::size_t>(vertex);
      for (Index edge = edge_begin[at]; edge < edge_begin[at + 1]; ++edge) look(edge, vertex - rows.begin, edge);
    }
  }
  calls.flush();
}

/// The consumers that send products are visited type by type and product by product.
void HostExecution::take_incoming_products(const HostStep& step, const Tile& tile) {
  const Matrix<float> to = place(step.out, tile);
  if (step.write == Write::overwrite) clear(to);
  const TypeRows& here = layout_.types[tile.type];
  const auto first_further = std::lower_bound(here.further.begin(), here.further.end(),
                                              TypeRows::Further{static_cast<std::int32_t>(tile.rows.begin)});
  for (std::size_t t = 0; t < plan_->types.size(); ++t) {
    const TypeRows& consumers = layout_.types[t];
    if (consumers.edges == 0) continue;
    for (const TypePlan::Product& product : plan_->types[t].products) {
      if (product.state != step.state) continue;
      const Matrix<float> columns{to.data + product.first_column, to.rows, product.row.width, to.stride};
      const std::int32_t* const consumer = consumers.indices[product.consumer].elements.data();
      PairCalls calls(step, columns, *device_.memory);
      calls.take_from(operand(product.row, {t, Rate::vertices, {0, consumers.rows}}),
                      operand(product.factor, {t, Rate::edges, {0, consumers.edges}}));
      const auto look = [&](Index row, Slot slot) {
        if (slot.row < 0 || slot.type != t || slot.child != product.child) return;
        calls.add(row - tile.rows.begin, consumer[slot.row], slot.row);
      };
      auto more = first_further;
      for (Index row = tile.rows.begin; row < tile.rows.end; ++row) {
        look(row, layout_.slot(tile.type, row));
        for (; more != here.further.end() && more->row == row; ++more) look(row, more->slot);
      }
      calls.flush();
    }
  }
}

}  // namespace windrow
