// Random vertex functions, which run on a Vertex, on the oracle, and as programs of lazy expressions: on vertices whose
// values are lazy expressions.
#pragma once

#include <variant>

#include "tests/batching/oracle.h"
#include "tests/batching/support.h"

namespace windrow::testing {

/// A value of one vertex, or of parameters alone.
using LazyRow = std::variant<LazyExpr, LazyWeight>;
struct LazyRowIndex {
  LazyGraph* graph;
  std::optional<LazyIndex> index;  // none if it is absent
};

/// What was written so far.
struct LazyProgram {
  LazyGraph& graph;
  std::vector<std::map<std::string, LazyRow>> states = {};                           // by vertex of the current graph
  std::size_t before = 0;                                                            // vertices of the graphs before it
  std::map<std::string, std::vector<std::pair<std::size_t, LazyExpr>>> pushed = {};  // with the vertex of all graphs
  std::vector<LazyExpr> losses = {};
};

class LazyVertex {
 public:
  LazyVertex(LazyProgram& program, const GraphData& data, std::size_t vertex)
      : program_(program), data_(data), vertex_(vertex) {}
  std::size_t kind() const { return data_.kinds.empty() ? 0 : static_cast<std::size_t>(data_.kinds[vertex_]); }
  OracleState state(const std::string& name, Index width) { return {name, width}; }
  LazyRow gather(std::size_t k, const OracleState& state) {
    const auto place = static_cast<std::size_t>(data_.child_begin[vertex_]) + k;
    const bool there = place < static_cast<std::size_t>(data_.child_begin[vertex_ + 1]);
    const std::int32_t child = there ? data_.children[place] : no_child;
    if (child == no_child) return program_.graph.zeros(state.width);
    return program_.states[static_cast<std::size_t>(child)].at(state.name);
  }
  void scatter(const OracleState& state, const LazyRow& value) {
    program_.states[vertex_].insert_or_assign(state.name, value);
  }
  LazyRow pull(const std::string& name, Index width) {
    return program_.graph.input(own(data_.values.at(name), static_cast<std::size_t>(width)));
  }
  LazyRowIndex pull_index(const std::string& name, Presence presence = Presence::always, Index width = 1) {
    const auto row = own(data_.indices.at(name), static_cast<std::size_t>(width));
    if (presence == Presence::sometimes && row[0] == -1) return {&program_.graph, {}};
    return {&program_.graph, program_.graph.index(row)};
  }
  LazyRow parameter(const Parameter& parameter) { return LazyWeight(parameter); }
  void push(const std::string& name, const LazyRow& value) {
    program_.pushed[name].emplace_back(program_.before + vertex_, std::get<LazyExpr>(value));
  }
  void loss(const LazyRow& value) { program_.losses.push_back(std::get<LazyExpr>(value)); }

 private:
  template <class T>
  std::span<const T> own(const std::vector<T>& all, std::size_t width) const {
    return std::span(all).subspan(vertex_ * width, width);
  }

  LazyProgram& program_;
  const GraphData& data_;
  const std::size_t vertex_;
};

inline LazyRow apply(const Operator& op, std::initializer_list<LazyRow> in,
                     std::initializer_list<LazyRowIndex> indices = {}, const Attributes& attributes = {}) {
  std::vector<LazyOperand> operands;
  std::vector<LazyWeight> weights;
  for (const LazyRow& row : in) {
    std::visit([&](const auto& value) { operands.push_back(value); }, row);
    if (const auto* weight = std::get_if<LazyWeight>(&row)) weights.push_back(*weight);
  }
  std::vector<LazyIndex> rows;
  for (const LazyRowIndex& row : indices) {
    if (!row.index) return row.graph->zeros(weights.at(0).type().width);
    rows.push_back(*row.index);
  }
  if (weights.size() < in.size() || !rows.empty()) return windrow::apply(op, operands, rows, attributes);
  if (in.size() == 1) return windrow::apply(op, {weights[0]}, {}, attributes);
  return windrow::apply(op, {weights[0], weights[1]}, {}, attributes);
}

/// A list of random instructions. The constructor draws it, and operator() executes it on either kind of vertex.
class RandomFunction {
 public:
  /// Has the states of the function beside it, if there is one, and other outputs.
  RandomFunction(std::mt19937& random, Parameters& parameters, const RandomFunction* beside = nullptr)
      : random_(random), parameters_(parameters) {
    arity = beside == nullptr ? 1 + below(3) : beside->arity;
    number_ = beside == nullptr ? 0 : beside->number_ + 1;
    if (beside != nullptr) states_ = beside->states_;
    for (std::size_t s = beside == nullptr ? 1 + below(3) : 0; s > 0; --s)
      states_.push_back(static_cast<Index>(below(5)));
    add({.does = Does::pull, .type = vertex(2)});
    for (std::size_t s = 0; s < states_.size(); ++s) {
      for (std::size_t k = 0; k < arity; ++k) {
        if (below(5) > 0) add({.does = Does::gather, .type = vertex(states_[s]), .state = s, .child = k});
      }
    }
    for (std::size_t n = 8 + below(20); n > 0; --n) draw_instruction();
    for (Index width : states_) scattered_.push_back(tanh_of(resized(any_vertex(), width)));
    for (int p = 0; p < 3; ++p) pushed_.push_back(any_vertex());
    for (std::size_t l = 1 + below(3); l > 0; --l) losses_.push_back(summed(any_vertex()));
    losses_.push_back(summed(scattered_[0]));
  }

