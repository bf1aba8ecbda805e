// Vertex functions: tracing a Python function.
#include "windrow/batching/vertex_function.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "batching/graphs.h"
#include "batching/parameters.h"
#include "batching/weights.h"
#include "windrow/batching/internal/ir.h"

namespace windrow::python {
namespace {

/// Python's Vertex.
using VertexHandle = Lent<Vertex>;

/// Traces `body` into an object of `type`, a Python class that extends VertexFunction.
nb::object traced(nb::handle type, const std::string& name, std::optional<std::size_t> arity, std::size_t fixed,
                  std::size_t per_edge, const nb::object& body) {
  const VertexFunction::Shape shape{.arity = arity.value_or(any_arity), .fixed = fixed, .per_edge = per_edge};
  const VertexFunction function(name, shape, [&](Vertex& v) {
    call_with(body.ptr(), v,
              "a vertex is used after its function was traced; expected uses inside the function's body");
  });
  return new_object(type, function);
}

Presence presence_of(bool optional) { return optional ? Presence::sometimes : Presence::always; }

nb::list names_of(const std::vector<ir::Field>& fields) {
  nb::list names;
  for (const ir::Field& field : fields) names.append(nb::make_tuple(field.name, field.width));
  return names;
}

/// The inputs that a graph needs, by name: "index", "optional index" or "values", "vertices" or "edges", and the width.
nb::dict inputs_of(const VertexFunction& function) {
  const ir::Function& traced = ir::function_of(function);
  nb::dict inputs;
  const auto add = [&](const auto& field, const char* what) {
    inputs[field.name.c_str()] = nb::make_tuple(what, field.rows == Rows::edges() ? "edges" : "vertices", field.width);
  };
  for (const ir::Field& field : traced.pulls) {
    if (field.holds == ir::Field::Holds::input) add(field, "values");
  }
  for (const ir::IndexField& field : traced.index_pulls) {
    if (field.holds == ir::IndexField::Holds::input) add(field, field.optional ? "optional index" : "index");
  }
  return inputs;
}

bool has_dropout(const VertexFunction& function) {
  return std::ranges::any_of(ir::function_of(function).index_pulls, &ir::IndexField::holds_dropout);
}

void bind_vertex(nb::module_& m) {
  nb::class_<State>(m, "State", "A part of the state that a vertex hands to its consumers. Made by Vertex.state().")
      .def_prop_ro("width", &State::width)
      .def("__repr__", [](const State& of) { return "<windrow.State, width " + std::to_string(of.width()) + ">"; });
  nb::class_<VertexHandle>(m, "Vertex",
                           "The argument of the body of a vertex function. Valid only while the body runs, which it "
                           "does once. Raises MisuseError, naming the function, for misuse.")
      .def(
          "state", [](const VertexHandle& v, const std::string& name, Index width) { return v->state(name, width); },
          nb::arg("name"), nb::arg("width"), "Declares a part of the state. Use each name once.")
      .def(
          "gather",
          [](const VertexHandle& v, std::size_t child, const State& state) { return v->gather(child, state); },
          nb::arg("child"), nb::arg("state"),
          "The state that child number `child` scattered, from 0; zero if the vertex has no such child.")
      .def(
          "each", [](const VertexHandle& v, const State& state, std::size_t k) { return v->each(state, k); },
          nb::arg("state"), nb::arg("k") = 0,
          "The state that each child scattered, or child k of each edge: a value of edges. For functions of any "
          "arity.")
      .def(
          "scatter", [](const VertexHandle& v, const State& state, const Expr& value) { v->scatter(state, value); },
          nb::arg("state"), nb::arg("value"), "Hands the value to all consumers. Call it once for each state.")
      .def(
          "pull", [](const VertexHandle& v, const std::string& name, Index width) { return v->pull(name, width); },
          nb::arg("name"), nb::arg("width") = 1,
          "The vertex's row of the graph's values of that name. Use each name once.")
      .def(
          "pull_index",
          [](const VertexHandle& v, const std::string& name, bool optional, Index width) {
            return v->pull_index(name, presence_of(optional), width);
          },
          nb::arg("name"), nb::arg("optional") = false, nb::arg("width") = 1,
          "The vertex's row of the graph's index of that name. If it is optional, which needs width 1, -1 means that "
          "the vertex has none; values that operators compute from it are zero.")
      .def(
          "pull_row",
          [](const VertexHandle& v, const std::string& tensor, Index width) { return v->pull_row(tensor, width); },
          nb::arg("tensor"), nb::arg("width"),
          "The vertex's row of a tensor that is given to each call of the runner. Its gradient is "
          "Minibatch.gradient().")
      .def(
          "pull_edge",
          [](const VertexHandle& v, const std::string& name, Index width) { return v->pull_edge(name, width); },
          nb::arg("name"), nb::arg("width") = 1, "The row of an edge input, for each edge.")
      .def(
          "pull_edge_index",
          [](const VertexHandle& v, const std::string& name, bool optional, Index width) {
            return v->pull_edge_index(name, presence_of(optional), width);
          },
          nb::arg("name"), nb::arg("optional") = false, nb::arg("width") = 1,
          "The index of an edge input, for each edge.")
      .def(
          "constant", [](const VertexHandle& v, Index width, double value) { return v->constant(width, value); },
          nb::arg("width"), nb::arg("value"), "A row of equal numbers, for each vertex.")
      .def(
          "zeros", [](const VertexHandle& v, Index width) { return v->zeros(width); }, nb::arg("width"),
          "A row of zeros, for each vertex.")
      .def(
          "parameter", [](const VertexHandle& v, const WeightArgument& of) { return v->parameter(of); },
          nb::arg("parameter"),
          "A parameter, or a function of parameters such as w * 2, as an expression. Operators on parameters alone are "
          "computed once for all vertices.")
      .def(
          "push", [](const VertexHandle& v, const std::string& name, const Expr& value) { v->push(name, value); },
          nb::arg("name"), nb::arg("value"), "Makes the value an output of the minibatch. Use each name once.")
      .def(
          "loss", [](const VertexHandle& v, const Expr& value) { v->loss(value); }, nb::arg("value"),
          "Adds a term of width 1 to the loss, which is the sum over all vertices.")
      .def("__repr__", [](const VertexHandle&) { return "<windrow.Vertex of a body>"; });
}

}  // namespace

void bind_vertex_function(nb::module_& m) {
  bind_vertex(m);
  nb::class_<VertexFunction> function(m, "VertexFunction",
                                      "What one vertex of an input graph computes, traced once. Immutable.");
  define_copies_as_itself(function);
  function
      .def(nb::init<std::string, const std::vector<VertexFunction>&>(), nb::arg("name"), nb::arg("kinds"),
           "Combines functions into one with several kinds. States, inputs and outputs of one name are the same.")
      .def_static("_trace", &traced, nb::arg("type"), nb::arg("name"), nb::arg("arity").none(), nb::arg("fixed"),
                  nb::arg("per_edge"), nb::arg("body"),
                  nb::sig("def _trace(type: type[T], name: str, arity: int | None, fixed: int, per_edge: int, "
                          "body: Callable[[Vertex], object]) -> T"))
      .def_prop_ro("name", &VertexFunction::name)
      .def_prop_ro("kinds", &VertexFunction::kinds, "The number of kinds.")
      .def_prop_ro("has_dropout", &has_dropout, "Whether it has dropout, which is used in minibatches with gradients.")
      .def_prop_ro("inputs", &inputs_of,
                   nb::for_getter(nb::sig("def inputs(self) -> dict[str, tuple[Literal['values', 'index', "
                                          "'optional index'], Literal['vertices', 'edges'], int]]")),
                   "The inputs that graphs need: for each name 'values', 'index' or 'optional index', whether "
                   "'vertices' or 'edges' have it, and the width.")
      .def_prop_ro(
          "states", [](const VertexFunction& of) { return names_of(ir::function_of(of).states); },
          nb::for_getter(nb::sig("def states(self) -> list[tuple[str, int]]")), "The name and width of each state.")
      .def_prop_ro(
          "outputs", [](const VertexFunction& of) { return names_of(ir::function_of(of).outputs); },
          nb::for_getter(nb::sig("def outputs(self) -> list[tuple[str, int]]")), "The name and width of each output.")
      .def_prop_ro(
          "tensors", [](const VertexFunction& of) { return names_of(ir::function_of(of).tensors); },
          nb::for_getter(nb::sig("def tensors(self) -> list[tuple[str, int]]")),
          "The name and width of each tensor that is given to each call of a runner.");
}

}  // namespace windrow::python
