// The record of a lazy graph: a node for each expression in the order of recording, each after its operands.
#pragma once

#include <algorithm>
#include <coroutine>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lazy/cells.h"
#include "lazy/keys.h"
#include "lazy/list_places.h"
#include "lazy/weights.h"
#include "parameters/parameter_stores.h"
#include "windrow/batching/lazy.h"

namespace windrow::lazy {

using NodeId = std::int32_t;
inline std::size_t at(std::int32_t number) { return static_cast<std::size_t>(number); }

/// The most nodes of a run. The cost of planning a kind grows faster than its number of nodes.
inline constexpr NodeId most_nodes = 256;

/// Reserves memory for `more` elements, so that adding them cannot throw. Growing is rare, so it is not inlined.
template <class T>
[[gnu::noinline]] void grow(std::vector<T>& list, std::size_t more) {
  list.reserve(std::max(2 * list.size(), list.size() + more));
}
template <class T>
void make_room(std::vector<T>& list, std::size_t more) {
  if (list.capacity() - list.size() < more) [[unlikely]]
    grow(list, more);
}

/// A list whose first elements can be forgotten; the others keep their numbers. Room is made before elements are added,
/// so adding them cannot throw.
template <class T>
class Tail {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  std::int32_t first() const { return first_; }
  std::int32_t end() const { return first_ + size_; }
  bool has(std::int32_t number) const { return number >= first_; }
  T& operator[](std::int32_t number) { return kept_[at(number - first_)]; }
  const T& operator[](std::int32_t number) const { return kept_[at(number - first_)]; }
  T& back() { return kept_[at(size_ - 1)]; }
  const T& back() const { return kept_[at(size_ - 1)]; }
  /// Elements from `number` on, up to the end.
  const T* from(std::int32_t number) const { return kept_.get() + (number - first_); }
  void make_room(std::size_t more) {
    if (capacity_ - at(size_) < more) [[unlikely]]
      grow(more);
  }
  void push_back(const T& element) { kept_[at(size_++)] = element; }
  /// Where the next elements go, for which room was made, and the call that adds them.
  T* room() { return kept_.get() + size_; }
  void add_from_room(std::size_t more) { size_ += static_cast<std::int32_t>(more); }
  template <class Iterator>
  void append(Iterator begin, Iterator end) {
    for (; begin != end; ++begin) push_back(*begin);
  }
  void clear() { first_ = size_ = 0; }
  void forget_from(std::int32_t number) { size_ = number - first_; }
  void forget_before(std::int32_t number) {
    std::copy(from(number), from(end()), kept_.get());
    size_ = end() - number;
    first_ = number;
  }

 private:
  [[gnu::noinline]] void grow(std::size_t more) {
    const std::size_t capacity = std::max(2 * at(size_), at(size_) + more);
    auto larger = std::make_unique_for_overwrite<T[]>(capacity);
    std::copy_n(kept_.get(), size_, larger.get());
    kept_ = std::move(larger);
    capacity_ = capacity;
  }

  std::unique_ptr<T[]> kept_;
  std::size_t capacity_ = 0;
  std::int32_t size_ = 0, first_ = 0;
};
template <class T>
void make_room(Tail<T>& list, std::size_t more) {
  list.make_room(more);
}

class Epochs;

/// The nodes of one graph, and the counts of their handles. Ends with the graph and the last handle.
class Record : public Uses {
 public:
  Record(const Device& device, std::shared_ptr<ParameterStores> parameters, LazyOptions options);
  ~Record();
  void retain() { ++count; }
  void release() {
    if (--count == 0) delete this;
  }
  /// Called when the graph ends: handles cannot be used any more.
  void close();