  std::size_t arity;

  template <class V>
  void operator()(V& v) const {
    std::vector<decltype(v.state("", 1))> states;
    for (std::size_t s = 0; s < states_.size(); ++s) states.push_back(v.state("s" + std::to_string(s), states_[s]));
    const auto x = v.pull("x", 2);
    const auto kind = v.pull_index("kind", Presence::sometimes), keys = v.pull_index("keys", Presence::always, 3);
    std::vector<std::remove_const_t<decltype(x)>> values;
    for (const Instruction& one : instructions_) {
      const auto in = [&](std::size_t k) -> const auto& { return values[one.in[k]]; };
      if (one.does == Does::pull) values.push_back(x);
      if (one.does == Does::gather) values.push_back(v.gather(one.child, states[one.state]));
      if (one.does == Does::parameter) values.push_back(v.parameter(*one.parameter));
      if (one.does == Does::lookup) values.push_back(apply(*one.op, {in(0)}, {kind}, one.attributes));
      if (one.does == Does::drop) values.push_back(apply(*one.op, {in(0)}, {keys}, one.attributes));
      if (one.does != Does::apply) continue;
      if (one.in.size() == 1) values.push_back(apply(*one.op, {in(0)}, {}, one.attributes));
      if (one.in.size() == 2) values.push_back(apply(*one.op, {in(0), in(1)}, {}, one.attributes));
      if (one.in.size() == 3) values.push_back(apply(*one.op, {in(0), in(1), in(2)}, {}, one.attributes));
    }
    for (std::size_t s = 0; s < states.size(); ++s) v.scatter(states[s], values[scattered_[s]]);
    for (std::size_t p = 0; p < pushed_.size(); ++p) v.push("p" + std::to_string(3 * number_ + p), values[pushed_[p]]);
    for (std::size_t loss : losses_) v.loss(values[loss]);
  }

 private:
  enum class Does { pull, gather, parameter, lookup, drop, apply };
  struct Instruction {
    Does does;
    Type type;
    const Operator* op = nullptr;
    std::vector<std::size_t> in = {};
    Attributes attributes = {};
    std::size_t state = 0, child = 0;
    std::optional<Parameter> parameter = {};
  };

  std::size_t below(std::size_t n) { return random_() % n; }
  static Type vertex(Index width) { return {Rows::vertices(), width}; }
  Index width(std::size_t value) const { return instructions_[value].type.width; }

  std::size_t add(Instruction one) {
    instructions_.push_back(std::move(one));
    return instructions_.size() - 1;
  }
  std::size_t apply_to(const Operator& op, std::vector<std::size_t> in, Type type, Attributes attributes = {}) {
    return add({.does = Does::apply, .type = type, .op = &op, .in = std::move(in), .attributes = attributes});
  }

