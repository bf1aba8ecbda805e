// Lazy expressions: operations of single instances are recorded as they are written, and computed in batches when a
// value is asked for. Start here for programs that make their graphs as they go.
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
// After DyNet (Neubig et al. 2017). An operation waits for a batch of such that have the same key: operator, constants,
// parameters and widths. But operations that programs write together are computed together: what is recorded in the
// same way again and again, such as a cell, becomes a vertex function, so that all that vertex functions have is theirs
// too. There is no other executor behind lazy expressions.
//
// Contract
//   Order    Expressions are computed when a value is asked for, or at backward(); all that are recorded then, at once.
//            More can be recorded after a value, but not between backward() and clear().
//   Numbers  As for Runner. How operations are batched may change the order of sums.
//            Gradients are those for the values that parameters have at backward(). A parameter must not change between
//            a flush that computes with it what a loss depends on and backward(), which throws MisuseError otherwise. A
//            loss that is not finite poisons the gradients. After backward(), its value() throws OpError, which names
//            the line that recorded it and the input, parameter or operator that it comes from; other values are
//            returned.
//   Waiting  backward() after a flush blocks until earlier ops that write the parameters have finished.
//   Errors   Operands that do not fit, indices out of range, empty expressions and those from before clear(), and
//            recording between backward() and clear() throw MisuseError at the call. An operator that throws fails the
//            values that are computed with it; value() of one of them throws OpError, which names the line that
//            recorded the operator. The other values of that flush are computed again without it when the first of them
//            is asked for, unless a parameter was written or a later flush was pushed in the meantime: then all of the
//            flush fail. If nobody asks for a value that failed, a later flush throws its error and can then be called
//            again.
//   Memory   A value stays available only if at least one handle has existed continuously since before its flush. It
//            exists once, with the other values of that flush that have its width and its place in the program; their
//            memory is freed at the first flush after the last of their handles is gone. For training they are kept
//            until backward() if later flushes computed with them. A flush of recompute_below or more keeps its whole
//            minibatch until backward(). Use LazyOptions::For::inference where no gradient is needed: nothing is kept
//            for gradients. Until clear() the graph also holds some 40 bytes of host memory for each expression, and
//            its inputs.
//   Threads  One at a time for a graph and its expressions.
#pragma once

#include <array>
#include <concepts>
#include <coroutine>
#include <cstdint>
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
#include "windrow/batching/runner.h"

namespace windrow {

class LazyExpr;
class LazyGraph;
namespace lazy {
class Record;

/// What a handle holds of its graph, which may end before it.
class RecordRef {
 public:
  explicit RecordRef(Record& record);
  RecordRef(const RecordRef& other);
  RecordRef& operator=(RecordRef other) noexcept {
    std::swap(record_, other.record_);
    return *this;
  }
  ~RecordRef();
  Record* get() const { return record_; }

 private:
  Record* record_;
};

/// An operand, and the line that the call stands in: operators take no default argument that would tell it. It refers
/// to the operand, and so cannot be stored.
template <class T>
class Located {
 public:
  Located(const T& operand, std::source_location from = std::source_location::current())
      : operand_(operand), from_(from) {}
  Located(const Located&) = delete;
  Located& operator=(const Located&) = delete;
  const T& operand() const { return operand_; }
  std::source_location from() const { return from_; }

 private:
  const T& operand_;
  const std::source_location from_;
};
class OperandRef;

void resume_all(LazyGraph& graph, const std::vector<std::coroutine_handle<>>& tasks, std::source_location from);
std::coroutine_handle<>& next_of(LazyGraph& graph);
}  // namespace lazy

using LazyHere = lazy::Located<LazyExpr>;

/// A handle to a value, a row of numbers, of an instance. It may outlive its graph, and is of no use then. Using an
/// empty one, which was made by default or moved from, throws MisuseError.
class LazyExpr {
 public:
  LazyExpr() = default;
  LazyExpr(const LazyExpr& other);
  LazyExpr(LazyExpr&& other) noexcept;
  LazyExpr& operator=(LazyExpr other) noexcept;
  ~LazyExpr();

  Index width() const;
  /// Waits for it. Throws OpError if what it is computed from failed, or for a loss that is not finite after
  /// backward().
  std::vector<float> value(std::source_location from = std::source_location::current()) const;
  /// The same of width 1.
  float scalar(std::source_location from = std::source_location::current()) const;

 private:
  friend class lazy::Record;
  friend class LazyGraph;
  friend class LazyOperand;
  friend class LazyValue;
  LazyExpr(lazy::Record* record, std::int32_t node);
  /// Its value is there, or under way.
  bool computed() const;
  /// Throws MisuseError for an empty one.
  lazy::Record& record(std::string_view what) const;

