// Input graphs of a vertex function: single ones, and sequences of them.
#include "batching/graphs.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <random>

namespace windrow::python {
namespace {

/// An InputGraph of Python.
struct OneGraph {
  SharedGraph graph;
};

template <class T>
nb::object numpy_array(std::vector<T> numbers) {
  auto* const kept = new std::vector<T>(std::move(numbers));
  const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), {kept->size()}, owner));
}

std::size_t place_of(const GraphsObject& graphs, std::int64_t number) {
  const auto count = static_cast<std::int64_t>(graphs.graphs.size());
  const std::int64_t place = number < 0 ? number + count : number;
  if (place < 0 || count <= place) {
    throw nb::index_error(("graph " + std::to_string(number) + "; expected " + std::to_string(-count) + " to " +
                           std::to_string(count - 1))
                              .c_str());
  }
  return static_cast<std::size_t>(place);
}

bool is_bool(nb::handle one) {
  if (PyBool_Check(one.ptr())) return true;
  const std::string name = nb::cast<std::string>(one.type().attr("__name__"));
  return name == "bool" || name == "bool_";  // NumPy's bool, whose name depends on the version
}

/// The places that a list of numbers, or a mask, selects.
std::vector<std::size_t> places_of(const GraphsObject& graphs, nb::handle which) {
  const nb::object as_list = nb::hasattr(which, "dtype") && nb::hasattr(which, "tolist")
                                 ? which.attr("tolist")()  // of an array
                                 : nb::borrow(which);
  const nb::object all = nb::steal(PyObject_GetIter(as_list.ptr()));
  if (!all.is_valid() || nb::isinstance<nb::str>(as_list)) {
    PyErr_Clear();
    throw nb::type_error(("graphs[...] of " + kind_of(which) +
                          "; expected a number, a slice, or a list or array of numbers or of a bool for each graph")
                             .c_str());
  }
  std::vector<std::size_t> places;
  std::size_t seen = 0, bools = 0;
  while (PyObject* const next = PyIter_Next(all.ptr())) {
    const nb::object one = nb::steal(next);
    if (is_bool(one)) {
      ++bools;
      if (PyObject_IsTrue(one.ptr()) == 1) places.push_back(seen);
    } else if (const std::optional<std::int64_t> number = integer_of(one)) {
      places.push_back(place_of(graphs, *number));
    } else {
      throw nb::type_error(
          ("graphs[...] of a list with " + kind_of(one) + "; expected numbers of graphs, or a bool for each graph")
              .c_str());
    }
    ++seen;
  }
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  if (bools != 0 && (bools != seen || seen != graphs.graphs.size())) {
    throw nb::index_error(("graphs[...] of " + counted(bools, "bool", "bools") +
                           (bools != seen ? " and " + counted(seen - bools, "number", "numbers") : "") +
                           "; expected numbers, or " + counted(graphs.graphs.size(), "bool", "bools") +
                           ", one for each graph")
                              .c_str());
  }
  return places;
}

nb::object item(nb::handle self, nb::handle which) {
  const auto& graphs = nb::cast<const GraphsObject&>(self);
  if (nb::isinstance<nb::slice>(which)) {
    auto [begin, end, step, count] = nb::borrow<nb::slice>(which).compute(graphs.graphs.size());
    GraphsObject taken;
    taken.graphs.reserve(count);
    for (std::size_t i = 0; i < count; ++i, begin += step) {
      taken.graphs.push_back(graphs.graphs[static_cast<std::size_t>(begin)]);
    }
    return new_object<GraphsObject>(self.type(), std::move(taken));
  }
  if (is_bool(which)) {
    throw nb::type_error("graphs[...] of a bool; expected a number, a slice, or a list of them or of bools");
  }
  if (const std::optional<std::int64_t> number = integer_of(which)) {
    return nb::cast(OneGraph{graphs.graphs[place_of(graphs, *number)]});
  }
  GraphsObject taken;
  for (const std::size_t place : places_of(graphs, which)) taken.graphs.push_back(graphs.graphs[place]);
  return new_object<GraphsObject>(self.type(), std::move(taken));
}

