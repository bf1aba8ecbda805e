// The record of a lazy graph, which its operators write and its flushes read.
#pragma once

#include <map>

#include "lazy/cells.h"
#include "lazy/run_cutter.h"
#include "lazy/weights.h"
#include "windrow/batching/lazy.h"

namespace windrow::lazy {

class Epochs;

/// Destroyed when the graph and the last handle have ended.
class Record : public Uses {
 public:
  Record(const Device& device, std::shared_ptr<ParameterStores> parameters, LazyOptions options);
  ~Record();
  void release() {
    if (--count == 0) delete this;
  }
  /// Called when the graph ends: handles cannot be used any more.
  void close();

  const Nodes& nodes() const { return nodes_; }
  const Weights& weights() const { return weights_; }
  const RunCutter& cutter() const { return cutter_; }
  RunCutter& cutter() { return cutter_; }
  void start_next_epoch();
  /// See Nodes::forget_unnamed().
  void forget_unnamed(NodeId last_epoch) {
    if (nodes_.forget_unnamed(last_epoch)) cutter_.forget_before(last_epoch);
  }
  /// Tasks that wait for the next flush.
  std::vector<std::coroutine_handle<>> suspended;
  std::coroutine_handle<> next;  ///< the coroutine to resume when the running one suspends or ends; null for none

  LazyExpr add_input(std::span<const float> values, std::source_location from);
  /// Null for a parameter or a function of parameters.
  static const LazyExpr* expr_of(const OperandRef& operand) { return operand.expr_; }
  /// Throws MisuseError for an empty handle.
  static Record& of(const LazyExpr& x, std::string_view what) { return x.record(what); }
  /// The keys of one call of dropout(); see op::dropout. None in inference.
  struct DropoutKeys {
    std::uint64_t seed;
    std::array<std::int32_t, 3> row;
    std::array<std::int32_t, 5> row_and_seed() const {
      return {row[0], row[1], row[2], static_cast<std::int32_t>(seed), static_cast<std::int32_t>(seed >> 32)};
    }
  };
  std::optional<DropoutKeys> next_dropout() {
    if (use_ == LazyOptions::For::inference || stage_ == Stage::closed) return std::nullopt;
    const std::uint64_t draw = parameters_->draw(counted_.value_or(parameters_->minibatches()));
    return DropoutKeys{parameters_->seed(), {static_cast<std::int32_t>(draw), dropouts_++, graph_}};
  }
  /// Counts a minibatch of the parameters: one from clear() to clear(), however many flushes compute for training.
  void count_minibatch() {
    if (!counted_) counted_ = parameters_->next_minibatch();
  }
  LazyIndex index(std::span<const std::int32_t> values);
  /// Records an operation.
  static LazyExpr apply(const Operator& op, std::span<const OperandRef> in, std::span<const LazyIndex> indices,
                        const Attributes& attributes, std::source_location from);
  /// The width of an operand; 0 for one that apply() refuses.
  static Index width_of(const OperandRef& x) {
    const auto of_row = [](const Type& type) { return type.rows == Rows::count(1) ? type.width : 0; };
    if (x.parameter_ != nullptr) return of_row(x.parameter_->type());
    if (x.weight_ != nullptr) return of_row(x.weight_->type());
    const bool usable = x.expr_->record_ != nullptr && x.expr_->minibatch_ == x.expr_->record_->minibatch_;
    return usable ? x.expr_->record_->nodes_.width(x.expr_->node_) : 0;
  }
  /// Whether x is an expression of one column, and `other` wider. apply() takes a parameter of one element as it is.
  static bool is_column(const OperandRef& x, const OperandRef& other) {
    return x.expr_ != nullptr && width_of(x) == 1 && width_of(other) > 1;
  }
  void clear();
  /// Forbids recording until clear().
  void seal() { stage_ = Stage::differentiated; }

  Epochs& epochs() { return *epochs_; }

  // Cells: cells.cc.
  /// The cell that a function of lists calls, for elements of these widths.
  Cell& own_cell(OwnCell which, const std::vector<Index>& each);
  LazyCell make_cell(std::string name, std::function<void(CellBody&)> body);
  /// Records a call of a cell.
  void call(Cell& cell, std::span<const OperandRef> operands, std::span<const LazyIndex> indices,
            std::span<const LazyExpr> list, std::span<LazyExpr> results, std::source_location from);