  lazy::Record* record_ = nullptr;  // null for an empty one
  std::int32_t node_ = -1;          // also after a move; -1 if it never was another
  std::uint32_t minibatch_ = 0;     // how often the graph had been cleared
};

/// Numbers that operators look something up by: a row of a table, a label. It may outlive its graph, and is of no use
/// then.
class LazyIndex {
 public:
  static constexpr std::size_t widest = 4;

 private:
  friend class lazy::Record;
  friend class LazyGraph;
  explicit LazyIndex(lazy::Record& record) : record_(record) {}

  std::array<std::int32_t, widest> values_{};
  std::uint32_t width_ = 0;
  lazy::RecordRef record_;  // for embedding(), which has no other operand to know its graph by
};

/// An expression or a parameter. A handle.
class LazyOperand {
 public:
  LazyOperand(LazyExpr expr) : expr_(std::move(expr)) {}
  LazyOperand(const Parameter& parameter) : parameter_(parameter) {}
  bool is_parameter() const { return parameter_.has_value(); }

 private:
  friend class lazy::OperandRef;
  friend class lazy::Record;
  LazyExpr expr_;
  std::optional<Parameter> parameter_;
};

/// The same for as long as a call lasts; it refers to what it was made of, and so cannot be stored.
class lazy::OperandRef {
 public:
  OperandRef(const LazyExpr& expr) : expr_(&expr) {}
  OperandRef(const Parameter& parameter) : parameter_(&parameter) {}
  OperandRef(const LazyHere& here) : expr_(&here.operand()) {}
  OperandRef(const LazyOperand& operand)
      : expr_(operand.is_parameter() ? nullptr : &operand.expr_),
        parameter_(operand.is_parameter() ? &*operand.parameter_ : nullptr) {}
  OperandRef(const OperandRef&) = delete;
  OperandRef& operator=(const OperandRef&) = delete;

 private:
  friend class lazy::Record;
  const LazyExpr* expr_ = nullptr;
  const Parameter* parameter_ = nullptr;
};

struct LazyOptions {
  /// Training keeps what backward() needs; inference does not, and is faster.
  enum class For : std::uint8_t { training, inference } use = For::training;
  /// Each flush is a minibatch of a runner with these options; `ahead` counts flushes. Policy serial computes one
  /// vertex after the other, by the same kernels.
  RunnerOptions runner = {.schedule = SchedulePolicy::agenda};
  /// A flush of fewer floating point operations in products with parameters keeps its values only. What gradients need
  /// of it is computed again at backward(), for all such flushes that follow each other at once, so that what they have
  /// in common is batches again; operators must give the same again for the same operands. 0: never.
  std::int64_t recompute_below = 20'000'000;
};

/// Counted since the graph was made.
struct LazyStats {
  std::int64_t expressions = 0;  ///< recorded and computed
  std::int64_t vertices = 0;     ///< what they were put together to, and again if they were computed again
  std::int64_t kinds = 0;        ///< ways of putting together that are known; those that nobody uses are forgotten
  std::int64_t flushes = 0;
  std::int64_t lower_ns = 0;  ///< host time to find vertices, without recording and scheduling
  RunnerStats runner =
      {};  ///< without moves from flush to flush; its times may lack ends of minibatches with new kinds
};

/// An owner. It may outlive its parameters, whose values it keeps, and the engine of its device; then what needs the
/// engine throws MisuseError.
class LazyGraph {
 public:
  /// Throws MisuseError as Runner does.
  LazyGraph(const Device& device, Parameters& parameters, LazyOptions options = {});
  ~LazyGraph();
  LazyGraph(const LazyGraph&) = delete;
  LazyGraph& operator=(const LazyGraph&) = delete;

  LazyExpr input(std::span<const float> values, std::source_location from = std::source_location::current());
  LazyExpr input(std::initializer_list<float> values, std::source_location from = std::source_location::current()) {
    return input(std::span(values.begin(), values.size()), from);
  }
  /// The only row of a parameter, such as a state to begin with. Throws MisuseError for one of more rows or none.
  LazyExpr parameter(const Parameter& parameter, std::source_location from = std::source_location::current());
  LazyIndex index(std::int32_t value);
  /// Throws MisuseError for more than LazyIndex::widest values.
  LazyIndex index(std::span<const std::int32_t> values);

  /// Computes all that is recorded. Returns when it is pushed.
  void flush(std::source_location from = std::source_location::current());
  /// Pushes the gradients, for all parameters, of the sum of the losses, which have width 1. Throws MisuseError without
  /// a loss, for a second time before clear(), and if made for inference.
  void backward(std::span<const LazyExpr> losses, std::source_location from = std::source_location::current());
  /// Forgets all expressions, but not what was learned about batching them, unless most of it was not used for long.
  void clear();

  LazyStats stats() const;
  /// What kinds of vertices were found, and what is computed for them. For people.
  std::string describe() const;