/// Equal seeds give the minibatches of windrow::shuffled_minibatches() with a std::mt19937_64.
nb::list minibatches(nb::handle self, std::int64_t size, std::optional<std::uint64_t> shuffle) {
  if (size < 1) throw MisuseError("minibatches of " + std::to_string(size) + " graphs; expected at least 1");
  std::vector<SharedGraph> order = nb::cast<const GraphsObject&>(self).graphs;
  if (shuffle) {
    std::mt19937_64 random(*shuffle);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  }
  nb::list all;
  for (auto begin = order.begin(); begin != order.end();) {
    const auto end = begin + std::min<std::ptrdiff_t>(size, order.end() - begin);
    all.append(new_object<GraphsObject>(self.type(), GraphsObject{{begin, end}}));
    begin = end;
  }
  return all;
}

nb::object from_arrays(nb::handle type, const VertexFunction& function, nb::handle offsets, nb::handle child_offsets,
                       nb::handle children, nb::handle kinds, const nb::dict& inputs, bool in_corpus) {
  GraphArrays arrays{.offsets = Column(offsets, "offsets", 1),
                     .child_offsets = Column(child_offsets, "child_offsets", 1),
                     .children = Column(children, "children", 1),
                     .in_corpus = in_corpus,
                     .kinds = {},
                     .inputs = {}};
  if (!kinds.is_none()) arrays.kinds.emplace(kinds, "kinds", 1);
  for (const auto& [name, column] : inputs) {
    const std::string text = nb::cast<std::string>(name);
    arrays.inputs.emplace(text, Column(column, text));
  }
  GraphsObject made;
  {
    const WithoutGil without_gil;
    made = graphs_of(function, arrays);
  }
  return new_object<GraphsObject>(type, std::move(made));
}

/// Calls a function of windrow._display.
nb::object displayed(const char* function, nb::handle of) {
  return nb::module_::import_("windrow._display").attr(function)(of);
}

nb::tuple structure(const OneGraph& of) {
  GraphData data = of.graph->structure();
  return nb::make_tuple(numpy_array(std::move(data.child_begin)), numpy_array(std::move(data.children)),
                        numpy_array(std::move(data.kinds)));
}

}  // namespace

GraphsObject graphs_from(nb::handle object) {
  if (nb::isinstance<GraphsObject>(object)) return nb::cast<const GraphsObject&>(object);
  if (nb::isinstance<OneGraph>(object)) return {{nb::cast<const OneGraph&>(object).graph}};
  const auto refuse = [&](nb::handle given) {
    throw nb::type_error(("graphs are given as " + std::string(nb::type_name(given.type()).c_str()) +
                          "; expected Graphs, or a list of InputGraph")
                             .c_str());
  };
  const nb::object all = nb::steal(PyObject_GetIter(object.ptr()));
  if (!all.is_valid()) {
    PyErr_Clear();
    refuse(object);
  }
  GraphsObject graphs;
  while (PyObject* const next = PyIter_Next(all.ptr())) {
    const nb::object one = nb::steal(next);
    if (!nb::isinstance<OneGraph>(one)) refuse(one);
    graphs.graphs.push_back(nb::cast<const OneGraph&>(one).graph);
  }
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return graphs;
}

