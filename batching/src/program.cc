#include "program.h"

#include <algorithm>
#include <numeric>

#include "builder.h"

namespace windrow::ir {
namespace {

/// One type of vertex: the trace's nodes again, where what the type lacks is zero.
class Specialisation {
 public:
  Specialisation(const Function& function, Program& program, Builder& builder, int type)
      : function_(function), builder_(builder), type_(type), mask_(program.types[static_cast<std::size_t>(type)]) {
    for (const Node& node : function.nodes) map_.push_back(mapped(node));
    for (std::size_t s = 0; s < function.states.size(); ++s) {
      const Value value = of(function.scattered[s]);
      builder.add(
          {.code = Code::scatter, .type = builder.at(value).type, .vertex_type = type, .number = s, .in = {value}});
    }
    auto& losses = program.losses.emplace_back();
    for (Value loss : function.losses) losses.push_back(of(loss));
    auto& pushes = program.pushes.emplace_back();
    for (const Output& push : function.pushes) pushes.push_back(of(push.value));
  }

 private:
  Value of(Value traced) const { return map_[static_cast<std::size_t>(traced)]; }

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
    const Index width = node.type.width;
    if (!has_child(mask_, k)) return builder_.fill(type_, width, 0);
    const Value all = builder_.add({.code = Code::gather,
                                    .type = {Rows::vertices(), width * children(function_, mask_)},
                                    .vertex_type = type_,
                                    .number = node.number});
    const Index begin = width * children_before(mask_, k);
    return builder_.slice(all, begin, begin + width);
  }

  Value applied(const Node& node) {
    for (std::size_t pull : node.indices) {
      if (!has_index(function_, mask_, pull)) return builder_.fill(type_, node.type.width, 0);
    }
    std::vector<Value> in;
    for (Value value : node.in) in.push_back(of(value));
    return builder_.apply(*node.op, std::move(in), node.indices, node.attributes, node.of_vertices() ? type_ : -1);
  }

  const Function& function_;
  Builder& builder_;
  const int type_;
  const VertexType mask_;
  std::vector<Value> map_;
};

/// Drops the nodes that nothing needs.
void keep_what_is_needed(Program& program) {
  std::vector<char> needed(program.nodes.size(), 0);
  const auto need = [&](Value value) { needed[static_cast<std::size_t>(value)] = 1; };
  for (const auto& values : program.losses) std::for_each(values.begin(), values.end(), need);
  for (const auto& values : program.pushes) std::for_each(values.begin(), values.end(), need);
  for (const Program::Rows& rows : program.rows) need(rows.rows);
  for (std::size_t i = program.nodes.size(); i-- > 0;) {
    const Node& node = program.nodes[i];
    if (node.code == Code::scatter || node.code == Code::send || node.code == Code::gradient) needed[i] = 1;
    if (needed[i]) std::for_each(node.in.begin(), node.in.end(), need);
  }
  std::vector<Value> moved(program.nodes.size(), no_value);
  std::vector<Node> kept;
  const auto move = [&](Value& value) { value = moved[static_cast<std::size_t>(value)]; };
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    if (!needed[i]) continue;
    Node& node = kept.emplace_back(std::move(program.nodes[i]));
    std::for_each(node.in.begin(), node.in.end(), move);
    moved[i] = static_cast<Value>(kept.size()) - 1;
  }
  program.nodes = std::move(kept);
  for (auto& values : program.losses) std::for_each(values.begin(), values.end(), move);
  for (auto& values : program.pushes) std::for_each(values.begin(), values.end(), move);
  for (Program::Rows& rows : program.rows) move(rows.rows);
}

/// Reverse-mode differentiation over all nodes of a program (Speelpenning 1980), by the operators' rules.
class Differentiation {
 public:
  explicit Differentiation(const Program& program) : program_(program), builder_(*program.function) {
    builder_.nodes = program.nodes;
    terms_.resize(program.nodes.size());
    find_what_varies();
  }

