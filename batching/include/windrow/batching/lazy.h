// Lazy expressions: a program writes operations on single samples. They are recorded, and computed in batches when a
// value is requested. Start here for programs that build their graphs as they run.
//
//   windrow::LazyGraph graph(host, parameters);
//   std::vector<windrow::LazyExpr> losses;
//   for (const Sentence& sentence : minibatch) {
//     windrow::LazyExpr h = graph.input({0, 0, 0});
//     for (int word : sentence) h = tanh(matmul(concat(embedding(words, graph.index(word)), h), w) + b);
//     losses.push_back(softmax_cross_entropy(matmul(h, out), graph.index(sentence.label)));
//   }
//   graph.backward(losses);  // computed here, all at once
//   parameters.sgd(0.1);
//   graph.clear();
//
// After DyNet (Neubig et al. 2017), which batches operations of one operator, constants, parameters and widths. Here,
// operations that recur one after the other, such as a cell, become a vertex function, with all its optimisations.
//
// A *flush* computes everything that was recorded since the last one. Programs that repeat large cells can record each
// cell as one unit, which costs less: see lazy_cell.h.
//
// Contract
//   Order    The first request for a recorded value, backward(), and flush() compute everything recorded so far. More
//            can be recorded after that, but not between backward() and clear().
//   Numbers  As for Runner. How operations are batched may change the order of sums. Gradients are those at the values
//            that parameters have at backward(). Do not change, freeze or unfreeze a parameter between a flush that
//            used it and the backward() that differentiates it: backward() throws MisuseError. A step of sgd() counts
//            as a change even if it was skipped.
//            A loss that is not finite poisons the gradients. After backward(), its value() throws OpError, naming the
//            line that recorded it and the input, parameter or operator that it comes from; other values are returned.
//   Waiting  backward() after a flush blocks until earlier ops that write the parameters have finished.
//   Errors   These throw MisuseError at the call: operands that do not fit, indices outside the operator's index_range,
//            empty expressions, expressions from before clear(), and recording between backward() and clear(). If an
//            operator throws, the values that depend on it fail; their value() throws OpError, naming the line that
//            recorded the operator, and values that share operands with it may fail, too. On the first request for a
//            value of the failed flush, the unaffected values are computed again. This is skipped if a parameter was
//            written, a later flush was pushed, or thousands of values failed. If no value is requested, a later flush
//            throws, and can be called again.
//   Memory   A value stays available only if at least one handle has existed continuously since before its flush.
//            Values of one flush with the same width and the same place in the program share one tensor. It is freed at
//            the first flush after the last of their handles ends. A device's tensor is copied to the host in blocks of
//            256 KiB, each when one of its values is first read. For training, it is kept until backward() if later
//            flushes computed with it. A flush of at least recompute_below keeps its whole minibatch until backward().
//            For::inference keeps nothing for gradients. The graph also holds about 60 bytes of host memory for each
//            expression, and its inputs: for inference until some flushes after its last handle has ended, for training
//            until clear().
//   Threads  One at a time, for a graph and its expressions.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <array>
#include <concepts>
#include <coroutine>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "windrow/batching/expr.h"
#include "windrow/batching/expression_operators.h"
#include "windrow/batching/internal/lazy_weight.h"
#include "windrow/batching/runner.h"

namespace windrow {

class CellBody;
class LazyCell;
class LazyExpr;
class LazyGraph;
class LazyIndex;
namespace lazy {
class Record;

/// Counts the uses of a record: its graph and its handles. A record derives from it.
struct Uses {
  std::int64_t count = 1;
};

/// A handle's reference to its graph's record, which outlives the graph.
class RecordRef {
 public:
  explicit RecordRef(Uses& record) : record_(&record) { ++record_->count; }
  RecordRef(const RecordRef& other) : RecordRef(*other.record_) {}
  RecordRef& operator=(RecordRef other) noexcept { return std::swap(record_, other.record_), *this; }
  ~RecordRef() {
    if (--record_->count == 0) end();
  }
  Record* get() const;

