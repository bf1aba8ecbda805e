#include "lazy/kinds.h"

#include <algorithm>

namespace windrow::lazy {

std::int32_t Columns::id(Index width, std::int32_t number, bool optional) {
  const std::string name =
      (optional ? "optional " : "") + std::string(name_) + std::to_string(width) + "." + std::to_string(number);
  const auto known = std::ranges::find(all_, name, &Column::name);
  const auto id = static_cast<std::int32_t>(known - all_.begin());
  if (known == all_.end()) all_.push_back({name, width});
  return id;
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

KindId Kinds::kind_of(const LazyRun& run, const std::vector<KindId>& kinds, std::vector<std::int32_t>& children) {
  const auto values = runs_.outside(run).first(at(run.list - run.outside));
  const std::size_t first_child = children.size();
  const auto number_of = [&](NodeId node) {
    const std::int32_t producer = runs_.run_of(node);
    std::size_t child = first_child;
    while (child < children.size() && children[child] != producer) ++child;
    if (child == children.size()) children.push_back(producer);
    return static_cast<std::uint32_t>(child - first_child);
  };
  scratch_.assign(1, run.pattern);
  for (const NodeId node : values) {
    if (node >= runs_.first()) scratch_.push_back(number_of(node));
  }
  if (by_result_) append_results(values);
  KindId kind = find_or_add();
  if (!meet_all(kind, values, kinds)) {
    append_producers(values, kinds);
    kind = find_or_add();
    splits_.kinds.insert(kind);
    if (!meet_all(kind, values, kinds)) throw Error("lazy expressions: two places of one kind are one state");
  }
  const auto list = runs_.outside(run).subspan(values.size());
  if (!list.empty()) meet_list(kind, list, kinds);
  for (NodeId node : list) children.push_back(runs_.run_of(node));
  return kind;
}

inline KindNode Kinds::place_of(NodeId node, const std::vector<KindId>& kinds) const {
  const std::int32_t producer = runs_.run_of(node);
  return {kinds[at(producer)], node - runs_.runs()[at(producer)].begin};
}

/// Appends the numbers of results of these nodes to the key in scratch_.
void Kinds::append_results(std::span<const NodeId> nodes) {
  for (const NodeId node : nodes) {
    if (node < runs_.first()) continue;
    scratch_.push_back(static_cast<std::uint32_t>(record_.nodes().key(node).result()));
  }
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
  const Outside* const outside = kinds_[at(kind)].outside.data();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] < runs_.first()) continue;
    const KindNode producer = place_of(values[i], kinds);
    if (!outside[i].has_met(producer) && !meets(kind, i, producer)) return false;
  }
  return true;
}

/// The elements of a list are gathered along edges; each operand of the elements has one state.
void Kinds::meet_list(KindId kind, std::span<const NodeId> list, const std::vector<KindId>& kinds) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Kind& of = kinds_[at(kind)];
    if (meets(kind, of.list + i % of.cell->each.size(), place_of(list[i], kinds))) continue;
    if (by_result_) throw Error("lazy expressions: two elements of lists are one state");
    clashed_ = true;
  }
}

/// Finds or adds the kind of the key in scratch_.
KindId Kinds::find_or_add() {
  make_room(kinds_, 1);
  const auto kind = static_cast<KindId>(keys_.number(scratch_));
  used_.note(static_cast<std::uint32_t>(kind), record_.age());
  if (kind == size()) kinds_.push_back({.pattern = scratch_[0]});  // before anything throws: each key needs a kind
  if (kinds_[at(kind)].state.empty()) {
    kinds_[at(kind)] = make(scratch_);
    ++version_;
  }
  return kind;
}

