#include "windrow/batching/vertex_function.h"

#include <algorithm>

#include "ir/tracing.h"
#include "windrow/ops/internal/number.h"

namespace windrow {
namespace {

using ir::Code, ir::Node, ir::Value, ir::no_value;

[[noreturn]] void refuse(const ir::Function& function, const std::string& why) {
  throw MisuseError(function.name + ": " + why);
}

template <class Fields>
bool named(const Fields& fields, const std::string& name) {
  return std::any_of(fields.begin(), fields.end(), [&](const auto& field) { return field.name == name; });
}

void check_width(const ir::Function& function, const std::string& name, Index width) {
  if (width < 0 || width > INT32_MAX) {
    refuse(function, "'" + name + "' has width " + std::to_string(width) + "; expected 0 to 2147483647");
  }
}

/// Names in brackets are reserved for inputs that layouts fill in.
void check_input(const ir::Function& function, const std::string& name, Index width) {
  check_width(function, name, width);
  if (name.starts_with('(')) refuse(function, "an input named '" + name + "'; expected a name without a bracket first");
}

/// A vertex type has a bit for each child and for each optional index of the vertex.
void check_types(const ir::Function& function, const ir::VertexKind& kind) {
  std::size_t bits = std::min<std::size_t>(kind.arity, UINT32_MAX) + std::min<std::size_t>(kind.per_edge, UINT32_MAX);
  for (const std::size_t pull : kind.index_pulls) bits += function.index_pulls[pull].has_type_bit() ? 1 : 0;
  if (bits >= ir::type_bits) {
    refuse(function, "arity and optional indices are " + std::to_string(bits) + " together; expected " +
                         std::to_string(ir::type_bits - 1) + " at most");
  }
}

void note_what_is_gathered(const ir::Function& function, ir::VertexKind& kind) {
  kind.gathered.assign(function.states.size(), 0);
  for (const Node& node : kind.nodes) {
    if (node.code == Code::gather) kind.gathered[node.number] |= 1u << node.child;
  }
}

void note_index_ranges(const ir::Function& function, ir::VertexKind& kind) {
  kind.index_ranges.assign(kind.index_pulls.size(), {INT32_MIN, INT32_MAX});
  for (const Node& node : kind.nodes) {
    if (node.code != Code::apply || node.op->index_range == nullptr) continue;
    const Signature signature = ir::signature_of(function, kind.nodes, node);
    for (std::size_t k = 0; k < node.indices.size(); ++k) {
      const auto place = std::ranges::find(kind.index_pulls, node.indices[k]) - kind.index_pulls.begin();
      IndexRange& range = kind.index_ranges[static_cast<std::size_t>(place)];
      const IndexRange accepted = node.op->index_range(signature, k);
      range = {std::max(range.first, accepted.first), std::min(range.last, accepted.last)};
    }
  }
}

}  // namespace

State Vertex::state(const std::string& name, Index width) {
  ir::Function& f = tracing_->function;
  check_width(f, name, width);
  if (named(f.states, name)) refuse(f, "state '" + name + "' is declared twice; expected once");
  f.states.push_back({name, width, Rows::vertices()});
  tracing_->kind().scattered.push_back(no_value);
  return State(tracing_, f.states.size() - 1, width);
}

void Vertex::check_state(const char* what, const State& state) const {
  if (state.tracing_.lock() == tracing_) return;
  refuse(tracing_->function, std::string(what) + " of a state of another vertex function");
}

void Vertex::check_any_arity(const std::string& what) const {
  if (tracing_->kind().any_number()) return;
  refuse(tracing_->function, what + " in a function of arity " + std::to_string(tracing_->kind().arity) +
                                 "; expected one of any_arity, or a gather by child");
}

Expr Vertex::gather(std::size_t k, const State& state) {
  const ir::Function& f = tracing_->function;
  check_state("gather", state);
  const std::string what = "gather(" + std::to_string(k) + ") of state '" + f.states[state.number_].name + "'";
  const ir::VertexKind& kind = tracing_->kind();
  if (k >= kind.arity) {
    if (kind.any_number() && kind.arity == 0) refuse(f, what + " in a function of any arity; expected each");
    refuse(f, what + "; expected less than " + std::to_string(kind.arity) +
                  (kind.any_number() ? ", the number of fixed children" : ", the arity"));
  }
  return tracing_->expr({.code = Code::gather,
                         .type = {Rows::vertices(), state.width()},
                         .number = state.number_,
                         .child = static_cast<Index>(k)});
}

Expr Vertex::each(const State& state, std::size_t k) {
  check_state("each", state);
  const ir::Function& f = tracing_->function;
  const std::string what = "each of state '" + f.states[state.number_].name + "'";
  check_any_arity(what);
  const ir::VertexKind& kind = tracing_->kind();
  if (k >= kind.per_edge) {
    refuse(f, what + ", child " + std::to_string(k) + " of an edge; expected less than " +
                  std::to_string(kind.per_edge) + ", the children of an edge");
  }
  return tracing_->expr({.code = Code::gather,
                         .type = {Rows::edges(), state.width()},
                         .number = state.number_,
                         .child = static_cast<Index>(kind.arity + k)});
}

void Vertex::scatter(const State& state, const Expr& value) {
  ir::Function& f = tracing_->function;
  check_state("scatter", state);
  const std::string& name = f.states[state.number_].name;
  if (value.type() != Type{Rows::vertices(), state.width()}) {
    refuse(f, "state '" + name + "' is vertices x " + std::to_string(state.width()) + ", and " +
                  to_string(value.type()) + " was scattered; expected one shape");
  }
  Value& scattered = tracing_->kind().scattered[state.number_];
  if (scattered != no_value) refuse(f, "state '" + name + "' is scattered twice; expected once");
  scattered = tracing_->value_of(value);
}

Expr Vertex::pull(const std::string& name, Index width) { return pull_rows(name, {Rows::vertices(), width}); }

Expr Vertex::pull_edge(const std::string& name, Index width) {
  check_any_arity("edge input '" + name + "'");
  return pull_rows(name, {Rows::edges(), width});
}

Expr Vertex::pull_rows(const std::string& name, const Type& type) {
  ir::Function& f = tracing_->function;
  check_input(f, name, type.width);
  if (named(f.pulls, name)) refuse(f, "'" + name + "' is pulled twice; expected once");
  tracing_->kind().pulls.push_back(f.pulls.size());
  f.pulls.push_back({name, type.width, type.rows});
  return tracing_->expr({.code = Code::pull, .type = type, .number = f.pulls.size() - 1});
}

Expr Vertex::pull_row(const std::string& tensor, Index width) {
  ir::Function& f = tracing_->function;
  check_width(f, tensor, width);
  if (named(f.tensors, tensor)) refuse(f, "'" + tensor + "' is pulled twice; expected once");
  return tracing_->row_of(tensor, width);
}

IndexExpr Vertex::pull_index(const std::string& name, Presence presence, Index width) {
  return pull_index_rows(name, {Rows::vertices(), width}, presence);
}

IndexExpr Vertex::pull_edge_index(const std::string& name, Presence presence, Index width) {
  check_any_arity("edge input '" + name + "'");
  return pull_index_rows(name, {Rows::edges(), width}, presence);
}

IndexExpr Vertex::pull_index_rows(const std::string& name, const Type& type, Presence presence) {
  ir::Function& f = tracing_->function;
  if (presence == Presence::sometimes && type.width != 1) refuse(f, "'" + name + "' may be absent; expected width 1");
  check_input(f, name, type.width);
  if (named(f.index_pulls, name)) refuse(f, "'" + name + "' is pulled twice; expected once");
  tracing_->kind().index_pulls.push_back(f.index_pulls.size());
  f.index_pulls.push_back({name, type.width, type.rows, presence == Presence::sometimes});
  return tracing_->index_expr(f.index_pulls.size() - 1);
}

Expr Vertex::parameter(const Parameter& parameter) { return tracing_->expr_of(tracing_->value_of(parameter)); }

Expr Vertex::constant(Index width, double value) {
  check_width(tracing_->function, "constant", width);
  return tracing_->constant(width, held_by_float(tracing_->function.name + ": constant", value));
}

void Vertex::push(const std::string& name, const Expr& value) {
  ir::Function& f = tracing_->function;
  if (named(f.outputs, name)) refuse(f, "'" + name + "' is pushed twice; expected once");
  if (value.type().rows != Rows::vertices()) {
    const bool edges = value.type().rows == Rows::edges();
    refuse(f, "'" + name + "' is " + (edges ? "of edges" : "a parameter") + "; expected a value of the vertex");
  }
  f.outputs.push_back({name, value.width(), Rows::vertices()});
  tracing_->kind().pushes.push_back(tracing_->value_of(value));
  tracing_->find_gradient();
}

void Vertex::loss(const Expr& value) {
  ir::Function& f = tracing_->function;
  if (value.type() != Type{Rows::vertices(), 1}) {
    refuse(f, "a loss is " + to_string(value.type()) + "; expected vertices x 1");
  }
  tracing_->kind().losses.push_back(tracing_->value_of(value));
}

VertexFunction::VertexFunction(std::string name, Shape shape, const std::function<void(Vertex&)>& body) {
  const auto tracing = std::make_shared<ir::Tracing>(std::move(name), shape);
  ir::Function& f = tracing->function;
  if (!body) refuse(f, "no body; expected a function of a Vertex");
  Vertex vertex(tracing);
  body(vertex);
  ir::finish(f);
  function_ = std::make_shared<const ir::Function>(std::move(f));
}

VertexFunction::VertexFunction(std::string name, const std::vector<VertexFunction>& kinds) {
  std::vector<const ir::Function*> functions;
  for (const VertexFunction& kind : kinds) functions.push_back(kind.function_.get());
  function_ = std::make_shared<const ir::Function>(ir::with_kinds(std::move(name), functions));
}

Signature ir::signature_of(const Function& function, const std::vector<Node>& nodes, const Node& node) {
  Signature signature{.attributes = node.attributes};
  for (const Value in : node.in) signature.in.push_back(nodes[at(in)].type);
  for (const std::size_t pull : node.indices) {
    signature.indices.push_back({function.index_pulls[pull].rows, function.index_pulls[pull].width});
  }
  return signature;
}

void ir::finish(Function& function) {
  for (VertexKind& kind : function.kinds) {
    check_types(function, kind);
    note_what_is_gathered(function, kind);
    note_index_ranges(function, kind);
  }
}

const ir::Function& ir::function_of(const VertexFunction& function) { return *function.function_; }

const std::string& VertexFunction::name() const { return function_->name; }
std::size_t VertexFunction::kinds() const { return function_->kinds.size(); }

}  // namespace windrow