 private:
  friend void lazy::resume_all(LazyGraph& graph, const std::vector<std::coroutine_handle<>>& tasks,
                               std::source_location from);
  friend std::coroutine_handle<>& lazy::next_of(LazyGraph& graph);
  lazy::Record* record_;
};

/// Any operator, also one's own: elementwise or rowwise, with whole operands that are parameters, and an expression or
/// an index among its operands; 31 expressions at most. Throws MisuseError, naming the operator and the shapes, if they
/// do not fit. Attributes are constants, and what is computed with others is no batch with it; but for the factor of
/// op::scale and the seed of op::dropout, which are inputs like any other. Errors name the line `from`.
LazyExpr apply(const Operator& op, std::span<const LazyOperand> in, std::span<const LazyIndex> indices = {},
               const Attributes& attributes = {}, std::source_location from = std::source_location::current());
LazyExpr apply(const Operator& op, std::initializer_list<lazy::OperandRef> in,
               std::initializer_list<LazyIndex> indices = {}, const Attributes& attributes = {},
               std::source_location from = std::source_location::current());

// The operators of operators.h by their names, as in expr.h. LazyHere is a LazyExpr and the line of the call.
LazyExpr operator+(const LazyExpr& x, const LazyHere& y);
LazyExpr operator+(const LazyExpr& x, const lazy::Located<Parameter>& y);
LazyExpr operator-(const LazyExpr& x, const LazyHere& y);
LazyExpr operator*(const LazyExpr& x, const LazyHere& y);
LazyExpr operator/(const LazyExpr& x, const LazyHere& y);
LazyExpr operator-(const LazyHere& x);
LazyExpr operator*(double factor, const LazyHere& x);
LazyExpr maximum(const LazyHere& x, const LazyExpr& y);
LazyExpr tanh(const LazyHere& x);
LazyExpr sigmoid(const LazyHere& x);
LazyExpr relu(const LazyHere& x);
LazyExpr exp(const LazyHere& x);
LazyExpr log(const LazyHere& x);
LazyExpr square(const LazyHere& x);
LazyExpr matmul(const LazyHere& x, const Parameter& w);
/// matmul(x, w) + b.
LazyExpr affine(const LazyHere& x, const Parameter& w, const Parameter& b);
LazyExpr concat(std::span<const LazyOperand> parts, std::source_location from = std::source_location::current());
LazyExpr concat(std::initializer_list<lazy::OperandRef> parts,
                std::source_location from = std::source_location::current());
template <std::same_as<LazyExpr>... Others>
LazyExpr concat(const LazyHere& first, const Others&... others) {
  return concat({first.operand(), others...}, first.from());
}
/// Columns [begin, end).
LazyExpr slice(const LazyHere& x, Index begin, Index end);
LazyExpr row_sum(const LazyHere& x);
LazyExpr softmax(const LazyHere& x);
LazyExpr softmax_cross_entropy(const LazyHere& logits, const LazyIndex& label);
/// Of each element, with targets within [0, 1]; a loss is its row_sum or mean.
LazyExpr binary_cross_entropy(const LazyHere& logits, const LazyExpr& targets);
LazyExpr embedding(const Parameter& table, const LazyIndex& row,
                   std::source_location from = std::source_location::current());
LazyExpr dropout(const LazyHere& x, const LazyIndex& keys, double rate, std::uint64_t seed, std::uint32_t site);
LazyExpr minimum(const LazyHere& x, const LazyExpr& y);
LazyExpr sqrt(const LazyHere& x);
LazyExpr abs(const LazyHere& x);
LazyExpr softplus(const LazyHere& x);
LazyExpr log_sigmoid(const LazyHere& x);
LazyExpr log_softmax(const LazyHere& x);
LazyExpr pick(const LazyHere& x, const LazyIndex& column);
/// Of the columns, of which there must be some.
LazyExpr mean(const LazyHere& x);
LazyExpr row_max(const LazyHere& x);
LazyExpr row_dot(const LazyHere& x, const LazyExpr& y);
LazyExpr squared_distance(const LazyHere& x, const LazyExpr& y);
LazyExpr mul_columns(const LazyHere& x, const LazyExpr& factor);
/// A product whose operands are both expressions: of the matrices in x and y, row by row, those in x with so many rows;
/// the other sizes follow from the widths.
LazyExpr matmul_each(const LazyHere& x, const LazyExpr& y, Index rows);
LazyExpr matmul_each_nt(const LazyHere& x, const LazyExpr& y, Index rows);
LazyExpr conv2d(const LazyHere& images, const Parameter& filters, const op::Window2d& window);
LazyExpr max_pool2d(const LazyHere& images, const op::Window2d& window);
LazyExpr add_channel_bias(const LazyHere& images, const Parameter& bias);

/// Of one width, one or more.
LazyExpr sum(std::span<const LazyExpr> terms, std::source_location from = std::source_location::current());
LazyExpr mean(std::span<const LazyExpr> terms, std::source_location from = std::source_location::current());

}  // namespace windrow