  struct Node {
    std::uint32_t key;
    std::int32_t operands;  ///< position of its operands in operands_
    std::int32_t data;      ///< position of its indices in indices_, or of its values or factor in inputs_
    /// Stays set after a flush, so later nodes are cut into runs in the same way whether this one is computed or not.
    std::int32_t run = 0;
    std::int32_t handles = 0;        ///< the number of handles
    std::source_location from = {};  ///< the line that recorded it
  };
  NodeId size() const { return nodes_.end(); }
  const Node& node(NodeId id) const {
    if (!nodes_.has(id)) [[unlikely]]
      return early(id);
    return nodes_[id];
  }
  std::span<const Node> nodes(NodeId begin, NodeId end) const { return {nodes_.from(begin), at(end - begin)}; }
  const Key& key(NodeId id) const { return keys_[node(id).key]; }
  Index width(NodeId id) const { return keys_.width(node(id).key); }
  /// The operands of a node that are expressions. Of a cell's first result, these are followed by those of the list.
  std::span<const NodeId> operands(NodeId id) const {
    const std::int32_t begin = node(id).operands, end = id + 1 < size() ? node(id + 1).operands : operands_.end();
    return {operands_.from(begin), at(end - begin)};
  }
  /// Results of one call are nodes that follow each other.
  NodeId first_result(NodeId id) const {
    return key(id).cell == nullptr ? id : id - static_cast<NodeId>(key(id).attributes.sizes[0]);
  }
  /// The cell whose call a run is, which begins with this node; null if it is none.
  const Cell* cell_of(NodeId begin) const { return key(begin).cell; }
  const std::int32_t* indices(NodeId id) const { return indices_.from(node(id).data); }
  const float* values(NodeId id) const { return inputs_.from(node(id).data); }
  /// Whether the node has a handle.
  bool named(NodeId id) const {
    const Node* const known = nodes_.has(id) ? &nodes_[id] : find_early(id);
    return known != nullptr && known->handles > 0;
  }
  const Keys& keys() const { return keys_; }
  const Weights& weights() const { return weights_; }
  /// The begins of runs in ascending order, from a node that begins a run, as the first node of a flush does; see Runs.
  struct RunBegin {
    NodeId node;
    bool apart;  ///< the first run after cut()
  };
  std::span<const RunBegin> run_begins(NodeId from) const;
  NodeId first_pending() const { return first_pending_; }
  void start_next_epoch() {
    first_pending_ = size();
    copies_.clear();
  }
  /// The operands of the nodes from `first` on that come before it, ascending; they may have no handle any more.
  std::vector<NodeId> operands_before(NodeId first) const;
  /// Forgets what no handle names and the nodes from `last_epoch` on do not use, from time to time: a graph for
  /// inference that is never cleared takes bounded memory. Operands, indices and values of the nodes before
  /// `last_epoch` are forgotten in any case. Precondition: no node is pending.
  void forget_unnamed(NodeId last_epoch);
  NodeId remembered() const { return nodes_.end() - nodes_.first() + static_cast<NodeId>(early_.size()); }
  /// Separates the next node from the last one: another instance records it.
  void cut() { cut_ = true; }
  /// Tasks that wait for the next flush.
  std::vector<std::coroutine_handle<>> suspended;
  std::coroutine_handle<> next;  ///< the coroutine to resume when the running one suspends or ends; null for none

  LazyExpr add_input(std::span<const float> values, std::source_location from);
  /// Null for a parameter or a function of parameters.
  static const LazyExpr* expr_of(const OperandRef& operand) { return operand.expr_; }
  /// Throws MisuseError for an empty handle.
  static Record& of(const LazyExpr& x, std::string_view what) { return x.record(what); }
  /// Of one call of dropout(), by op::dropout. None in inference.
  struct DropoutKeys {
    std::uint64_t seed;
    std::array<std::int32_t, 3> row;
    std::array<std::int32_t, 5> row_and_seed() const {
      return {row[0], row[1], row[2], static_cast<std::int32_t>(seed), static_cast<std::int32_t>(seed >> 32)};
    }
  };
  std::optional<DropoutKeys> next_dropout() {
    if (use_ == LazyOptions::For::inference || state_ == State::closed) return std::nullopt;
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
    return usable ? x.expr_->record_->width(x.expr_->node_) : 0;
  }
  /// Whether x is an expression of one column, and `other` wider. apply() takes a parameter of one element as it is.
  static bool is_column(const OperandRef& x, const OperandRef& other) {
    return x.expr_ != nullptr && width_of(x) == 1 && width_of(other) > 1;
  }
  /// The cell that a function of lists calls, for elements of these widths.
  Cell& own_cell(OwnCell which, const std::vector<Index>& each);
  LazyCell make_cell(std::string name, std::function<void(CellBody&)> body);
  /// Records a call of a cell.
  void call(Cell& cell, std::span<const OperandRef> operands, std::span<const LazyIndex> indices,
            std::span<const LazyExpr> list, std::span<LazyExpr> results, std::source_location from);
  void clear();
  /// Forbids recording until clear().
  void seal() { state_ = State::differentiated; }

  Epochs& epochs() { return *epochs_; }
  const ListPlaces& list_places() const { return list_places_; }
  /// The result that a list of the same flush could read in place; nothing for a value that lists copy.
  std::optional<ListPlaces::Result> listed(NodeId id) const;
  /// A clock for what was used long ago: it counts minibatches, and in inference flushes as well, 16 as one.
  std::uint32_t age() const { return minibatch_ + flushes_ / 16; }
  void count_flush() { ++flushes_; }
  /// See LazyGraph::forget().
  void forget();
  /// Precondition: there are no nodes.
  void forget_keys() {
    keys_ = {};
    ++keys_version_;
    weights_ = {};
    list_places_ = {};
  }
  /// The node of an expression. Throws MisuseError if it is of another graph, or from before clear().
  NodeId checked(const LazyExpr& expr, std::string_view what) const {
    if (expr.record_ != this || expr.minibatch_ != minibatch_ || state_ == State::closed) [[unlikely]]
      refuse(expr, what);
    return expr.node_;
  }