void bind_graphs(nb::module_& m) {
  nb::class_<OneGraph> one(
      m, "InputGraph",
      "A graph of a vertex function: the children and inputs of its vertices, which are numbered from "
      "0. An element of Graphs; immutable.");
  define_copies_as_itself(one);
  one.def_prop_ro("vertices", [](const OneGraph& of) { return of.graph->vertices(); })
      .def_prop_ro(
          "edges", [](const OneGraph& of) { return of.graph->edges(); }, "The number of children of all vertices.")
      .def_prop_ro(
          "levels", [](const OneGraph& of) { return of.graph->levels(); },
          "The number of levels. A vertex without children is on level 0, any other one level above its highest child.")
      .def(
          "level",
          [](const OneGraph& of, std::int32_t vertex) {
            if (vertex < 0 || of.graph->vertices() <= vertex) {
              throw nb::index_error(
                  ("vertex " + std::to_string(vertex) + "; expected 0 to " + std::to_string(of.graph->vertices() - 1))
                      .c_str());
            }
            return of.graph->level(vertex);
          },
          nb::arg("vertex"), "The level of a vertex; see levels.")
      .def(
          "index", [](const OneGraph& of, const std::string& name) { return numpy_array(of.graph->index(name)); },
          nb::arg("name"), nb::sig("def index(self, name: str) -> NDArray[int32]"),
          "The index input of that name: the rows of all vertices, one after the other. Raises MisuseError if the "
          "function pulls no index of that name.")
      .def(
          "structure", &structure,
          nb::sig("def structure(self) -> tuple[NDArray[int32], NDArray[int32], NDArray[int32]]"),
          "Three arrays of int32: child_offsets, (vertices + 1,), and children, (edges,), as for Graphs.from_arrays(); "
          "and the kind of each vertex, (vertices,).")
      .def(
          "dot", [](nb::handle self) { return displayed("graph_dot", self); }, nb::sig("def dot(self) -> str"),
          "The graph in the language of Graphviz.")
      .def(
          "_repr_svg_", [](nb::handle self) { return displayed("graph_svg", self); },
          nb::sig("def _repr_svg_(self) -> str"))
      .def("__repr__", [](const OneGraph& of) {
        return "<windrow.InputGraph, " +
               counted(static_cast<std::uint64_t>(of.graph->vertices()), "vertex", "vertices") + ", " +
               counted(static_cast<std::uint64_t>(of.graph->levels()), "level", "levels") + ">";
      });
  nb::class_<GraphsObject> all(m, "Graphs", nb::is_weak_referenceable());
  define_copies_as_itself(all);
  def_with_signatures(all, "__getitem__",
                      {"def __getitem__(self, which: int) -> InputGraph",
                       "def __getitem__(self, which: Slice | Iterable[int] | IntArray) -> Self"},
                      &item,
                      "A graph for a number. Graphs for a slice, for a list or array of numbers, or for a mask with a "
                      "bool for each graph; they share the graphs.",
                      nb::arg("which"));
  all.def(
         "__init__", [](GraphsObject* self, nb::handle graphs) { new (self) GraphsObject(graphs_from(graphs)); },
         nb::arg("graphs") = nb::make_tuple(),
         nb::sig("def __init__(self, graphs: Graphs | InputGraph | Iterable[InputGraph] = ()) -> None"))
      .def("__len__", [](const GraphsObject& of) { return of.graphs.size(); })
      .def(
          "__add__",
          [](nb::handle self, const GraphsObject& other) {
            GraphsObject both = nb::cast<const GraphsObject&>(self);
            both.graphs.insert(both.graphs.end(), other.graphs.begin(), other.graphs.end());
            return new_object<GraphsObject>(self.type(), std::move(both));
          },
          nb::is_operator(), nb::sig("def __add__(self, arg: Graphs, /) -> Self"))
      .def_prop_ro(
          "vertices",
          [](const GraphsObject& of) {
            std::int64_t vertices = 0;
            for (const SharedGraph& graph : of.graphs) vertices += graph->vertices();
            return vertices;
          },
          "The number of vertices of all graphs.")
      .def("minibatches", &minibatches, nb::arg("size"), nb::arg("shuffle") = nb::none(),
           nb::sig("def minibatches(self, size: int, shuffle: int | None = None) -> list[Self]"))
      .def_static("_from_arrays", &from_arrays, nb::arg("type"), nb::arg("function"), nb::arg("offsets"),
                  nb::arg("child_offsets"), nb::arg("children"), nb::arg("kinds").none(), nb::arg("inputs"),
                  nb::arg("in_corpus"),
                  nb::sig("def _from_arrays(type: type[T], function: VertexFunction, offsets: ArrayLike, "
                          "child_offsets: ArrayLike, children: ArrayLike, kinds: ArrayLike | None, "
                          "inputs: dict[str, ArrayLike], in_corpus: bool) -> T"));
}

}  // namespace windrow::python