 private:
  void end() noexcept;
  Uses* record_;
};

class OperandRef;

void resume_all(LazyGraph& graph, const std::vector<std::coroutine_handle<>>& tasks, std::source_location from);
std::coroutine_handle<>& next_of(LazyGraph& graph);
}  // namespace lazy

/// For the operators of expression_operators.h.
struct LazyExprTypes {
  using Result = LazyExpr;
  using Value = lazy::OperandRef;
  using Input = lazy::OperandRef;
  using Indices = LazyIndex;
  static LazyExpr apply(const Operator& op, const lazy::OperandRef& x, std::initializer_list<lazy::OperandRef> in,
                        std::initializer_list<LazyIndex> indices = {}, const Attributes& attributes = {});
  static LazyExpr elementwise(const Operator& op, const lazy::OperandRef& x, const lazy::OperandRef& y);
  static LazyExpr dropout(const lazy::OperandRef& x, const Dropout& how);
  static Index width(const lazy::OperandRef& x);
};

/// A handle to a value of one sample: a row of numbers. It may outlive its graph, but then it cannot be used. Using an
/// empty handle (default-constructed or moved from) throws MisuseError.
class LazyExpr : ExpressionOperators<LazyExprTypes> {
 public:
  LazyExpr() = default;
  LazyExpr(const LazyExpr& other);
  LazyExpr(LazyExpr&& other) noexcept
      : record_(std::exchange(other.record_, nullptr)), node_(other.node_), minibatch_(other.minibatch_) {}
  LazyExpr& operator=(LazyExpr other) noexcept {
    std::swap(record_, other.record_);
    std::swap(node_, other.node_);
    std::swap(minibatch_, other.minibatch_);
    return *this;
  }
  ~LazyExpr() {
    if (record_ != nullptr) release();
  }

  /// Throws MisuseError for an empty handle.
  Index width() const;
  /// Returns the value: flushes the graph if necessary, and waits. Throws OpError if it depends on a failed operator,
  /// and, after backward(), for a loss that is not finite.
  std::vector<float> value(std::source_location from = std::source_location::current()) const;
  /// The value of an expression of width 1. Throws MisuseError for another width.
  float scalar(std::source_location from = std::source_location::current()) const;

 private:
  friend class lazy::Record;
  friend class LazyGraph;
  friend class LazyValue;
  void release();
  /// Makes an empty handle name a node; the caller counts it.
  void name(lazy::Record& record, std::int32_t node);
  /// Whether the expression has been flushed.
  bool computed() const;
  /// Throws MisuseError for an empty handle.
  lazy::Record& record(std::string_view what) const;

  lazy::Record* record_ = nullptr;  // null if empty
  std::int32_t node_ = -1;          // kept after a move; -1 if the handle was never set
  std::uint32_t minibatch_ = 0;     // the number of clear() calls before it was recorded
};

/// Index operands, such as a row of a table or a label. It may outlive its graph, but then it cannot be used.
class LazyIndex {
 public:
  static constexpr std::size_t widest = 4;

 private:
  friend class lazy::Record;
  friend class LazyGraph;
  LazyIndex(lazy::Uses& record, std::int32_t value) : values_{value}, width_(1), record_(record) {}

  std::array<std::int32_t, widest> values_;
  std::uint32_t width_;
  lazy::RecordRef record_;  // for embedding(), which finds the graph by this operand alone
};

/// An expression, a parameter or a function of parameters. A handle, for lists that a program makes as it runs.
class LazyOperand {
 public:
  LazyOperand(LazyExpr expr) : expr_(std::move(expr)) {}
  LazyOperand(const Parameter& parameter) : weight_(parameter) {}
  LazyOperand(LazyWeight weight) : weight_(std::move(weight)) {}

 private:
  friend class lazy::OperandRef;
  LazyExpr expr_;
  std::optional<LazyWeight> weight_;  // none if it is an expression
};

/// The same for the duration of a call, with the source line of the call (operators cannot have a default argument for
/// it). It refers to its argument, so it must not be stored.
class lazy::OperandRef : ExpressionOperators<LazyExprTypes> {
 public:
  using Line = std::source_location;
  /// An empty expression, written {}.
  OperandRef() : expr_(&none()) {}
  OperandRef(const LazyExpr& expr, Line from = Line::current()) : expr_(&expr), from_(from) {}
  OperandRef(const Parameter& parameter, Line from = Line::current()) : parameter_(&parameter), from_(from) {}
  OperandRef(const LazyWeight& weight, Line from = Line::current()) : weight_(&weight), from_(from) {}
  OperandRef(const LazyOperand& operand, Line from = Line::current())
      : expr_(operand.weight_ ? nullptr : &operand.expr_),
        weight_(operand.weight_ ? &*operand.weight_ : nullptr),
        from_(from) {}
  Line from() const { return from_; }
  /// Throws MisuseError for a parameter or a function of parameters.
  const LazyExpr& operand() const;

