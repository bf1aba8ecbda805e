// The vertex function of all kinds.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lazy/kinds.h"

namespace windrow::lazy {

VertexFunction Kinds::function() const {
  std::vector<VertexFunction> functions;
  for (KindId kind = 0; kind < size(); ++kind) functions.push_back(function_of(kind));
  return VertexFunction("lazy expressions", functions);
}

namespace {

/// The body of a kind's function.
class Body final : public CellInputs {
 public:
  Body(const Kinds& kinds, const Kinds::Kind& kind, const Record& record, const ParameterStores& parameters,
       Vertex& vertex)
      : CellInputs(vertex),
        kinds_(kinds),
        kind_(kind),
        keys_(record.nodes().keys),
        weights_(record.weights()),
        parameters_(parameters),
        vertex_(vertex) {}

  void compute(std::span<const std::uint32_t> pattern) {
    for (std::size_t i = 0; i < kind_.list; ++i) outside_.push_back(value_of(kind_.outside[i]));
    if (kind_.cell != nullptr) call(keys_[pattern[0]], pattern.subspan(1));
    Patterns::each_node(pattern, keys_, [&](auto, std::uint32_t key, auto codes) {
      if (kind_.cell == nullptr) nodes_.push_back(keys_[key].op == nullptr ? input() : applied(keys_[key], codes));
    });
    for (std::size_t node = 0; node < nodes_.size(); ++node) {
      if (kind_.state[node] >= 0) vertex_.scatter(state(kind_.state[node], nodes_[node].width()), nodes_[node]);
      if (kind_.output[node] >= 0) vertex_.push(kinds_.outputs()[kind_.output[node]].name, nodes_[node]);
    }
  }

  // For the body of a cell.
  Expr operand(Index width) override {
    const bool missing = key_->operands[taken_++] == Key::missing;
    if (missing) return vertex_.zeros(width);
    const Expr value = outside_[Patterns::decode(codes_.front()).number];
    codes_ = codes_.subspan(1);
    return value;
  }
  Expr each(Index width) override {
    const std::size_t k = each_++;
    const std::int32_t number = kind_.outside[kind_.list + k].state;
    if (number >= 0) return vertex_.each(state(number, width), k);
    // All lists were empty. Other cells may read another width there.
    const State nothing = vertex_.state("nothing " + std::to_string(k) + "." + std::to_string(width), width);
    vertex_.scatter(nothing, vertex_.zeros(width));
    return vertex_.each(nothing, k);
  }
  IndexExpr index(Presence presence, Index width) override {
    const Columns::Column& column = kinds_.indices()[kind_.indices[indices_++].column];
    return vertex_.pull_index(column.name, presence, width);
  }
  void result(const Expr& value) override { nodes_.push_back(value); }

 private:
  void call(const Key& key, std::span<const std::uint32_t> codes) {
    key_ = &key;
    codes_ = codes;
    std::optional<IndexExpr> keys;
    if (kind_.cell->draws_dropout) {
      keys =
          vertex_.pull_index(kinds_.indices()[kind_.indices.back().column].name, Presence::always, Cell::dropout_keys);
    }
    set_dropout_keys(keys);
    CellBody argument(*this);
    kind_.cell->body(argument);
  }

  Expr value_of(const Kinds::Outside& outside) {
    if (outside.given) return vertex_.pull_row(kinds_.given()[outside.column].name, outside.width);
    return vertex_.gather(static_cast<std::size_t>(outside.child), state(outside.state, outside.width));
  }

  State state(std::int32_t number, Index width) {
    const auto known = states_.find(number);
    if (known != states_.end()) return known->second;
    return states_.emplace(number, vertex_.state("state" + std::to_string(number), width)).first->second;
  }

  /// The column of the next node.
  std::int32_t column_in(const Kinds::Kind::NodeColumns& columns) const {
    const auto node = static_cast<std::int32_t>(nodes_.size());
    return std::find_if(columns.begin(), columns.end(), [&](auto& column) { return column.first == node; })->second;
  }

  Expr input() {
    const Columns::Column& column = kinds_.given()[column_in(kind_.inputs)];
    return vertex_.pull_row(column.name, column.width);
  }

  Expr applied(const Key& key, std::span<const std::uint32_t> codes) {
    std::vector<windrow::Operand> in;
    for (std::int32_t operand : key.operands) {
      if (operand != Key::expression) {
        in.push_back(weights_.operand(operand, parameters_, vertex_));
        continue;
      }
      const OperandSource from = Patterns::decode(codes.front());
      codes = codes.subspan(1);
      in.push_back(from.is == OperandSource::Is::inside ? nodes_[nodes_.size() - from.number] : outside_[from.number]);
    }
    if (key.op == &sum_of_many) {
      Expr sum = in[0] + in[1];
      for (std::size_t i = 2; i < in.size(); ++i) sum = sum + in[i];
      return sum;
    }
    if (key.has_factor()) {
      const Columns::Column& column = kinds_.factors()[column_in(kind_.factors)];
      return apply(op::mul_columns, {in[0], vertex_.pull(column.name, column.width)});
    }
    std::vector<IndexExpr> indices;
    for (const Kinds::IndexOperand& index : kind_.indices) {
      if (at(index.node) != nodes_.size()) continue;
      const Columns::Column& column = kinds_.indices()[index.column];
      indices.push_back(vertex_.pull_index(column.name, Presence::always, column.width));
    }
    return apply(*key.op, in, indices, key.attributes);
  }

  const Kinds& kinds_;
  const Kinds::Kind& kind_;
  const Keys& keys_;
  const Weights& weights_;
  const ParameterStores& parameters_;
  Vertex& vertex_;
  std::vector<Expr> outside_, nodes_;
  std::map<std::int32_t, State> states_;
  // For a call of a cell: what its body takes next.
  const Key* key_ = nullptr;
  std::span<const std::uint32_t> codes_;
  std::size_t taken_ = 0, each_ = 0, indices_ = 0;
};

}  // namespace

VertexFunction Kinds::function_of(KindId number) const {
  const Kind& kind = kinds_[at(number)];
  const auto children = static_cast<std::size_t>(kind.children);
  const std::size_t each = kind.outside.size() - kind.list;
  const VertexFunction::Shape shape =
      each > 0 ? VertexFunction::Shape{any_arity, children, each} : VertexFunction::Shape{.arity = children};
  const auto list = kind.outside.begin() + static_cast<std::ptrdiff_t>(kind.list);
  const bool finished = !kind.state.empty() && std::all_of(kind.outside.begin(), list, [](const Outside& value) {
    return value.given || value.state >= 0;
  });
  return VertexFunction("kind " + std::to_string(number), shape, [&](Vertex& v) {
    if (!finished) return;  // an exception left it incomplete; no vertex has this kind
    Body(*this, kind, record_, parameters_, v).compute(runs_.patterns()[kind.pattern]);
  });
}

}  // namespace windrow::lazy
