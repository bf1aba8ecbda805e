// The gradients of a program.
#include <algorithm>
#include <set>

#include "ir/builder.h"
#include "ir/passes.h"

namespace windrow::ir {
namespace {

/// Reverse-mode differentiation over all nodes of a program (Speelpenning 1980), by the operators' rules.
class Differentiation {
 public:
  Differentiation(const Program& program, const Differentiated& what)
      : program_(program), what_(what), builder_(*program.function, program.nodes) {
    terms_.resize(program.nodes.size());
    find_what_varies();
  }

  Program run() {
    for (std::size_t t = 0; t < program_.types.size(); ++t) {
      for (Value loss : program_.losses[t]) {
        add_term(loss, {builder_.fill(static_cast<int>(t), {Rows::vertices(), 1}, 1), 0});
      }
      for (std::size_t output : what_.outputs) {
        const Value pushed = program_.pushes[t][output];
        if (pushed != no_value) add_term(pushed, {gradient_of_output(output, static_cast<int>(t)), 0});
      }
    }
    for (std::size_t i = program_.nodes.size(); i-- > 0;) visit(static_cast<Value>(i));
    Program result = std::move(program_);
    result.nodes = builder_.take();
    drop_unneeded(result);
    return result;
  }

 private:
  /// Finds the values that depend on children, given tensors, or parameters that are not frozen; only these need
  /// gradients. Gradients of children whose states need none are dropped later as unneeded nodes.
  void find_what_varies() {
    for (const Node& node : program_.nodes) {
      const bool trained = node.code == Code::parameter && !std::ranges::binary_search(what_.frozen, node.number);
      bool varies = trained || node.code == Code::gather || node.reads_in_place() || node.code == Code::given;
      if (node.code == Code::gather) gathered_.insert(node.number);
      if (node.reads_in_place()) read_in_place_.insert(node.number);
      for (Value in : node.in) varies |= varies_[at(in)] != 0;
      varies_.push_back(varies ? 1 : 0);
    }
  }

  void add_term(Value value, Builder::Term term) {
    if (varies_[at(value)] == 0 || builder_.at(term.value).zero()) return;
    terms_[at(value)].push_back(term);
  }

  void visit(Value value) {
    const Node node = program_.at(value);
    const auto& terms = terms_[at(value)];
    if (node.code == Code::scatter) {
      const auto add_incoming = [&](Code code) {
        const Value gradient =
            builder_.add({.code = code, .type = node.type, .vertex_type = node.vertex_type, .number = node.number});
        add_term(node.in[0], {gradient, 0});
      };
      if (gathered_.contains(node.number)) add_incoming(Code::incoming);
      if (read_in_place_.contains(node.number)) add_incoming(Code::incoming_products);
    } else if (node.code == Code::gather) {
      if (!terms.empty()) finish(Code::send, node, terms);
    } else if (terms.empty()) {
      return;
    } else if (node.code == Code::parameter || node.code == Code::given) {
      keep_gradient(node, terms);
    } else if (node.code == Code::sum) {
      const Value gradient = builder_.sum(terms, node.type, node.vertex_type);
      for (std::size_t k = 0; k < node.in.size(); ++k) {
        const Index end = node.at[k] + program_.at(node.in[k]).type.width;
        add_term(node.in[k], {builder_.slice(gradient, node.at[k], end), 0});
      }
    } else if (node.reads_in_place()) {
      differentiate_in_place(node, builder_.sum(terms, node.type, node.vertex_type));
    } else if (node.code == Code::apply) {
      differentiate_operator(value, node, builder_.sum(terms, node.type, node.vertex_type));
    }
  }

  /// Each of the two nodes is the gradient of the other with respect to the operand. The gradient of the states is, for
  /// each edge, the product of a number and a row of the vertex; the two factors are sent separately.
  void differentiate_in_place(const Node& node, Value gradient) {
    if (builder_.at(gradient).zero()) return;
    const bool dot = node.code == Code::gather_dot;
    const Value factor = dot ? gradient : node.in[0], row = dot ? node.in[0] : gradient;
    Node made = node;
    made.code = Code::send_product;
    made.type = {Rows::edges(), builder_.at(row).type.width};
    made.in = {factor, row};
    builder_.append(made);
    if (varies_[at(node.in[0])] == 0) return;
    made.code = dot ? Code::gather_weighted_sum : Code::gather_dot;
    made.type = program_.at(node.in[0]).type;
    made.in = {gradient};
    add_term(node.in[0], {builder_.add(std::move(made)), 0});
  }

  Value gradient_of_output(std::size_t output, int vertex_type) {
    const Function& f = *program_.function;
    const Value all = builder_.add(
        {.code = Code::given, .type = {Rows::count(0), f.outputs[output].width}, .number = f.tensors.size() + output});
    return builder_.apply(op::gather_rows, {all}, {holding(IndexField::Holds::gradient_row, output)}, {}, vertex_type);
  }

  /// Adds a node that consumes a gradient: `send` or `gradient`.
  void finish(Code code, const Node& of, const std::vector<Builder::Term>& terms) {
    Node node{.code = code, .type = of.type, .vertex_type = of.vertex_type, .number = of.number};
    for (const Builder::Term& term : terms) {
      node.in.push_back(term.value);
      node.at.push_back(term.at);
    }
    builder_.append(std::move(node));
  }