 private:
  friend class lazy::Record;
  static const LazyExpr& none() {
    static const LazyExpr empty;
    return empty;
  }
  const LazyExpr* expr_ = nullptr;
  const Parameter* parameter_ = nullptr;
  const LazyWeight* weight_ = nullptr;
  Line from_ = {};
};
using LazyHere [[deprecated("see lazy::OperandRef")]] = lazy::OperandRef;
WINDROW_DECLARE_EXPRESSION_OPERATORS(LazyExprTypes);

struct LazyOptions {
  /// Training keeps what backward() needs; inference does not, and is faster.
  enum class For : std::uint8_t { training, inference } use = For::training;
  /// Each flush is a minibatch of a runner with these options; `ahead` counts flushes. Schedule policy serial computes
  /// one vertex at a time, with the same kernels.
  RunnerOptions runner = {.schedule = SchedulePolicy::agenda};
  /// A flush with fewer floating point operations (in products with parameters) than this keeps only its values.
  /// backward() recomputes what gradients need, for consecutive such flushes at once, so that they share batches.
  /// Operators must give the same results for the same operands. 0 disables recomputation.
  std::int64_t recompute_below = 20'000'000;
};

/// Counted since the graph was constructed.
struct LazyStats {
  std::int64_t expressions = 0;  ///< recorded and computed
  std::int64_t remembered = 0;   ///< expressions that the graph holds now; see Memory
  std::int64_t vertices = 0;     ///< into which expressions were grouped; recomputed ones count again
  std::int64_t kinds = 0;        ///< kinds of vertices currently known; unused ones are forgotten
  std::int64_t flushes = 0;
  std::int64_t lower_ns = 0;  ///< host time to find vertices, without recording and scheduling
  /// Excludes moving values between flushes. `times` may lack steps that ran after clear() on a runner that new kinds
  /// had replaced.
  RunnerStats runner = {};
};

/// An owner. It may outlive its Parameters object, whose values it keeps alive, and its device's engine; members that
/// need the engine throw MisuseError then.
class LazyGraph {
 public:
  /// Throws MisuseError as Runner does.
  LazyGraph(const Device& device, const ParameterSets& parameters, LazyOptions options = {});
  ~LazyGraph();
  LazyGraph(const LazyGraph&) = delete;
  LazyGraph& operator=(const LazyGraph&) = delete;

  /// Records a row of numbers. Throws MisuseError between backward() and clear().
  LazyExpr input(std::span<const float> values, std::source_location from = std::source_location::current());
  LazyExpr input(std::initializer_list<float> values, std::source_location from = std::source_location::current()) {
    return input(std::span(values.begin(), values.size()), from);
  }
  /// A row of equal numbers, recorded as an input. Throws MisuseError as input() does, for a negative width, and for a
  /// finite number beyond the range of a float.
  LazyExpr constant(Index width, double value, std::source_location from = std::source_location::current());
  LazyExpr zeros(Index width, std::source_location from = std::source_location::current()) {
    return constant(width, 0, from);
  }
  /// The row of a parameter that has exactly one, such as an initial state, or of a function of parameters. Throws
  /// MisuseError for another number of rows.
  LazyExpr parameter(const Parameter& parameter, std::source_location from = std::source_location::current());
  LazyExpr parameter(const LazyWeight& parameter, std::source_location from = std::source_location::current());
  /// Makes a cell, which lasts as long as the graph; see lazy_cell.h. `body` runs once now, and again when the runner
  /// plans, so what it refers to must last as long as the graph. Throws MisuseError if `body` misuses its argument, or
  /// has too many operands or results.
  LazyCell cell(std::string name, std::function<void(CellBody&)> body);
  /// Makes an index operand.
  LazyIndex index(std::int32_t value);
  /// Throws MisuseError for more than LazyIndex::widest values.
  LazyIndex index(std::span<const std::int32_t> values);

