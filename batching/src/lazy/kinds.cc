#include "lazy/kinds.h"

#include <algorithm>

namespace windrow::lazy {

std::int32_t Columns::id(Index width, std::int32_t number, bool optional) {
  const auto known = ids_.find({width, number, optional});
  if (known != ids_.end()) return known->second;
  Column column{
      (optional ? "optional " : "") + std::string(name_) + std::to_string(width) + "." + std::to_string(number), width};
  make_room(all_, 1);
  ids_.emplace(std::tuple(width, number, optional), size());  // nothing after this throws
  all_.push_back(std::move(column));
  return size() - 1;
}

namespace {

/// The work of products with parameters: a row times a matrix, or filters that slide over the row.
std::int64_t flops_of(const Key& key, Index width, const Weights& weights, const ParameterStores& parameters) {
  std::int64_t flops = 0;
  for (std::int32_t operand : key.operands) {
    if (operand == Key::expression || !key.index_widths.empty()) continue;
    const Type type = weights.type_of(operand, parameters);
    const Index rows = std::max<Index>(type.rows.number(), 1), columns = std::max<Index>(type.width, 1);
    flops += 2 * rows * columns * std::max<Index>(1, width / std::max(rows, columns));
  }
  return flops;
}

}  // namespace

KindId Kinds::kind_of(const Run& run, const std::vector<KindId>& kinds, std::vector<std::int32_t>& children) {
  const auto values = runs_.outside(run).first(at(run.list - run.outside));
  const std::size_t first_child = children.size();
  scratch_.assign(1, run.pattern);
  for (const NodeId node : values) {
    if (node < runs_.first()) continue;
    const std::int32_t producer = runs_.run_of(node);
    std::size_t child = first_child;
    while (child < children.size() && children[child] != producer) ++child;
    if (child == children.size()) children.push_back(producer);
    scratch_.push_back(static_cast<std::uint32_t>(child - first_child));
  }
  KindId kind = find_or_add();
  if (!meet_all(kind, values, kinds)) {
    append_producers(values, kinds);
    kind = find_or_add();
    if (!meet_all(kind, values, kinds)) throw Error("lazy expressions: two places of one kind are one state");
  }
  const auto list = runs_.outside(run).subspan(values.size());
  if (!meet_list(kind, list, kinds)) {
    scratch_.push_back(before_list);
    append_producers(list.first(std::min(kinds_[at(kind)].cell->each.size(), list.size())), kinds);
    kind = find_or_add();
    if (!meet_all(kind, values, kinds) || !meet_list(kind, list, kinds)) {
      throw MisuseError(kinds_[at(kind)].cell->name +
                        ": lists hold different results of one cell; expected one of them, or copies such as `1 * x`");
    }
  }
  for (NodeId node : list) children.push_back(runs_.run_of(node));
  return kind;
}

KindNode Kinds::place_of(NodeId node, const std::vector<KindId>& kinds) const {
  const std::int32_t producer = runs_.run_of(node);
  return {kinds[at(producer)], node - runs_.runs()[at(producer)].begin};
}

/// Appends where these nodes come from to the key in scratch_.
void Kinds::append_producers(std::span<const NodeId> nodes, const std::vector<KindId>& kinds) {
  for (const NodeId node : nodes) {
    if (node < runs_.first()) continue;
    const KindNode producer = place_of(node, kinds);
    scratch_.push_back(static_cast<std::uint32_t>(producer.kind));
    scratch_.push_back(static_cast<std::uint32_t>(producer.node));
  }
}

/// Makes the producers of gathered values have the states of these. Returns false if that is impossible.
bool Kinds::meet_all(KindId kind, std::span<const NodeId> values, const std::vector<KindId>& kinds) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] < runs_.first()) continue;
    const KindNode producer = place_of(values[i], kinds);
    if (!kinds_[at(kind)].outside[i].has_met(producer) && !meets(kind, i, producer)) return false;
  }
  return true;
}

/// The elements of a list are gathered along edges; each operand of the elements has one state. Returns false if that
/// is impossible.
bool Kinds::meet_list(KindId kind, std::span<const NodeId> list, const std::vector<KindId>& kinds) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Kind& of = kinds_[at(kind)];
    if (!meets(kind, of.list + i % of.cell->each.size(), place_of(list[i], kinds))) return false;
  }
  return true;
}

/// Finds or adds the kind of the key in scratch_.
KindId Kinds::find_or_add() {
  make_room(kinds_, 1);
  const auto kind = static_cast<KindId>(keys_.number(scratch_));
  used_.note(static_cast<std::uint32_t>(kind), record_.minibatch());
  if (kind == size()) kinds_.push_back({.pattern = scratch_[0]});  // before anything throws: one kind for each key
  if (kinds_[at(kind)].state.empty()) {
    kinds_[at(kind)] = make(scratch_);
    ++version_;
  }
  return kind;
}

/// The values from outside that a kind of this key computes with, without those of lists. Values that are given have no
/// column yet.
std::vector<Kinds::Outside> Kinds::outside_of(std::span<const std::uint32_t> key) {
  std::vector<Outside> outside;
  std::size_t next = 1;  // in the key
  Patterns::each_node(runs_.patterns()[key[0]], record_.keys(), [&](auto, auto of_node, auto codes) {
    for (std::size_t k = 0; k < codes.size(); ++k) {
      const OperandSource from = Patterns::decode(codes[k]);
      if (from.is == OperandSource::Is::inside || from.number < outside.size()) continue;
      const bool given = from.is == OperandSource::Is::given;
      outside.push_back(
          {given, given ? -1 : static_cast<std::int32_t>(key[next++]), record_.keys()[of_node].widths[k], -1});
    }
  });
  return outside;
}

