// Cells of lazy expressions.
#include "windrow/batching/lazy_cell.h"

#include <nanobind/stl/vector.h>

#include <atomic>

#include "batching/lazy_object.h"

namespace windrow::python {
namespace {

/// A cell outside of any graph. Each graph in which it is called keeps a LazyCell for it, found by `number`, which is
/// unique in the process. So a cell does not keep graphs alive: a call finds the LazyCell in the graph of its operands.
struct LazyCellObject {
  std::string name;
  nb::object body;
  std::uint64_t number;
};

void make_cell(LazyCellObject* self, std::string name, nb::object body) {
  static std::atomic<std::uint64_t> made{0};
  new (self) LazyCellObject{std::move(name), std::move(body), ++made};
}

/// A body often refers to its cell, so the garbage collector must see the cell's reference to the body.
int traverse_cell(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<LazyCellObject>(self)->body.ptr());
  return 0;
}
int clear_cell(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<LazyCellObject>(self)->body.reset();
  return 0;
}
PyType_Slot cell_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_cell)},
                            {Py_tp_clear, reinterpret_cast<void*>(clear_cell)},
                            {0, nullptr}};

/// Makes the graph's own cell, which runs the body.
const LazyCell& add_cell(LazyGraphObject& graph, const LazyCellObject& cell) {
  // The graph runs the body again when it plans, which may happen in a flush without the GIL. It has a reference of its
  // own to the body, since the garbage collector counts references per object.
  const auto body = std::make_shared<std::optional<Kept>>(cell.body);
  const auto run = [body](CellBody& traced) {
    const nb::gil_scoped_acquire with_gil;
    if (!*body) throw MisuseError("a cell of a lazy graph that has ended");
    const nb::object function = (*body)->get();  // another thread may end the graph
    call_with(function.ptr(), traced,
              "the argument of a cell's body is used after its function has returned; expected uses inside it");
  };
  const LazyUse::Turn turn(*graph.use);
  LazyCell made = graph.graph->cell(cell.name, run);
  return graph.cells.emplace(cell.number, CellOfGraph{std::move(made), body}).first->second.cell;
}

/// The graph of an operand, an index, or an element of the list; null for others.
std::shared_ptr<LazyUse> use_of(nb::handle argument) {
  if (nb::isinstance<LazyObject>(argument)) return nb::inst_ptr<LazyObject>(argument)->use();
  if (nb::isinstance<LazyIndexObject>(argument)) return nb::inst_ptr<LazyIndexObject>(argument)->use();
  return nullptr;
}
template <class Sequence>
std::shared_ptr<LazyUse> use_of_any(const Sequence& arguments) {
  for (const nb::handle argument : arguments) {
    if (std::shared_ptr<LazyUse> use = use_of(argument)) return use;
  }
  return nullptr;
}