/// The values from outside that a kind of this key uses, except those of lists. Given values have no column yet.
std::vector<Kinds::Outside> Kinds::outside_of(std::span<const std::uint32_t> key) {
  std::vector<Outside> outside;
  std::size_t next = 1;  // in the key
  Patterns::each_node(runs_.patterns()[key[0]], record_.nodes().keys, [&](auto, auto of_node, auto codes) {
    for (std::size_t k = 0; k < codes.size(); ++k) {
      const OperandSource from = Patterns::decode(codes[k]);
      if (from.is == OperandSource::Is::inside || from.number < outside.size()) continue;
      const bool given = from.is == OperandSource::Is::given;
      outside.push_back(
          {given, given ? -1 : static_cast<std::int32_t>(key[next++]), record_.nodes().keys[of_node].widths[k], -1});
    }
  });
  return outside;
}

Kinds::Kind Kinds::make(std::span<const std::uint32_t> key) {
  const Keys& keys = record_.nodes().keys;
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
      if (operand >= 0) record_.weights().add_parameters(operand, parameters_, kind.parameters);
    }
    if (of.op == nullptr) kind.inputs.push_back({node, given_.id(width, given[width]++)});
    if (of.has_factor()) {
      kind.factors.push_back({node, factors_.id(1, static_cast<std::int32_t>(kind.factors.size()))});
    }
    std::int32_t from = 0;
    for (std::size_t k = 0; k < of.index_widths.size(); ++k) {
      const Index wide = of.index_widths[k];
      const bool of_call = kind.cell != nullptr && k < kind.cell->indices.size();  // false for keys of dropout
      const bool optional = of_call && kind.cell->indices[k].optional();
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

/// Finds the place between two nodes of a kind that the fewest values cross.
void Kinds::note_split(KindId kind, std::int32_t one, std::int32_t other) {
  const Kind& of = kinds_[at(kind)];
  if (of.cell != nullptr || one == other) return;
  const auto [first, second] = std::minmax(one, other);
  std::vector<std::int32_t> last_use(of.state.size(), 0);  // by node of the kind
  Patterns::each_node(runs_.patterns()[of.pattern], record_.nodes().keys, [&](std::int32_t node, auto, auto codes) {
    for (const std::uint32_t code : codes) {
      const OperandSource source = Patterns::decode(code);
      if (source.is == OperandSource::Is::inside) last_use[at(node) - source.number] = node;
    }
  });
  std::int32_t best = second, fewest = INT32_MAX;
  for (std::int32_t before = first + 1; before <= second; ++before) {
    const auto passing = static_cast<std::int32_t>(
        std::count_if(last_use.begin(), last_use.begin() + before, [&](std::int32_t use) { return use >= before; }));
    if (passing >= fewest) continue;
    fewest = passing;
    best = before;
  }
  splits_.between.emplace(of.pattern, best);
}

bool Kinds::unite(std::int32_t& a, std::int32_t& b, const Outside& outside, const KindNode& producer) {
  const auto clashes = [&](std::int32_t state, const KindNode& with) {
    const auto& nodes = states_[at(state)].nodes;
    const auto found = std::ranges::find(nodes, with.kind, &KindNode::kind);
    if (found == nodes.end()) return false;
    note_split(with.kind, found->node, with.node);
    return true;
  };
  if (a == b && a >= 0) return true;
  ++version_;
  if (b < 0) {
    if (a < 0) {
      states_.push_back({outside.width, {}});
      a = static_cast<std::int32_t>(states_.size()) - 1;
    } else if (clashes(a, producer)) {
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
    if (clashes(b, node)) return false;
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
  for (std::int32_t i = 0; i < node; ++i) from += 1 + record_.nodes().keys[pattern[from]].widths.size();
  return record_.nodes().keys.width(pattern[from]);
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
  return used_.mostly_long_ago(record_.age(), many);
}

void Kinds::forget() {
  keys_ = {};
  kinds_.clear();
  used_ = {};
  states_.clear();
  for (Columns* columns : {&given_, &indices_, &factors_, &outputs_}) columns->clear();
  by_result_ = clashed_ = false;
  ++version_;
}

bool Kinds::begin_again() {
  if (!clashed_) return false;
  forget();
  return by_result_ = true;
}

}  // namespace windrow::lazy