  Program run() {
    for (std::size_t t = 0; t < program_.types.size(); ++t) {
      for (Value loss : program_.losses[t]) {
        add_term(loss, {builder_.fill(static_cast<int>(t), 1, 1), 0});
      }
    }
    for (std::size_t i = program_.nodes.size(); i-- > 0;) visit(static_cast<Value>(i));
    send_zeros();
    Program result = std::move(program_);
    result.nodes = std::move(builder_.nodes);
    keep_what_is_needed(result);
    return result;
  }

 private:
  /// What depends on parameters or on children; only that needs a gradient.
  void find_what_varies() {
    for (const Node& node : program_.nodes) {
      bool varies = node.code == Code::parameter || node.code == Code::gather;
      for (Value in : node.in) varies |= varies_[static_cast<std::size_t>(in)] != 0;
      varies_.push_back(varies ? 1 : 0);
    }
  }

  void add_term(Value value, Builder::Term term) {
    if (varies_[static_cast<std::size_t>(value)] == 0 || builder_.at(term.value).zero()) return;
    terms_[static_cast<std::size_t>(value)].push_back(term);
  }

  void visit(Value value) {
    const Node node = program_.at(value);
    const auto& terms = terms_[static_cast<std::size_t>(value)];
    if (node.code == Code::scatter) {
      const Value gradient = builder_.add(
          {.code = Code::incoming, .type = node.type, .vertex_type = node.vertex_type, .number = node.number});
      add_term(node.in[0], {gradient, 0});
    } else if (node.code == Code::gather) {
      finish(Code::send, node, terms);
    } else if (terms.empty()) {
      return;
    } else if (node.code == Code::parameter) {
      keep_parameter_gradient(node, terms);
    } else if (node.code == Code::sum) {
      const Value gradient = builder_.sum(terms, node.type, node.vertex_type);
      for (std::size_t k = 0; k < node.in.size(); ++k) {
        const Index end = node.at[k] + program_.at(node.in[k]).type.width;
        add_term(node.in[k], {builder_.slice(gradient, node.at[k], end), 0});
      }
    } else if (node.code == Code::apply) {
      differentiate_operator(value, node, builder_.sum(terms, node.type, node.vertex_type));
    }
  }

  /// Children expect a gradient of each state, also of one that nobody looked at.
  void send_zeros() {
    const Function& f = *program_.function;
    for (std::size_t t = 0; t < program_.types.size(); ++t) {
      if (children(f, program_.types[t]) == 0) continue;
      for (std::size_t s = 0; s < f.states.size(); ++s) {
        const Node gathered{.code = Code::gather,
                            .type = {Rows::vertices(), f.states[s].width * children(f, program_.types[t])},
                            .vertex_type = static_cast<int>(t),
                            .number = s};
        const auto& nodes = program_.nodes;
        if (std::find(nodes.begin(), nodes.end(), gathered) == nodes.end()) finish(Code::send, gathered, {});
      }
    }
  }

  /// A node that ends a gradient's way.
  void finish(Code code, const Node& of, const std::vector<Builder::Term>& terms) {
    Node node{.code = code, .type = of.type, .vertex_type = of.vertex_type, .number = of.number};
    for (const Builder::Term& term : terms) {
      node.in.push_back(term.value);
      node.at.push_back(term.at);
    }
    builder_.nodes.push_back(std::move(node));
  }

  /// Terms that a lookup left stay rows; the others are added up.
  void keep_parameter_gradient(const Node& parameter, const std::vector<Builder::Term>& terms) {
    std::vector<Builder::Term> dense;
    for (const Builder::Term& term : terms) {
      const Node& node = builder_.at(term.value);
      if (node.is(op::scatter_rows) && builder_.at(node.in[0]).of_vertices()) {
        program_.rows.push_back({parameter.number, node.indices[0], node.in[0]});
      } else {
        dense.push_back(term);
      }
    }
    if (!dense.empty()) finish(Code::gradient, parameter, dense);
  }

  Signature signature_of(const Node& node) const {
    Signature signature{.attributes = node.attributes};
    for (Value in : node.in) signature.in.push_back(program_.at(in).type);
    for (std::size_t pull : node.indices) {
      signature.indices.push_back({Rows::vertices(), program_.function->index_pulls[pull].width});
    }
    return signature;
  }

