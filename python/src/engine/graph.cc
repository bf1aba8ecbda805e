// Graphs: ops that are captured once and launched many times.
#include "windrow/engine/graph.h"

#include "python.h"

namespace windrow::python {
namespace {

/// A graph, and the Python functions that it owns jointly with its ops.
struct GraphObject {
  Graph graph;
  std::vector<Kept> functions;
  std::weak_ptr<Engine> engine;
};

GraphObject graph_of(EngineObject& engine, const nb::object& body, const std::string& name) {
  const std::shared_ptr<Engine> shared = engine.share();
  GraphObject made;
  made.engine = shared;
  const Capturing capturing(made.functions);
  made.graph = shared->capture([&] { refuse_unstarted(body(), "a capture"); }, OpName(name), calling_line());
  return made;
}

void append(GraphObject& to, const nb::object& body) {
  std::vector<Kept> functions;
  const Capturing capturing(functions);
  to.graph.append([&] { refuse_unstarted(body(), "a capture"); }, calling_line());
  to.functions.insert(to.functions.end(), functions.begin(), functions.end());
}

/// A function of a graph often refers to the graph, through the globals of its module, so the garbage collector must
/// see the graph's references. While ops are pending, ops of a launch may own the functions, too. Then the references
/// are hidden, since the collector could clear functions that are about to run.
int traverse_graph(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const GraphObject& graph = *nb::inst_ptr<GraphObject>(self);
  const std::shared_ptr<Engine> engine = graph.engine.lock();
  if (engine != nullptr && engine->stats().pending != 0) return 0;
  for (const Kept& function : graph.functions) Py_VISIT(function.ptr());
  return 0;
}
int clear_graph(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  GraphObject& graph = *nb::inst_ptr<GraphObject>(self);
  graph.functions.clear();
  graph.graph = Graph();
  return 0;
}
PyType_Slot graph_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_graph)},
                             {Py_tp_clear, reinterpret_cast<void*>(clear_graph)},
                             {0, nullptr}};

}  // namespace

void bind_graph(nb::module_& m) {
  nb::class_<GraphObject>(m, "Graph", "Captured ops, to launch many times. Made by Engine.capture().",
                          nb::type_slots(graph_slots))
      .def(
          "launch", [](const GraphObject& of) { of.graph.launch(calling_line()); },
          "Launches the ops, which are ordered after earlier ops as if they were pushed now.")
      .def("append", &append, nb::arg("body"), nb::sig("def append(self, body: Callable[[], object]) -> None"),
           "Captures what ``body`` pushes after the existing ops; later launches run them, too.")
      .def("__len__", [](const GraphObject& of) { return of.graph.size(); })
      .def("__repr__",
           [](const GraphObject& of) { return "<windrow.Graph, " + counted(of.graph.size(), "op", "ops") + ">"; })
      .def(
          "dot", [](const GraphObject& of) { return of.graph.dot(); }, "The graph in the language of Graphviz.");
  m.def("_capture", &graph_of, nb::arg("engine"), nb::arg("body"), nb::arg("name"),
        nb::sig("def _capture(engine: Engine, body: Callable[[], object], name: str) -> Graph"));
}

}  // namespace windrow::python