 private:
  friend class windrow::LazyExpr;
  NodeId add(std::uint32_t key, std::span<const NodeId> operands, std::int32_t data, std::source_location from);
  /// Makes room, so that append() cannot throw: a node is added completely or not at all.
  void reserve(std::size_t nodes, std::size_t operands) {
    const auto full = [](std::int32_t end, std::size_t more) { return at(end) + more >= INT32_MAX; };
    if (full(nodes_.end(), nodes) || full(operands_.end(), operands)) [[unlikely]]
      refuse_more();
    make_room(nodes_, nodes);
    make_room(operands_, operands);
    make_room(run_begins_, 1);
  }
  [[noreturn]] static void refuse_more();
  NodeId append(std::uint32_t key, std::span<const NodeId> operands, std::int32_t data, std::source_location from);
  void join_run(NodeId id, std::span<const NodeId> operands);
  bool joins(NodeId id, std::span<const NodeId> operands) const;
  NodeId repeated_by(NodeId id) const;
  void follow_period(NodeId id);
  bool same_key(NodeId a, NodeId b) const { return node(a).key == node(b).key; }
  Inferred infer(const Key& key) const;
  LazyExpr handle(NodeId id) {
    LazyExpr handle;
    handle.name(*this, id);
    retain();
    ++handles_of(id);
    return handle;
  }
  std::int32_t& handles_of(NodeId id) {
    if (!nodes_.has(id)) [[unlikely]]
      return const_cast<Node&>(early(id)).handles;
    return nodes_[id].handles;
  }
  /// A node before those in nodes_; null if it is forgotten.
  const Node* find_early(NodeId id) const;
  [[gnu::cold]] const Node& early(NodeId id) const;
  // Throw MisuseError.
  [[noreturn]] void refuse_to_record(std::string_view what) const;
  [[noreturn]] void refuse(const LazyExpr& expr, std::string_view what) const;
  /// The number of an operand that is no expression; see Key.
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
  const std::vector<std::uint32_t>& keys_of(Cell& cell, std::uint32_t missing);
  const std::vector<std::uint32_t>& add_keys_of(Cell& cell, std::uint32_t missing);
  [[noreturn]] void refuse_call(const Cell& cell, std::size_t operands, std::size_t indices, std::size_t list,
                                std::size_t results) const;
  NodeId checked_operand(const Cell& cell, const LazyExpr& operand, Index expected) const;
  void check_index(const Cell& cell, const Cell::IndexOperand& expected, const LazyIndex& index) const;
  [[noreturn]] void refuse_index(const Cell& cell, const Cell::IndexOperand& expected, const LazyIndex& index) const;
  std::span<const NodeId> with_list(const Cell& cell, std::span<const NodeId> operands, std::span<const LazyExpr> list,
                                    std::source_location from);
  bool is_copied(const Cell& cell, NodeId id, std::size_t place);
  NodeId copy(const Cell& cell, NodeId id, std::size_t place, std::source_location from);
  void begin_run(NodeId id, std::span<const NodeId> operands, bool apart);
  std::uint32_t number_of_key();

  std::uint32_t minibatch_ = 0;
  std::uint32_t flushes_ = 0;  // see age()
  enum class State : std::uint8_t { open, differentiated, closed } state_ = State::open;
  std::shared_ptr<ParameterStores> parameters_;  // null when closed
  Keys keys_;
  std::uint32_t keys_version_ = 0;
  Weights weights_;
  std::vector<std::shared_ptr<Cell>> cells_;
  std::vector<std::unique_ptr<Cell>> own_cells_;
  ListPlaces list_places_;
  Tail<Node> nodes_;
  struct Early {
    NodeId id;
    Node node;
  };
  std::vector<Early> early_;  // what is known of nodes before nodes_, ascending
  Tail<NodeId> operands_;
  Tail<std::int32_t> indices_;
  Tail<float> inputs_;
  const LazyOptions::For use_;
  std::int32_t dropouts_ = 0;             // since clear()
  std::optional<std::uint64_t> counted_;  // the number of the minibatch that was counted since clear()
  std::int32_t graph_ = -1;               // number of the graph in its first set; -1 for inference and when closed
  NodeId first_pending_ = 0;
  Tail<RunBegin> run_begins_;          // by run
  std::vector<std::int32_t> outside_;  // runs that contain operands of the last run
  std::vector<NodeId> latest_;         // by key: its latest node, or -1
  bool cut_ = false;                   // the next node begins a run and is apart
  NodeId call_end_ = 0;                // nodes before it belong to calls of cells, or to runs before those
  NodeId cycle_ = 0;                   // if the last run continues a repetition: the length of its period; else 0
  NodeId period_ = 0, repeated_ = 0;   // the last `repeated_` nodes have the keys of the nodes a period before
  std::unique_ptr<Epochs> epochs_;
  Key scratch_;  // reused, so that an application allocates nothing
  std::vector<NodeId> scratch_operands_, scratch_list_;
  std::map<std::pair<NodeId, std::uint32_t>, NodeId> copies_;  // by value and key of the copy, which is pending
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