  /// Terms from lookups stay rows; the others are added up.
  void keep_gradient(const Node& of, const std::vector<Builder::Term>& terms) {
    std::vector<Builder::Term> dense;
    for (const Builder::Term& term : terms) {
      const Node& node = builder_.at(term.value);
      const bool scatters = node.is(op::scatter_rows) || node.is(op::scatter_bags);
      const bool lookup = scatters && builder_.at(node.in[0]).of_vertices();
      if (lookup && node.type == of.type) {
        const auto what = of.code == Code::given ? Program::Rows::Of::tensor : Program::Rows::Of::parameter;
        program_.rows.push_back({what, of.number, node.indices[0], with_storage(node.in[0])});
      } else {
        dense.push_back(term);
      }
    }
    if (!dense.empty()) finish(Code::gradient, of, dense);
  }

  /// The value, or a copy if the value has no storage in its own vertex type: an input, or a gathered state.
  Value with_storage(Value value) {
    Value of = value;
    while (builder_.at(of).is(op::slice)) of = builder_.at(of).in[0];
    const Code code = builder_.at(of).code;
    const bool elsewhere = code == Code::pull || code == Code::gather;
    return elsewhere ? builder_.apply(op::scale, {value}, {}, op::scaled_by(1)) : value;
  }

  void differentiate_operator(Value value, const Node& node, Value gradient) {
    const bool needed = std::any_of(node.in.begin(), node.in.end(), [&](Value in) { return varies_[at(in)] != 0; });
    if (!needed) return;
    const auto refuse = [&](const std::string& why) {
      throw MisuseError(program_.function->name + ": " + std::string(node.op->name.text()) + why);
    };
    if (node.op->gradients == nullptr) refuse(" has no gradient; expected an operator that has one");
    const GradientTerms rules = node.op->gradients(signature_of(*program_.function, program_.nodes, node));
    if (rules.size() != node.in.size()) refuse(" has gradients for another number of operands than it has");
    for (std::size_t k = 0; k < node.in.size(); ++k) {
      if (!rules[k] || varies_[at(node.in[k])] == 0) continue;
      const auto term = term_of(*rules[k], value, node, gradient);
      if (!term) continue;
      const Type &is = builder_.at(term->value).type, &of = program_.at(node.in[k]).type;
      const bool fits = is.rows == of.rows && term->at + is.width <= of.width;
      if (!fits || (is.width != of.width && rules[k]->op != &op::place)) {
        refuse(": the gradient of operand " + std::to_string(k) + " is " + to_string(is) + "; expected " +
               to_string(of));
      }
      add_term(node.in[k], *term);
    }
  }

  /// Returns nothing for a zero gradient.
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
    if (rule.op == &op::segment_max_gradient && holds(indices[0]) == IndexField::Holds::edges) {
      return Builder::Term{to_first_maximum(in[0], in[1], node), 0};
    }
    if (const auto other = other_way(indices)) {
      const bool up = holds(indices[0]) == IndexField::Holds::consumer;
      return Builder::Term{
          builder_.apply(up ? op::segment_sum : op::gather_rows, std::move(in), {*other}, {}, node.vertex_type), 0};
    }
    return Builder::Term{builder_.apply(*rule.op, std::move(in), std::move(indices), rule.attributes, node.vertex_type),
                         0};
  }

  IndexField::Holds holds(std::size_t pull) const { return program_.function->index_pulls[pull].holds; }

  /// The index pull for a gradient: that of a sum over edges copies the row to each edge, and that of such a copy sums
  /// over the edges. The rules of the operators describe these as sums over arbitrary rows. Here the edges of a vertex
  /// are contiguous, so the gradients are rowwise. None if the indices hold no such structure.
  std::optional<std::size_t> other_way(const std::vector<std::size_t>& indices) const {
    using Holds = IndexField::Holds;
    if (indices.size() != 1) return std::nullopt;
    if (holds(indices[0]) == Holds::edges) return holding(Holds::consumer);
    if (holds(indices[0]) == Holds::consumer) return holding(Holds::edges);
    return std::nullopt;
  }

  /// The gradient of a maximum over edges, for each edge. segment_argmax computes which edge has the maximum, so an
  /// edge does not need the values of the others.
  Value to_first_maximum(Value edges, Value gradient, const Node& node) {
    const Value first = builder_.apply(op::segment_argmax, {edges}, node.indices, {}, node.vertex_type);
    return builder_.apply(op::gather_where, {first, gradient}, {holding(IndexField::Holds::sibling)}, {},
                          node.vertex_type);
  }

  /// The index pull with this content. Tracing adds it; functions that were read from a file lack it.
  std::size_t holding(IndexField::Holds what, std::size_t tensor = 0) const {
    const auto& pulls = program_.function->index_pulls;
    const auto found = std::find_if(pulls.begin(), pulls.end(),
                                    [&](const IndexField& f) { return f.holds == what && f.tensor == tensor; });
    if (found != pulls.end()) return static_cast<std::size_t>(found - pulls.begin());
    throw MisuseError(program_.function->name + ": was loaded for inference; expected a function that was traced");
  }

  Program program_;
  const Differentiated what_;
  Builder builder_;
  std::vector<char> varies_;                        // by node of program_
  std::set<std::size_t> gathered_, read_in_place_;  // numbers of states
  std::vector<std::vector<Builder::Term>> terms_;   // of the gradient, by node of program_
};

}  // namespace

Program differentiate(const Program& program, const Differentiated& what) {
  const auto& kinds = program.function->kinds;
  if (what.outputs.empty() &&
      std::all_of(kinds.begin(), kinds.end(), [](const VertexKind& kind) { return kind.losses.empty(); })) {
    throw MisuseError(program.function->name + ": has no loss; expected one to differentiate");
  }
  return Differentiation(program, what).run();
}

}  // namespace windrow::ir
