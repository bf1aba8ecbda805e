// Specialises a vertex function for each vertex type that occurs, and drops unneeded nodes.
#include <algorithm>
#include <map>

#include "ir/builder.h"
#include "ir/passes.h"

namespace windrow::ir {
namespace {

/// Specialises one vertex type: copies the traced nodes, with zeros for the children and indices that the type lacks.
class Specialisation {
 public:
  Specialisation(Program& program, Builder& builder, int type, Use use)
      : function_(*program.function),
        use_(use),
        builder_(builder),
        type_(type),
        mask_(program.types[static_cast<std::size_t>(type)]),
        kind_(kind_of(function_, mask_)) {
    for (const Node& node : kind_.nodes) map_.push_back(mapped(node));
    for (std::size_t s = 0; s < kind_.scattered.size(); ++s) {
      if (kind_.scattered[s] == no_value) continue;
      const Value value = of(kind_.scattered[s]);
      builder.add(
          {.code = Code::scatter, .type = builder.at(value).type, .vertex_type = type, .number = s, .in = {value}});
    }
    auto& losses = program.losses.emplace_back();
    for (Value loss : kind_.losses) losses.push_back(of(loss));
    auto& pushes = program.pushes.emplace_back();
    for (Value push : kind_.pushes) pushes.push_back(push == no_value ? no_value : of(push));
  }

 private:
  Value of(Value traced) const { return map_[at(traced)]; }

  Value mapped(const Node& node) {
    switch (node.code) {
      case Code::gather:
        return gathered(node);
      case Code::apply:
        return applied(node);
      default: {
        Node copy = node;
        if (copy.of_vertices()) copy.vertex_type = type_;
        return builder_.add(std::move(copy));
      }
    }
  }

  Value gathered(const Node& node) {
    const auto k = static_cast<std::size_t>(node.child);
    if (!has_child(mask_, k)) return builder_.fill(type_, node.type, 0);
    const Index width = node.type.width;
    const std::uint32_t by_number = (1u << kind_.arity) - 1;
    const std::uint32_t from =
        children(function_, mask_) & kind_.gathered[node.number] & (node.of_edges() ? ~by_number : by_number);
    const Value all = builder_.add({.code = Code::gather,
                                    .type = {node.type.rows, width * std::popcount(from)},
                                    .vertex_type = type_,
                                    .number = node.number});
    const Index begin = width * std::popcount(from & ((1u << k) - 1));  // among the children of its rate
    return builder_.slice(all, begin, begin + width);
  }

  Value applied(const Node& node) {
    const bool drops = node.is(op::dropout) && function_.index_pulls[node.indices[0]].holds_dropout();
    if (drops && use_ == Use::inference) return of(node.in[0]);
    for (std::size_t pull : node.indices) {
      const bool without_edges =
          function_.index_pulls[pull].holds == IndexField::Holds::edges && !has_edges(kind_, mask_);
      if (without_edges || !has_index(function_, mask_, pull)) return builder_.fill(type_, node.type, 0);
    }
    std::vector<Value> in;
    for (Value value : node.in) in.push_back(of(value));
    return builder_.apply(*node.op, std::move(in), node.indices, node.attributes, node.of_vertices() ? type_ : -1);
  }

  const Function& function_;
  const Use use_;
  Builder& builder_;
  const int type_;
  const VertexType mask_;
  const VertexKind& kind_;
  std::vector<Value> map_;
};

}  // namespace

Program specialise(std::shared_ptr<const Function> function, const ProgramTypes& types, Specialise how, Use use) {
  Program program{.function = std::move(function), .specialised = how == Specialise::yes};
  program.types = types.general;
  for (const VertexType type : types.own) {
    program.types.push_back(program.specialised ? type : with_all_children(*program.function, type));
  }
  std::sort(program.types.begin(), program.types.end());
  program.types.erase(std::unique(program.types.begin(), program.types.end()), program.types.end());
  for (const VertexType type : program.types) {
    program.general.push_back(std::binary_search(types.general.begin(), types.general.end(), type) ? 1 : 0);
  }
  Builder builder(*program.function);
  for (std::size_t t = 0; t < program.types.size(); ++t) {
    Specialisation(program, builder, static_cast<int>(t), use);
  }
  program.nodes = builder.take();
  drop_unneeded(program);
  return program;
}

namespace {

/// Finds the nodes that outputs, losses and gradients depend on.
class Needs {
 public:
  explicit Needs(const Program& program) : needed_(program.nodes.size(), 0) {
    for (std::size_t i = 0; i < program.nodes.size(); ++i) {
      const Node& node = program.nodes[i];
      if (node.code == Code::scatter || node.code == Code::send || node.code == Code::send_product) {
        links_[{node.code, node.number}].push_back(static_cast<Value>(i));
      }
      if (node.code == Code::gradient) need(static_cast<Value>(i));
    }
    for (const auto& values : program.losses) need(values);
    for (const auto& values : program.pushes) need(values);
    for (const Program::Rows& rows : program.rows) need(rows.rows);
    while (!open_.empty()) {
      const Node& node = program.nodes[at(open_.back())];
      open_.pop_back();
      need(node.in);
      // A gathered state must be scattered by another vertex; an incoming gradient must be sent by a consumer.
      if (node.code == Code::gather || node.reads_in_place()) need(links_[{Code::scatter, node.number}]);
      if (node.code == Code::incoming) need(links_[{Code::send, node.number}]);
      if (node.code == Code::incoming_products) need(links_[{Code::send_product, node.number}]);
    }
  }
  bool operator()(Value value) const { return needed_[at(value)] != 0; }

 private:
  void need(const std::vector<Value>& values) {
    for (Value value : values) need(value);
  }
  void need(Value value) {
    if (value == no_value || needed_[at(value)]) return;
    needed_[at(value)] = 1;
    open_.push_back(value);
  }

  std::vector<char> needed_;
  std::vector<Value> open_;
  std::map<std::pair<Code, std::size_t>, std::vector<Value>> links_;
};

}  // namespace

void drop_unneeded(Program& program) {
  const Needs needed(program);
  std::vector<Value> moved(program.nodes.size(), no_value);
  std::vector<Node> kept;
  const auto move = [&](Value& value) { value = value == no_value ? no_value : moved[at(value)]; };
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    if (!needed(static_cast<Value>(i))) continue;
    Node& node = kept.emplace_back(std::move(program.nodes[i]));
    std::for_each(node.in.begin(), node.in.end(), move);
    moved[i] = static_cast<Value>(kept.size()) - 1;
  }
  program.nodes = std::move(kept);
  for (auto& values : program.losses) std::for_each(values.begin(), values.end(), move);
  for (auto& values : program.pushes) std::for_each(values.begin(), values.end(), move);
  for (Program::Rows& rows : program.rows) move(rows.rows);
}

}  // namespace windrow::ir