  /// A clock that tells what was used long ago. It counts minibatches, and in inference every 16 flushes as one.
  std::uint32_t age() const { return minibatch_ + flushes_ / 16; }
  void count_flush() { ++flushes_; }
  /// Precondition: there are no nodes.
  void forget_keys();
  /// The node of an expression. Throws MisuseError if it is of another graph, or from before clear().
  NodeId checked(const LazyExpr& expr, std::string_view what) const {
    if (expr.record_ != this || expr.minibatch_ != minibatch_ || stage_ == Stage::closed) [[unlikely]]
      refuse(expr, what);
    return expr.node_;
  }

 private:
  friend class windrow::LazyExpr;
  /// Returns a handle of the node.
  LazyExpr add(std::uint32_t key, std::span<const NodeId> operands, std::int32_t data, std::source_location from);
  Inferred infer(const Key& key) const;
  // Throw MisuseError.
  [[noreturn]] void refuse_to_record(std::string_view what) const;
  [[noreturn]] void refuse(const LazyExpr& expr, std::string_view what) const;
  /// The number of an operand that is not an expression; see Key.
  std::int32_t number_of(const OperandRef& operand) {
    if (operand.weight_ != nullptr) return weights_.number_of(*operand.weight_, *parameters_);
    return parameters_->number_of(*operand.parameter_);
  }
  /// An application of an operator, as the program calls it.
  struct Written {
    const Operator& op;
    std::span<const OperandRef> in;
    std::span<const LazyIndex> indices;
    const Attributes& attributes;
    bool has_seed() const { return &op == &op::dropout && attributes.made_by == op.attributes && indices.size() == 1; }
  };
  static Record& record_of(const Written& written);
  void take_operands(const Written& written);
  bool is(const Key& key, const Written& written);
  void set_key(const Written& written);
  void check_indices(std::uint32_t key, std::span<const LazyIndex> indices) const;
  /// The number of a key, which may be new.
  std::uint32_t number_of_key(const Key& key);
  // Of cells:
  const std::vector<std::uint32_t>& keys_of(Cell& cell, std::uint32_t missing);
  const std::vector<std::uint32_t>& add_keys_of(Cell& cell, std::uint32_t missing);
  NodeId checked_operand(const Cell& cell, const LazyExpr& operand, Index expected) const;
  void check_index(const Cell& cell, const Cell::IndexOperand& expected, const LazyIndex& index) const;
  [[noreturn]] void refuse_index(const Cell& cell, const Cell::IndexOperand& expected, const LazyIndex& index) const;
  std::span<const NodeId> with_list(Cell& cell, std::span<const NodeId> operands, std::span<const LazyExpr> list,
                                    std::source_location from);
  bool reads_in_place(Cell& cell, NodeId id, std::size_t place);
  NodeId copy(const Cell& cell, NodeId id, std::size_t place, std::source_location from);

  std::uint32_t minibatch_ = 0;
  std::uint32_t flushes_ = 0;  // see age()
  enum class Stage : std::uint8_t { open, differentiated, closed } stage_ = Stage::open;
  std::shared_ptr<ParameterStores> parameters_;  // null when closed
  Weights weights_;
  Nodes nodes_;
  RunCutter cutter_{nodes_};
  const LazyOptions::For use_;
  std::int32_t dropouts_ = 0;             // since clear()
  std::optional<std::uint64_t> counted_;  // the number of the minibatch that was counted since clear()
  std::int32_t graph_ = -1;               // number of the graph in its first set; -1 for inference and when closed
  std::unique_ptr<Epochs> epochs_;
  Key scratch_;                           // of the application; reused, so that an application allocates nothing
  std::vector<NodeId> scratch_operands_;  // and the elements of a list
  std::vector<std::shared_ptr<Cell>> cells_;
  std::vector<std::unique_ptr<Cell>> own_cells_;
  std::map<std::pair<NodeId, std::uint32_t>, NodeId> copies_;  // by value and key of the copy; copies are pending
};

inline Record* RecordRef::get() const { return static_cast<Record*>(record_); }

}  // namespace windrow::lazy

namespace windrow {

inline void LazyExpr::name(lazy::Record& record, std::int32_t node) {
  record_ = &record;
  node_ = node;
  minibatch_ = record.minibatch_;
}

}  // namespace windrow