Kinds::Kind Kinds::make(std::span<const std::uint32_t> key) {
  const Keys& keys = record_.keys();
  const auto pattern = runs_.patterns()[key[0]];
  Kind kind{.pattern = key[0], .outside = outside_of(key)};
  std::map<Index, std::int32_t> given, indices;  // how many of each width
  for (Outside& outside : kind.outside) {
    if (outside.given) outside.column = given_.id(outside.width, given[outside.width]++);
    kind.takes_given |= outside.given;
    kind.children = std::max(kind.children, outside.child + 1);
  }
  kind.cell = keys[pattern[0]].cell;
  kind.list = kind.outside.size();
  if (kind.cell != nullptr) {
    for (const Index width : kind.cell->each) kind.outside.push_back({false, -1, width, -1});
  }
  std::int32_t nodes = 0;
  Patterns::each_node(pattern, keys, [&](std::int32_t node, std::uint32_t number, auto) {
    const Key& of = keys[number];
    const Index width = keys.width(number);
    kind.flops += kind.cell != nullptr ? kind.cell->flops : flops_of(of, width, record_.weights(), parameters_);
    for (std::int32_t operand : of.operands) {
      if (operand >= 0) record_.weights().add_parameters(operand, kind.parameters);
    }
    if (of.op == nullptr) kind.inputs.push_back({node, given_.id(width, given[width]++)});
    if (of.has_factor()) {
      kind.factors.push_back({node, factors_.id(1, static_cast<std::int32_t>(kind.factors.size()))});
    }
    std::int32_t from = 0;
    for (std::size_t k = 0; k < of.index_widths.size(); ++k) {
      const Index wide = of.index_widths[k];
      const bool optional = kind.cell != nullptr && kind.cell->indices[k].optional();
      kind.indices.push_back({node, indices_.id(wide, indices[wide]++, optional), from});
      from += static_cast<std::int32_t>(wide);
    }
    ++nodes;
  });
  kind.takes_given |= !kind.inputs.empty();
  if (kind.cell != nullptr) nodes = static_cast<std::int32_t>(kind.cell->results.size());  // the pattern has the first
  kind.state.assign(at(nodes), -1);
  kind.output.assign(at(nodes), -1);
  return kind;
}

/// Makes the producer have the state of that outside value. Returns false if that is impossible.
bool Kinds::meets(KindId kind, std::size_t number, const KindNode& producer) {
  Outside& outside = kinds_[at(kind)].outside[number];
  if (outside.has_met(producer)) return true;
  std::int32_t& state = kinds_[at(producer.kind)].state[at(producer.node)];
  if (!unite(outside.state, state, outside, producer)) return false;
  kinds_[at(kind)].outside[number].met.push_back(producer);
  return true;
}

bool Kinds::unite(std::int32_t& a, std::int32_t& b, const Outside& outside, const KindNode& producer) {
  const auto has = [&](std::int32_t state, KindId kind) {
    const auto& nodes = states_[at(state)].nodes;
    return std::any_of(nodes.begin(), nodes.end(), [&](const KindNode& node) { return node.kind == kind; });
  };
  if (a == b && a >= 0) return true;
  ++version_;
  if (b < 0) {
    if (a < 0) {
      states_.push_back({outside.width, {}});
      a = static_cast<std::int32_t>(states_.size()) - 1;
    } else if (has(a, producer.kind)) {
      return false;
    }
    states_[at(a)].nodes.push_back(producer);
    b = a;
    return true;
  }
  if (a < 0) {
    a = b;
    return true;
  }
  for (const KindNode& node : states_[at(a)].nodes) {
    if (has(b, node.kind)) return false;
  }
  const std::int32_t keep = a, drop = b;
  auto& dropped = states_[at(drop)].nodes;
  states_[at(keep)].nodes.insert(states_[at(keep)].nodes.end(), dropped.begin(), dropped.end());
  dropped.clear();
  for (Kind& kind : kinds_) {
    std::replace(kind.state.begin(), kind.state.end(), drop, keep);
    for (Outside& other : kind.outside) other.state = other.state == drop ? keep : other.state;
  }
  return true;
}

Index Kinds::width_of(const Kind& kind, std::int32_t node) const {
  if (kind.cell != nullptr) return kind.cell->results[at(node)];
  const auto pattern = runs_.patterns()[kind.pattern];
  std::size_t from = 0;
  for (std::int32_t i = 0; i < node; ++i) from += 1 + record_.keys()[pattern[from]].widths.size();
  return record_.keys().width(pattern[from]);
}

std::int32_t Kinds::output(const KindNode& node) {
  Kind& kind = kinds_[at(node.kind)];
  std::int32_t& output = kind.output[at(node.node)];
  if (output >= 0) return output;
  const Index width = width_of(kind, node.node);
  const auto of_width = std::count_if(kind.output.begin(), kind.output.end(),
                                      [&](std::int32_t other) { return other >= 0 && outputs_[other].width == width; });
  ++version_;
  return output = outputs_.id(width, static_cast<std::int32_t>(of_width));
}

bool Kinds::remember_too_much() const {
  constexpr std::ptrdiff_t many = 64;  // all kinds are planned again whenever there is a new one
  return used_.mostly_long_ago(record_.minibatch(), many);
}

void Kinds::forget() {
  keys_ = {};
  kinds_.clear();
  used_ = {};
  states_.clear();
  for (Columns* columns : {&given_, &indices_, &factors_, &outputs_}) columns->clear();
  ++version_;
}

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
        keys_(record.keys()),
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
    const State nothing = vertex_.state("nothing " + std::to_string(k), width);  // all lists were empty
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
  // Of a cell's call: what its body takes next.
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
