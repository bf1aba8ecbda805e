// Lazy graphs and tasks, and the operators of lazy expressions that are not in expression_operators.h.
#include "windrow/batching/lazy.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "lazy/epochs.h"
#include "lazy/record.h"
#include "windrow/batching/lazy_task.h"
#include "windrow/ops/internal/number.h"

namespace windrow {

LazyExpr::LazyExpr(const LazyExpr& other) : record_(other.record_), node_(other.node_), minibatch_(other.minibatch_) {
  if (record_ == nullptr) return;
  ++record_->count;
  if (minibatch_ == record_->minibatch_) ++record_->nodes_.handles(node_);
}

void LazyExpr::release() {
  if (minibatch_ == record_->minibatch_) --record_->nodes_.handles(node_);
  record_->release();
}

Index LazyExpr::width() const {
  lazy::Record& of = record("width");
  return of.nodes().width(of.checked(*this, "width"));
}

lazy::Record& LazyExpr::record(std::string_view what) const {
  if (record_ == nullptr) {
    throw MisuseError(std::string(what) + (node_ < 0 ? ": an empty expression; expected one that a lazy graph recorded"
                                                     : ": an expression that was moved from"));
  }
  return *record_;
}

const LazyExpr& lazy::OperandRef::operand() const {
  if (expr_ == nullptr) throw MisuseError("a parameter as an operand; expected an expression");
  return *expr_;
}

void lazy::RecordRef::end() noexcept { delete get(); }

LazyGraph::LazyGraph(const Device& device, const ParameterSets& parameters, LazyOptions options)
    : record_(new lazy::Record(device, std::make_shared<ParameterStores>(parameters.sets_), options)) {}
LazyGraph::~LazyGraph() {
  record_->close();
  record_->release();
}

LazyExpr LazyGraph::input(std::span<const float> values, std::source_location from) {
  return record_->add_input(values, from);
}
LazyExpr LazyGraph::constant(Index width, double value, std::source_location from) {
  if (width < 0 || width > INT32_MAX) {
    throw MisuseError("a constant of width " + std::to_string(width) + "; expected 0 to " + std::to_string(INT32_MAX));
  }
  const auto element = static_cast<float>(held_by_float("constant", value));
  return input(std::vector<float>(static_cast<std::size_t>(width), element), from);
}
static void require_row(const Type& type) {
  if (type.rows == Rows::count(1)) return;
  throw MisuseError("a parameter of " + std::to_string(type.rows.number()) +
                    " rows as an expression; expected one of 1 row");
}
LazyExpr LazyGraph::parameter(const Parameter& parameter, std::source_location from) {
  require_row(parameter.type());
  return embedding(parameter, index(0), from);
}
LazyExpr LazyGraph::parameter(const LazyWeight& parameter, std::source_location from) {
  require_row(parameter.type());
  return apply(op::add_bias, {zeros(parameter.type().width, from), parameter}, {}, {}, from);
}
LazyIndex LazyGraph::index(std::int32_t value) { return LazyIndex(*record_, value); }
LazyIndex LazyGraph::index(std::span<const std::int32_t> values) { return record_->index(values); }
void LazyGraph::flush(std::source_location from) { record_->epochs().flush(from); }
void LazyGraph::backward(std::span<const LazyExpr> losses, std::source_location from) {
  std::vector<lazy::NodeId> nodes;
  for (const LazyExpr& loss : losses) nodes.push_back(record_->checked(loss, "backward"));
  record_->epochs().backward(std::move(nodes), from);
}
void LazyGraph::keep_gradient(const LazyExpr& input) {
  record_->epochs().keep_gradient(record_->checked(input, "keep_gradient"));
}
std::vector<float> LazyGraph::gradient(const LazyExpr& input, std::source_location from) const {
  return record_->epochs().gradient(record_->checked(input, "gradient"), from);
}
void LazyGraph::clear() { record_->clear(); }
void LazyGraph::forget() {
  if (record_->nodes().size() > 0) {
    throw MisuseError("forget() while expressions are recorded; expected it after clear()");
  }
  record_->epochs().forget();
}
LazyStats LazyGraph::stats() const { return record_->epochs().stats(); }
std::string LazyGraph::describe() const { return record_->epochs().describe(); }

std::vector<float> LazyExpr::value(std::source_location from) const {
  lazy::Record& of = record("value");
  const lazy::NodeId node = of.checked(*this, "value");  // checks the handle before its value is read
  return of.epochs().value(node, from);
}

bool LazyExpr::computed() const { return record("value").checked(*this, "value") < record_->nodes().first_pending; }

float LazyExpr::scalar(std::source_location from) const {
  if (width() != 1) throw MisuseError("scalar of an expression of width " + std::to_string(width()) + "; expected 1");
  return value(from)[0];
}

LazyExpr apply(const Operator& op, std::span<const LazyOperand> in, std::span<const LazyIndex> indices,
               const Attributes& attributes, std::source_location from) {
  const std::vector<lazy::OperandRef> refs(in.begin(), in.end());
  return lazy::Record::apply(op, refs, indices, attributes, from);
}
template <class>
LazyExpr apply(const Operator& op, std::initializer_list<lazy::OperandRef> in, std::initializer_list<LazyIndex> indices,
               const Attributes& attributes, std::source_location from) {
  return lazy::Record::apply(op, std::span(in.begin(), in.size()), std::span(indices.begin(), indices.size()),
                             attributes, from);
}
template LazyExpr apply(const Operator&, std::initializer_list<lazy::OperandRef>, std::initializer_list<LazyIndex>,
                        const Attributes&, std::source_location);

LazyExpr LazyExprTypes::apply(const Operator& op, const lazy::OperandRef& x, std::initializer_list<lazy::OperandRef> in,
                              std::initializer_list<LazyIndex> indices, const Attributes& attributes) {
  return windrow::apply(op, in, indices, attributes, x.from());
}
LazyExpr LazyExprTypes::dropout(const lazy::OperandRef& x, const Dropout& how) {
  lazy::Record& record = lazy::Record::of(x.operand(), "dropout");
  if (how.mask == Dropout::Mask::sample) {
    throw MisuseError(
        "dropout: a mask of a sample; expected a mask of its own in lazy expressions, which know no samples");
  }
  op::dropout_by(how.rate, 0, 0);  // checks the rate
  if (how.rate == 0) return x.operand();
  const auto keys = record.next_dropout();
  if (!keys) return x.operand();
  const LazyIndex index = record.index(keys->row);
  const Attributes attributes = op::dropout_by(how.rate, keys->seed, 0);
  if (how.of == Dropout::Of::element) return windrow::apply(op::dropout, {x.operand()}, {index}, attributes, x.from());
  const float one[] = {1};
  const LazyExpr mask = windrow::apply(op::dropout, {record.add_input(one, x.from())}, {index}, attributes, x.from());
  return windrow::apply(op::mul_columns, {x.operand(), mask}, {}, {}, x.from());
}
Index LazyExprTypes::width(const lazy::OperandRef& x) { return x.operand().width(); }

namespace {

/// Copies of a column.
LazyExpr spread(const lazy::OperandRef& x, Index width) {
  return apply(op::spread_columns, {x}, {}, op::to_width(width), x.from());
}

}  // namespace

LazyExpr LazyExprTypes::elementwise(const Operator& op, const lazy::OperandRef& x, const lazy::OperandRef& y) {
  const bool of_y = lazy::Record::is_column(y, x), of_x = lazy::Record::is_column(x, y), product = &op == &op::mul;
  if (product && of_y) return apply(op::mul_columns, y, {x, y});
  if (product && of_x) return apply(op::mul_columns, y, {y, x});
  if (of_y) return apply(op, y, {x, spread(y, lazy::Record::width_of(x))});
  if (of_x) return apply(op, y, {spread(x, lazy::Record::width_of(y)), y});
  return apply(op, y, {x, y});
}
LazyExpr affine(const lazy::OperandRef& x, const Parameter& w, const Parameter& b) {
  return matmul(x, w) + lazy::OperandRef(b, x.from());
}
LazyExpr embedding(const Parameter& table, const LazyIndex& row, std::source_location from) {
  return apply(op::embedding, {table}, {row}, {}, from);
}
LazyExpr mean(const lazy::OperandRef& x) {
  const Index width = x.operand().width();
  if (width == 0) throw MisuseError("mean of an expression of width 0; expected a column or more");
  return 1 / static_cast<double>(width) * lazy::OperandRef(row_sum(x), x.from());
}

/// Applies an operator of any number of operands. Many operands are combined in a tree of pieces, so that no vertex has
/// more children than allowed; its depth grows with the logarithm of their number.
static LazyExpr applied_in_pieces(const Operator& op, std::span<const lazy::OperandRef> in, std::source_location from) {
  constexpr std::size_t most = 16;
  if (in.size() <= most) return lazy::Record::apply(op, in, {}, {}, from);
  std::vector<LazyExpr> pieces;
  for (std::size_t begin = 0; begin < in.size(); begin += most) {
    const auto piece = in.subspan(begin, std::min(most, in.size() - begin));
    const LazyExpr* const alone = piece.size() == 1 ? lazy::Record::expr_of(piece.front()) : nullptr;
    pieces.push_back(alone != nullptr ? *alone : lazy::Record::apply(op, piece, {}, {}, from));
  }
  return applied_in_pieces(op, std::vector<lazy::OperandRef>(pieces.begin(), pieces.end()), from);
}

LazyExpr concat(std::span<const LazyOperand> parts, std::source_location from) {
  return applied_in_pieces(op::concat, std::vector<lazy::OperandRef>(parts.begin(), parts.end()), from);
}
LazyExpr concat(std::span<const LazyExpr> parts, std::source_location from) {
  return applied_in_pieces(op::concat, std::vector<lazy::OperandRef>(parts.begin(), parts.end()), from);
}
LazyExpr concat(std::initializer_list<lazy::OperandRef> parts, std::source_location from) {
  return applied_in_pieces(op::concat, std::span(parts.begin(), parts.size()), from);
}
LazyExpr sum(std::span<const LazyExpr> terms, std::source_location from) {
  if (terms.empty()) throw MisuseError("sum of no expressions; expected one or more");
  if (terms.size() == 1) return terms[0];
  return applied_in_pieces(lazy::sum_of_many, std::vector<lazy::OperandRef>(terms.begin(), terms.end()), from);
}
LazyExpr mean(std::span<const LazyExpr> terms, std::source_location from) {
  if (terms.empty()) throw MisuseError("mean of no expressions; expected one or more");
  return 1 / static_cast<double>(terms.size()) * lazy::OperandRef(sum(terms, from), from);
}

// Tasks.

bool LazyValue::await_ready() const { return expr_.computed(); }

void LazyValue::suspend(std::coroutine_handle<> task, const std::coroutine_handle<>* next) {
  if (next != &expr_.record_->next) {  // no flush of its own graph would resume it
    throw MisuseError("a task waits for an expression of another lazy graph than it runs with; expected the same");
  }
  expr_.record_->suspended.push_back(task);
}

std::coroutine_handle<>& lazy::next_of(LazyGraph& graph) { return graph.record_->next; }

void lazy::resume_all(LazyGraph& graph, const std::vector<std::coroutine_handle<>>& tasks, std::source_location from) {
  Record& record = *graph.record_;
  for (const std::coroutine_handle<> task : tasks) {
    if (!task) throw MisuseError("run: a task that was moved from; expected one that has not begun");
  }
  // A flush may throw the error of an earlier flush and can then be called again. The tasks continue before that error
  // is thrown.
  std::exception_ptr of_earlier;
  const auto flush = [&] {
    constexpr int most = 64;  // failures that nobody has read
    for (int failures = 0;; ++failures) {
      try {
        return record.epochs().flush(from);
      } catch (const OpError&) {
        if (failures == most) throw;
        if (!of_earlier) of_earlier = std::current_exception();
      }
    }
  };
  std::vector<std::coroutine_handle<>> ready = tasks;
  while (!ready.empty()) {
    for (const std::coroutine_handle<> task : ready) {
      record.cutter().cut();
      record.next = task;
      while (record.next) std::exchange(record.next, nullptr).resume();
    }
    ready = std::exchange(record.suspended, {});
    if (!ready.empty()) flush();
  }
  record.cutter().cut();
  const bool all_done = std::all_of(tasks.begin(), tasks.end(), [](auto task) { return task.done(); });
  if (all_done && of_earlier) std::rethrow_exception(of_earlier);
  if (all_done) return;
  throw MisuseError("run: a task still waits for what was cleared; expected clear() when all have ended");
}

}  // namespace windrow