  template <class Condition>
  std::size_t any(Condition fits) {
    std::vector<std::size_t> list;
    for (std::size_t i = 0; i < instructions_.size(); ++i) {
      if (fits(instructions_[i].type)) list.push_back(i);
    }
    const std::size_t late = std::min<std::size_t>(list.size(), 5);
    return below(2) == 0 ? list[below(list.size())] : list[list.size() - 1 - below(late)];
  }
  std::size_t any_vertex() {
    return any([](const Type& type) { return !type.rows.counted(); });
  }
  std::size_t like(std::size_t value) {
    return any([&](const Type& type) { return type == instructions_[value].type; });
  }

  /// Returns a value of that shape: an existing one, a new parameter, or a value computed from a new parameter.
  std::size_t parameter(Index rows, Index columns) {
    const Type type{Rows::count(rows), columns};
    for (std::size_t i = 0; i < instructions_.size(); ++i) {
      if (instructions_[i].type == type && below(2) == 0) return i;
    }
    const bool turned = below(4) == 0;
    const Parameter made = parameters_.add("w" + std::to_string(parameters_.size()), turned ? columns : rows,
                                           turned ? rows : columns, Initial::uniform(-1, 1));
    std::size_t value = add({.does = Does::parameter, .type = made.type(), .parameter = made});
    if (turned) value = apply_to(op::transpose, {value}, type);
    switch (below(6)) {
      case 0:
        return apply_to(op::tanh, {value}, type);
      case 1:
        return apply_to(op::add, {value, value}, type);
      case 2:
        return apply_to(op::slice, {apply_to(op::concat, {value, value}, {type.rows, 2 * columns})}, type,
                        op::columns(columns / 2, columns / 2 + columns));
      default:
        return value;
    }
  }

  std::size_t tanh_of(std::size_t x) { return apply_to(op::tanh, {x}, instructions_[x].type); }
  std::size_t summed(std::size_t x) { return width(x) == 1 ? x : apply_to(op::row_sum, {x}, vertex(1)); }
  std::size_t resized(std::size_t x, Index to) {
    if (width(x) < to) return apply_to(op::matmul, {x, parameter(width(x), to)}, vertex(to));
    const auto begin = static_cast<Index>(below(static_cast<std::size_t>(width(x) - to) + 1));
    return apply_to(op::slice, {x}, vertex(to), op::columns(begin, begin + to));
  }

  void draw_instruction() {
    const std::size_t x = any_vertex();
    const Index w = width(x);
    const std::size_t kind = below(16);
    switch (kind) {
      case 0:
      case 1:
      case 2:
      case 3: {
        const Operator* const of_two[] = {&op::add, &op::sub, &op::mul, &op::maximum};
        apply_to(*of_two[kind], {x, like(x)}, vertex(w));
        break;
      }
      case 4:
        apply_to(op::sigmoid, {x}, vertex(w));
        break;
      case 5:
        apply_to(op::scale, {x}, vertex(w), op::scaled_by(0.3 * static_cast<double>(1 + below(7)) - 1));
        break;
      case 6:
      case 7:
        resized(x, static_cast<Index>(below(static_cast<std::size_t>(w) + 1)));
        break;
      case 8:
      case 9:
      case 10: {
        const std::size_t y = any_vertex(), z = any_vertex();
        if (w + width(y) + width(z) > 14) break;
        apply_to(op::concat, {x, y, z}, vertex(w + width(y) + width(z)));
        break;
      }
      case 11:
      case 12: {
        const auto m = static_cast<Index>(1 + below(4));
        if (below(3) == 0) {
          apply_to(op::matmul_nt, {x, parameter(m, w)}, vertex(m));
        } else {
          apply_to(op::matmul, {x, parameter(w, m)}, vertex(m));
        }
        break;
      }
      case 13:
        apply_to(op::add_bias, {x, parameter(1, w)}, vertex(w));
        break;
      case 14:
        add({.does = Does::drop,
             .type = vertex(w),
             .op = &op::dropout,
             .in = {x},
             .attributes = op::dropout_by(0.3, 5 + below(3), 1)});
        break;
      case 15: {
        const auto m = static_cast<Index>(1 + below(3));
        add({.does = Does::lookup, .type = vertex(m), .op = &op::embedding, .in = {parameter(4, m)}});
        break;
      }
    }
  }

  std::mt19937& random_;
  Parameters& parameters_;
  std::size_t number_ = 0;
  std::vector<Index> states_;
  std::vector<Instruction> instructions_;
  std::vector<std::size_t> scattered_, pushed_, losses_;
};

}  // namespace windrow::testing