  /// Computes everything recorded since the last flush. Returns when the ops are pushed. Throws OpError for an earlier
  /// flush that failed unnoticed.
  void flush(std::source_location from = std::source_location::current());
  /// Pushes the gradients of the sum of the losses, which have width 1, with respect to all parameters. Throws
  /// MisuseError without losses, for a loss of another width, for a second call before clear(), for a graph made for
  /// inference, and if a parameter changed (see Numbers). Throws OpError if a loss depends on a value that is known to
  /// have failed.
  void backward(std::span<const LazyExpr> losses, std::source_location from = std::source_location::current());
  /// Makes backward() keep the gradient of an input, for gradient(). Throws MisuseError for another expression, after
  /// a flush or backward(), and for a graph made for inference.
  void keep_gradient(const LazyExpr& input);
  /// The gradient of an input that keep_gradient() named: zeros if no loss depends on it. Waits. Throws MisuseError
  /// before backward() and for another expression, and OpError if it failed.
  std::vector<float> gradient(const LazyExpr& input, std::source_location from = std::source_location::current()) const;
  /// Forgets all expressions. Keeps the plans for batching them, unless most plans have not been used for long.
  void clear();

  /// Forgets what this graph has learned about batching, on which rounding depends. Call it when you save a checkpoint:
  /// then the graph continues with the same bits as a new graph of the same program, parameters and options. Throws
  /// MisuseError while expressions are recorded; call it after clear().
  void forget();
  [[deprecated("call forget() where a checkpoint is saved")]] std::vector<std::int64_t> history() const { return {}; }
  [[deprecated("a new graph needs none: see forget()")]] void set_history(std::span<const std::int64_t>) {}

  LazyStats stats() const;
  /// The kinds of vertices that were found, and the plans that compute them, as readable text.
  std::string describe() const;

 private:
  friend void lazy::resume_all(LazyGraph& graph, const std::vector<std::coroutine_handle<>>& tasks,
                               std::source_location from);
  friend std::coroutine_handle<>& lazy::next_of(LazyGraph& graph);
  lazy::Record* record_;
};

/// Applies any operator, built-in or user-defined: elementwise, or rowwise with parameters as its `whole` operands.
/// Parameters of one row as other operands are used as in expr.h. At least one operand must be an expression or index;
/// at most 31 may be expressions. Throws MisuseError, naming the operator and the shapes, if they do not fit.
/// Attributes are constants, so operations with different attributes are not batched together; the exceptions are the
/// factor of op::scale and the seed of op::dropout, which are treated as inputs. So to add a number that changes as the
/// program runs, use a LazyGraph::constant instead of writing `x + 0.5`. Errors name the line `from`.
LazyExpr apply(const Operator& op, std::span<const LazyOperand> in, std::span<const LazyIndex> indices = {},
               const Attributes& attributes = {}, std::source_location from = std::source_location::current());
template <class = void>  // see apply() in expr.h
LazyExpr apply(const Operator& op, std::initializer_list<lazy::OperandRef> in,
               std::initializer_list<LazyIndex> indices = {}, const Attributes& attributes = {},
               std::source_location from = std::source_location::current());

/// matmul(x, w) + b.
LazyExpr affine(const lazy::OperandRef& x, const Parameter& w, const Parameter& b);
LazyExpr concat(std::span<const LazyOperand> parts, std::source_location from = std::source_location::current());
LazyExpr concat(std::span<const LazyExpr> parts, std::source_location from = std::source_location::current());
LazyExpr concat(std::initializer_list<lazy::OperandRef> parts,
                std::source_location from = std::source_location::current());
template <std::same_as<LazyExpr>... Others>
LazyExpr concat(const lazy::OperandRef& first, const Others&... others) {
  return concat({first.operand(), others...}, first.from());
}
LazyExpr embedding(const Parameter& table, const LazyIndex& row,
                   std::source_location from = std::source_location::current());
/// The mean over the columns. Throws MisuseError for width 0.
LazyExpr mean(const lazy::OperandRef& x);

/// Sum and mean of expressions of one width. Throw MisuseError if there are none. lazy_cell.h has more functions of
/// lists, and expr.h has them for vertex functions and cells.
LazyExpr sum(std::span<const LazyExpr> terms, std::source_location from = std::source_location::current());
LazyExpr mean(std::span<const LazyExpr> terms, std::source_location from = std::source_location::current());
inline LazyExpr sum(std::initializer_list<LazyExpr> terms,
                    std::source_location from = std::source_location::current()) {
  return sum(std::span(terms.begin(), terms.size()), from);
}
inline LazyExpr mean(std::initializer_list<LazyExpr> terms,
                     std::source_location from = std::source_location::current()) {
  return mean(std::span(terms.begin(), terms.size()), from);
}

}  // namespace windrow
