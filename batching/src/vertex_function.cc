#include "windrow/batching/vertex_function.h"

#include <algorithm>

#include "ir.h"

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

/// A type of vertex is a bit for each child and for each optional index.
void check_types(const ir::Function& function) {
  std::size_t bits = std::min<std::size_t>(function.arity, UINT32_MAX);
  for (const ir::IndexField& pull : function.index_pulls) bits += pull.optional ? 1 : 0;
  if (bits > 31) {
    refuse(function, "arity and optional indices are " + std::to_string(bits) + " together; expected 31 at most");
  }
}

}  // namespace

State Vertex::state(const std::string& name, Index width) {
  ir::Function& f = trace_->function;
  check_width(f, name, width);
  if (named(f.states, name)) refuse(f, "state '" + name + "' is declared twice; expected once");
  f.states.push_back({name, width});
  f.scattered.push_back(no_value);
  return State(trace_, f.states.size() - 1, width);
}

Expr Vertex::gather(std::size_t k, const State& state) {
  ir::Function& f = trace_->function;
  if (state.trace_.lock() != trace_) refuse(f, "gather of a state of another vertex function");
  if (k >= f.arity) {
    refuse(f, "gather(" + std::to_string(k) + ") of state '" + f.states[state.number_].name + "'; expected less than " +
                  std::to_string(f.arity) + ", the arity");
  }
  return trace_->expr({.code = Code::gather,
                       .type = {Rows::vertices(), state.width()},
                       .number = state.number_,
                       .child = static_cast<Index>(k)});
}

void Vertex::scatter(const State& state, const Expr& value) {
  ir::Function& f = trace_->function;
  if (state.trace_.lock() != trace_) refuse(f, "scatter of a state of another vertex function");
  const std::string& name = f.states[state.number_].name;
  if (value.type() != Type{Rows::vertices(), state.width()}) {
    refuse(f, "state '" + name + "' is vertices x " + std::to_string(state.width()) + ", and " +
                  to_string(value.type()) + " was scattered; expected one shape");
  }
  Value& scattered = f.scattered[state.number_];
  if (scattered != no_value) refuse(f, "state '" + name + "' is scattered twice; expected once");
  scattered = trace_->value_of(value);
}

Expr Vertex::pull(const std::string& name, Index width) {
  ir::Function& f = trace_->function;
  check_width(f, name, width);
  if (named(f.pulls, name)) refuse(f, "'" + name + "' is pulled twice; expected once");
  f.pulls.push_back({name, width});
  return trace_->expr({.code = Code::pull, .type = {Rows::vertices(), width}, .number = f.pulls.size() - 1});
}

IndexExpr Vertex::pull_index(const std::string& name, Presence presence, Index width) {
  ir::Function& f = trace_->function;
  check_width(f, name, width);
  if (named(f.index_pulls, name)) refuse(f, "'" + name + "' is pulled twice; expected once");
  const bool optional = presence == Presence::sometimes;
  if (optional && width != 1) refuse(f, "'" + name + "' may be absent; expected width 1");
  f.index_pulls.push_back({name, width, optional});
  return trace_->index_expr(f.index_pulls.size() - 1);
}

Expr Vertex::parameter(const Parameter& parameter) { return trace_->expr_of(trace_->value_of(parameter)); }

void Vertex::push(const std::string& name, const Expr& value) {
  ir::Function& f = trace_->function;
  if (named(f.pushes, name)) refuse(f, "'" + name + "' is pushed twice; expected once");
  if (value.type().rows.counted()) refuse(f, "'" + name + "' is a parameter; expected a value of the vertex");
  f.pushes.push_back({name, trace_->value_of(value)});
}

void Vertex::loss(const Expr& value) {
  ir::Function& f = trace_->function;
  if (value.type() != Type{Rows::vertices(), 1}) {
    refuse(f, "a loss is " + to_string(value.type()) + "; expected vertices x 1");
  }
  f.losses.push_back(trace_->value_of(value));
}

VertexFunction::VertexFunction(std::string name, Shape shape, const std::function<void(Vertex&)>& body) {
  const auto trace = std::make_shared<ir::Trace>();
  ir::Function& f = trace->function;
  f.name = std::move(name);
  f.arity = shape.arity;
  if (!body) refuse(f, "no body; expected a function of a Vertex");
  Vertex vertex(trace);
  body(vertex);
  for (std::size_t s = 0; s < f.states.size(); ++s) {
    if (f.scattered[s] == no_value) refuse(f, "state '" + f.states[s].name + "' is never scattered; expected once");
  }
  check_types(f);
  function_ = std::make_shared<const ir::Function>(std::move(f));
}

const std::string& VertexFunction::name() const { return function_->name; }
std::size_t VertexFunction::arity() const { return function_->arity; }

}  // namespace windrow