  void differentiate_operator(Value value, const Node& node, Value gradient) {
    const bool needed = std::any_of(node.in.begin(), node.in.end(),
                                    [&](Value in) { return varies_[static_cast<std::size_t>(in)] != 0; });
    if (!needed) return;
    const auto refuse = [&](const std::string& why) {
      throw MisuseError(program_.function->name + ": " + std::string(node.op->name.text()) + why);
    };
    if (node.op->gradients == nullptr) refuse(" has no gradient; expected an operator that has one");
    const GradientTerms rules = node.op->gradients(signature_of(node));
    if (rules.size() != node.in.size()) refuse(" has gradients for another number of operands than it has");
    for (std::size_t k = 0; k < node.in.size(); ++k) {
      if (!rules[k] || varies_[static_cast<std::size_t>(node.in[k])] == 0) continue;
      if (const auto term = term_of(*rules[k], value, node, gradient)) add_term(node.in[k], *term);
    }
  }

  /// None for zero.
  std::optional<Builder::Term> term_of(const GradientTerm& rule, Value value, const Node& node, Value gradient) {
    std::vector<Value> in;
    for (const Ref& ref : rule.in) {
      in.push_back(ref.of == Ref::Of::operand ? node.in[ref.number] : ref.of == Ref::Of::result ? value : gradient);
    }
    if (rule.op == nullptr) return Builder::Term{in.at(0), 0};
    if (rule.op == &op::place) return Builder::Term{in.at(0), rule.attributes.sizes[0]};
    if (builder_.vanishes(*rule.op, in)) return std::nullopt;
    std::vector<std::size_t> indices;
    for (std::size_t k : rule.indices) indices.push_back(node.indices[k]);
    return Builder::Term{builder_.apply(*rule.op, std::move(in), std::move(indices), rule.attributes, node.vertex_type),
                         0};
  }

  Program program_;
  Builder builder_;
  std::vector<char> varies_;                       // by node of program_
  std::vector<std::vector<Builder::Term>> terms_;  // of each one's gradient
};

}  // namespace

Program specialise(std::shared_ptr<const Function> function, std::vector<VertexType> types) {
  Program program{.function = std::move(function), .types = std::move(types)};
  Builder builder(*program.function);
  for (std::size_t t = 0; t < program.types.size(); ++t) {
    Specialisation(*program.function, program, builder, static_cast<int>(t));
  }
  program.nodes = std::move(builder.nodes);
  keep_what_is_needed(program);
  return program;
}

Program differentiate(const Program& program) {
  if (program.function->losses.empty()) {
    throw MisuseError(program.function->name + ": has no loss; expected one to differentiate");
  }
  return Differentiation(program).run();
}

std::string to_string(const Program& program, const Node& node) {
  static constexpr const char* names[] = {"parameter", "pull",    "gather",   "fill", "apply",
                                          "sum",       "scatter", "incoming", "send", "gradient"};
  const Function& f = *program.function;
  std::string text = node.code == Code::apply ? std::string(node.op->name.text())
                                              : std::string(names[static_cast<std::size_t>(node.code)]);
  switch (node.code) {
    case Code::parameter:
    case Code::gradient:
      text += " " + std::to_string(node.number);
      break;
    case Code::pull:
      text += " " + f.pulls[node.number].name;
      break;
    case Code::gather:
    case Code::scatter:
    case Code::incoming:
    case Code::send:
      text += " " + f.states[node.number].name;
      break;
    case Code::fill:
      text += " " + std::to_string(node.constant);
      break;
    default:
      break;
  }
  for (std::size_t k = 0; k < node.in.size(); ++k) {
    text += " %" + std::to_string(node.in[k]);
    if (node.is_sum() && node.at[k] != 0) text += "@" + std::to_string(node.at[k]);
  }
  for (std::size_t pull : node.indices) text += " " + f.index_pulls[pull].name;
  if (node.is(op::slice)) {
    text += " [" + std::to_string(node.attributes.sizes[0]) + ", " + std::to_string(node.attributes.sizes[1]) + ")";
  }
  return text + " : " + windrow::to_string(node.type);
}

}  // namespace windrow::ir