/// Records a call. `arguments` are the operands and indices, `list` the elements of its list. Returns one expression,
/// or a tuple.
nb::object call_cell(const LazyCellObject& self, const nb::args& arguments, nb::handle list) {
  const std::source_location line = calling_line();
  std::vector<nb::object> listed;
  if (!list.is_none()) {
    for (const nb::handle element : list) listed.push_back(nb::borrow(element));
  }
  std::shared_ptr<LazyUse> use = use_of_any(arguments);
  if (use == nullptr) use = use_of_any(listed);
  if (use == nullptr) {
    throw MisuseError(self.name +
                      ": a call without an expression or index, which tell the graph; expected one, such as "
                      "graph.zeros(width) in place of None");
  }
  use->require_free();
  if (use->graph == nullptr) throw MisuseError(self.name + ": an expression of a lazy graph that is gone");
  // The body, if it has to run, runs before the operands are read: other threads may run meanwhile. `kept` keeps the
  // graph alive until then.
  nb::object kept;
  const LazyCell* cell = nullptr;
  if (const auto known = use->graph->cells.find(self.number); known != use->graph->cells.end()) {
    cell = &known->second.cell;
  } else {
    kept = nb::find(*use->graph);
    cell = &add_cell(*use->graph, self);
  }

  static const LazyExpr none;
  std::vector<lazy::OperandRef> operands;
  std::vector<LazyIndex> indices;
  for (const nb::handle argument : arguments) {
    if (nb::isinstance<LazyObject>(argument)) {
      operands.emplace_back(nb::inst_ptr<LazyObject>(argument)->get(), line);
    } else if (nb::isinstance<LazyIndexObject>(argument)) {
      indices.push_back(nb::inst_ptr<LazyIndexObject>(argument)->get());
    } else if (argument.is_none()) {
      operands.emplace_back(none, line);
    } else {
      throw nb::type_error((self.name + ": an operand of type " + nb::type_name(argument.type()).c_str() +
                            "; expected lazy expressions, indices and None; graph.parameter(w) makes an expression")
                               .c_str());
    }
  }
  std::vector<LazyExpr> elements;
  for (const nb::object& element : listed) {
    if (!nb::isinstance<LazyObject>(element)) {
      throw nb::type_error((self.name + ": a list with " + kind_of(element) + "; expected lazy expressions").c_str());
    }
    elements.push_back(nb::inst_ptr<LazyObject>(element)->get());
  }
  std::vector<LazyExpr> results = cell->call(operands, indices, elements, line);
  if (results.size() == 1) return nb::cast(LazyObject(std::move(results[0]), std::move(use)));
  nb::list made;
  for (LazyExpr& result : results) made.append(nb::cast(LazyObject(std::move(result), use)));
  return nb::tuple(made);
}

void bind_body(nb::module_& m) {
  using Body = Lent<CellBody>;
  nb::class_<Body>(m, "CellBody", "The argument of the body of a cell.")
      .def(
          "operand", [](Body& self, Index width) { return self->operand(width); }, nb::arg("width"),
          "The next operand: a row of that width for each call.")
      .def(
          "each", [](Body& self, Index width) { return self->each(width); }, nb::arg("width"),
          "The next operand that each element of the list has: a value of edges, see Vertex.each().")
      .def(
          "index",
          [](Body& self, bool optional, Index width) {
            return self->index(optional ? Presence::sometimes : Presence::always, width);
          },
          nb::kw_only(), nb::arg("optional") = false, nb::arg("width") = 1,
          "The next index operand. An optional one may be -1.")
      .def(
          "constant", [](Body& self, Index width, double value) { return self->constant(width, value); },
          nb::arg("width"), nb::arg("value"), "A row of equal numbers.")
      .def(
          "zeros", [](Body& self, Index width) { return self->zeros(width); }, nb::arg("width"), "A row of zeros.")
      .def(
          "parameter", [](Body& self, const WeightArgument& weight) { return self->parameter(weight); },
          nb::arg("weight"), "A parameter, or a function of parameters such as w * 2, as an expression.")
      .def(
          "result", [](Body& self, const Expr& value) { self->result(value); }, nb::arg("value"),
          "The next result: a row for each call.")
      .def("__repr__", [](const Body&) { return "<windrow.CellBody of a body>"; });
}

}  // namespace

void bind_cells(nb::module_& m) {
  bind_body(m);
  nb::class_<LazyCellObject>(m, "LazyCell", nb::type_slots(cell_slots))
      .def("__init__", &make_cell, nb::arg("name"), nb::arg("body"),
           nb::sig("def __init__(self, name: str, body: Callable[[CellBody], object]) -> None"))
      .def_ro("name", &LazyCellObject::name)
      .def("__call__", &call_cell, nb::arg("operands"), nb::kw_only(), nb::arg("list") = nb::none(),
           nb::sig("def __call__(self, *operands: LazyExpr | LazyIndex | None, "
                   "list: Iterable[LazyExpr] | None = None) -> Any"),
           "Records a call with operands and indices in the order of the body. `list`: the elements of the list "
           "that each() reads. Returns one expression, or a tuple.");
}

}  // namespace windrow::python
