// Lazy expressions and their graphs. Cells are in lazy_cell.cc, coroutines in windrow/lazy.py.
#include "windrow/batching/lazy.h"

#include <nanobind/stl/vector.h>

#include "batching/lazy_object.h"
#include "ops/arrays.h"
#include "ops/elements.h"
#include "ops/operators.h"
#include "python.h"
#include "windrow/batching/lazy_task.h"

namespace windrow::python {

LazyGraphObject::LazyGraphObject(const SharedParameters& of, const LazyOptions& options)
    : parameters(of),
      use(std::make_shared<LazyUse>(of)),
      graph(std::make_unique<LazyGraph>(of->parameters.device(), of->parameters, options)) {
  use->graph = this;
}

LazyGraphObject::~LazyGraphObject() {
  use->graph = nullptr;
  drop_bodies();
  // Another thread may still compute a value: it keeps the expression alive, but not the graph.
  use->drop(std::move(graph));
  use->drop(std::move(cells));
}

void LazyGraphObject::drop_bodies() {
  for (auto& [number, cell] : cells) cell.body->reset();
}

namespace {

LazyOptions options_of(bool training, const std::string& schedule, std::int64_t recompute_below) {
  LazyOptions options{.use = training ? LazyOptions::For::training : LazyOptions::For::inference,
                      .recompute_below = recompute_below};
  options.runner.schedule = parse_schedule_policy(schedule);
  return options;
}

/// Runs `body` without the GIL, in this thread's turn for the parameters and for the graph.
template <class Body>
auto computing(LazyUse& use, const Body& body) {
  const InUse engine(&use.parameters()->parameters.device());
  const Turn of_parameters(*use.parameters());
  const LazyUse::Turn turn(use);
  const WithoutGil without_gil;
  return body();
}

LazyObject input(LazyGraphObject& self, nb::handle values) {
  self.use->require_free();
  std::vector<float> row;
  wait_for_elements(values);
  if (!nb::try_cast(values, row)) {
    throw nb::type_error(("input: values are " + kind_of(values) +
                          "; expected a list of numbers, or an array of one dimension, such as [1.0, 2.0]")
                             .c_str());
  }
  return self.value(self.graph->input(row, calling_line()));
}

LazyObject parameter(LazyGraphObject& self, const WeightArgument& weight) {
  self.use->require_free();
  return self.value(self.graph->parameter(weight, calling_line()));
}

LazyIndexObject index(LazyGraphObject& self, nb::handle value) {
  self.use->require_free();
  std::int32_t one = 0;
  if (nb::try_cast<std::int32_t>(value, one)) return {self.graph->index(one), self.use};
  std::vector<std::int32_t> several;
  if (!nb::try_cast(value, several)) {
    throw nb::type_error(
        ("index: value is " + kind_of(value) + "; expected an integer of 32 bits, or a list of them").c_str());
  }
  return {self.graph->index(several), self.use};
}

void backward_of_lazy(LazyGraphObject& self, nb::handle losses) {
  std::vector<LazyExpr> all;
  if (nb::isinstance<LazyObject>(losses)) {
    all.push_back(nb::inst_ptr<LazyObject>(losses)->get());
  } else {
    const auto refuse = [](nb::handle given, const char* where) {
      throw nb::type_error(
          (std::string("backward: ") + where + kind_of(given) + "; expected a LazyExpr of width 1, or a list of them")
              .c_str());
    };
    const nb::object list = nb::steal(PyObject_GetIter(losses.ptr()));
    if (!list.is_valid()) {
      PyErr_Clear();
      refuse(losses, "losses are ");
    }
    while (PyObject* const next = PyIter_Next(list.ptr())) {
      const nb::object loss = nb::steal(next);
      if (!nb::isinstance<LazyObject>(loss)) refuse(loss, "a loss is ");
      all.push_back(nb::inst_ptr<LazyObject>(loss)->get());
    }
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
  }
  const std::source_location line = calling_line();
  computing(*self.use, [&] { self.graph->backward(all, line); });
}

/// The body of a cell often refers to the graph, so the garbage collector must see the graph's reference to it.
int traverse_lazy_graph(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  for (const auto& [number, cell] : nb::inst_ptr<LazyGraphObject>(self)->cells) {
    if (*cell.body) Py_VISIT((*cell.body)->ptr());
  }
  return 0;
}
int clear_lazy_graph(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<LazyGraphObject>(self)->drop_bodies();
  return 0;
}
PyType_Slot lazy_graph_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_lazy_graph)},
                                  {Py_tp_clear, reinterpret_cast<void*>(clear_lazy_graph)},
                                  {0, nullptr}};

/// The terms of a list of lazy expressions. For other lists, lets nanobind try the overloads for Expr.
std::vector<LazyExpr> terms_of(nb::handle list, std::shared_ptr<LazyUse>& use) {
  std::vector<LazyExpr> all;
  for (const nb::handle term : list) {
    if (!nb::isinstance<LazyObject>(term)) throw nb::next_overload();
    const LazyObject& value = *nb::inst_ptr<LazyObject>(term);
    value.use()->require_free();
    use = value.use();
    all.push_back(value.get());
  }
  return all;
}
/// The same for the list that determines the graph: lets nanobind try these overloads for an empty list, too.
std::vector<LazyExpr> first_terms_of(nb::handle list, std::shared_ptr<LazyUse>& use) {
  std::vector<LazyExpr> all = terms_of(list, use);
  if (all.empty()) throw nb::next_overload();
  return all;
}

/// Functions of lists and others that expression_operators.h lacks.
void bind_functions(nb::module_& m) {
  m.def(
      "concat",
      [](const nb::args& given) {
        const nb::object parts = listed(given);
        std::vector<LazyOperand> all;
        std::shared_ptr<LazyUse> use;
        for (const nb::handle part : parts) {
          if (nb::isinstance<LazyObject>(part)) {
            const LazyObject& value = *nb::inst_ptr<LazyObject>(part);
            all.emplace_back(value.get());
            use = value.use();
          } else if (nb::isinstance<LazyWeight>(part)) {
            all.emplace_back(*nb::inst_ptr<LazyWeight>(part));
          } else if (nb::isinstance<ParameterObject>(part)) {
            all.emplace_back(nb::inst_ptr<ParameterObject>(part)->parameter);
          } else {
            throw nb::next_overload();
          }
        }
        if (use == nullptr) throw nb::next_overload();
        return LazyObject(concat(all, calling_line()), use);
      },
      nb::sig("def concat(parts: Sequence[LazyExpr | LazyWeight | Parameter], /) -> LazyExpr"));
  m.def(
      "embedding",
      [](const ParameterObject& table, const LazyIndexObject& row) {
        return LazyObject(embedding(table.parameter, row.get(), calling_line()), row.use());
      },
      nb::arg("table"), nb::arg("row"));
  m.def(
      "mean", [](const LazyObject& x) { return LazyObject(mean(lazy::OperandRef(x.get(), calling_line())), x.use()); },
      nb::arg("x"));
  const auto of_list = [&m](const char* name, auto function) {
    m.def(
        name,
        [function](const nb::list& terms) {
          std::shared_ptr<LazyUse> use;
          LazyExpr result = function(first_terms_of(terms, use), calling_line());
          return LazyObject(std::move(result), use);
        },
        nb::arg("terms"), nb::sig(("def " + std::string(name) + "(terms: list[LazyExpr]) -> LazyExpr").c_str()));
  };
  using Terms = const std::vector<LazyExpr>&;
  using Line = std::source_location;
  of_list("sum", [](Terms terms, Line line) { return sum(terms, line); });
  of_list("mean", [](Terms terms, Line line) { return mean(terms, line); });
  of_list("max", [](Terms terms, Line line) { return max(terms, line); });
  of_list("log_sum_exp", [](Terms terms, Line line) { return log_sum_exp(terms, line); });
  m.def(
      "softmax",
      [](const nb::list& terms) {
        std::shared_ptr<LazyUse> use;
        nb::list made;
        for (LazyExpr& one : softmax(first_terms_of(terms, use), calling_line())) {
          made.append(nb::cast(LazyObject(std::move(one), use)));
        }
        return made;
      },
      nb::arg("terms"), nb::sig("def softmax(terms: list[LazyExpr]) -> list[LazyExpr]"));
  m.def(
      "weighted_sum",
      [](const nb::list& weights, const nb::list& values) {
        std::shared_ptr<LazyUse> use;
        LazyExpr result = weighted_sum(first_terms_of(weights, use), terms_of(values, use), calling_line());
        return LazyObject(std::move(result), use);
      },
      nb::arg("weights"), nb::arg("values"),
      nb::sig("def weighted_sum(weights: list[LazyExpr], values: list[LazyExpr]) -> LazyExpr"));
  m.def(
      "dot_attention",
      [](const LazyObject& query, const nb::list& keys, const nb::list& values, const nb::list& masks) {
        std::shared_ptr<LazyUse> use;
        return LazyObject(dot_attention(query.get(), terms_of(keys, use), terms_of(values, use), terms_of(masks, use),
                                        calling_line()),
                          query.use());
      },
      nb::arg("query"), nb::arg("keys"), nb::arg("values"), nb::arg("masks") = nb::list(),
      nb::sig("def dot_attention(query: LazyExpr, keys: list[LazyExpr], values: list[LazyExpr], "
              "masks: list[LazyExpr] = []) -> LazyExpr"));
}

}  // namespace

void bind_lazy(nb::module_& m) {
  nb::class_<LazyIndexObject>(m, "LazyIndex", "Index operands of lazy expressions. Made by LazyGraph.index().")
      .def("__repr__", [](const LazyIndexObject&) { return "<windrow.LazyIndex>"; });
  nb::class_<LazyObject> expression(m, "LazyExpr",
                                    "A row of numbers of one sample, which is computed when it is needed.");
  expression.def_prop_ro("width", [](const LazyObject& x) { return x.get().width(); })
      .def("__repr__",
           [](const LazyObject& x) { return "<windrow.LazyExpr, width " + std::to_string(x.get().width()) + ">"; })
      .def("_ready", [](const LazyObject& x) { return windrow::LazyValue(x.get(), calling_line()).await_ready(); })
      .def(
          "value",
          [](const LazyObject& x) {
            const LazyExpr& expr = x.get();
            const std::source_location line = calling_line();
            return computing(*x.use(), [&] { return expr.value(line); });
          },
          "The numbers. Computes everything recorded if necessary, and waits. Raises OpError if an operator failed.")
      .def(
          "scalar",
          [](const LazyObject& x) {
            const LazyExpr& expr = x.get();
            const std::source_location line = calling_line();
            return computing(*x.use(), [&] { return expr.scalar(line); });
          },
          "The number of an expression of width 1.");
  refuse_conversions(expression, "lazy expressions", "their numbers, x.value() == y.value()", "x.value(), its numbers");
  bind_operators<LazyTypes>(m, expression, "LazyWeight | Parameter");
  expression.def(
      "__getitem__",
      [](const LazyValue& x, nb::handle columns) {
        const auto [begin, end] = columns_of(columns, LazyTypes::width(x));
        return slice(x, begin, end);
      },
      nb::arg("columns"), nb::sig("def __getitem__(self, columns: Slice) -> LazyExpr"),
      "Columns of x: x[:8], x[8:16].");
  bind_functions(m);

  nb::class_<LazyStats>(m, "LazyStats", "Counters since the graph was made.")
      .def_ro("expressions", &LazyStats::expressions)
      .def_ro("vertices", &LazyStats::vertices, "The vertices into which expressions were grouped.")
      .def_ro("kinds", &LazyStats::kinds)
      .def_ro("flushes", &LazyStats::flushes)
      .def_prop_ro("batches", [](const LazyStats& stats) { return stats.runner.batches; })
      .def("__repr__", [](const LazyStats& of) {
        const auto many = [](auto number, const char* one, const char* several) {
          return counted(static_cast<std::uint64_t>(number), one, several);
        };
        return "<windrow.LazyStats: " + many(of.expressions, "expression", "expressions") + ", " +
               many(of.vertices, "vertex", "vertices") + ", " + many(of.flushes, "flush", "flushes") + ", " +
               many(of.runner.batches, "batch", "batches") + ">";
      });
  nb::class_<LazyGraphObject>(
      m, "LazyGraph",
      "Records expressions of many samples, and computes them in batches.\n\n"
      "`parameters` are those of the expressions. With training=False it keeps nothing for gradients, and is faster.\n"
      "`schedule` is \"agenda\", \"level\", \"depth\", \"complete\" or \"serial\"; see docs/batching.md. Batches "
      "whose\n"
      "products take fewer floating point operations than `recompute_below` are computed again for gradients, and not\n"
      "kept. One thread at a time.",
      nb::type_slots(lazy_graph_slots))
      .def(
          "__init__",
          [](LazyGraphObject* self, const ParametersHandle& parameters, bool training, const std::string& schedule,
             std::int64_t recompute_below) {
            new (self) LazyGraphObject(parameters.shared, options_of(training, schedule, recompute_below));
          },
          nb::arg("parameters"), nb::kw_only(), nb::arg("training") = true, nb::arg("schedule") = "agenda",
          nb::arg("recompute_below") = 20'000'000,
          nb::sig("def __init__(self, parameters: Parameters, *, training: bool = True, schedule: Policy = 'agenda', "
                  "recompute_below: int = 20000000) -> None"))
      .def("input", &input, nb::arg("values"),
           nb::sig("def input(self, values: Sequence[float] | FloatArray) -> LazyExpr"), "Records a row of numbers.")
      .def(
          "constant",
          [](LazyGraphObject& self, Index width, double value) {
            self.use->require_free();
            return self.value(self.graph->constant(width, value, calling_line()));
          },
          nb::arg("width"), nb::arg("value"), "Records a row of equal numbers.")
      .def(
          "zeros",
          [](LazyGraphObject& self, Index width) {
            self.use->require_free();
            return self.value(self.graph->zeros(width, calling_line()));
          },
          nb::arg("width"), "A row of zeros.")
      .def("parameter", &parameter, nb::arg("weight"),
           "A parameter that has exactly one row, or such a function of parameters, as an expression.")
      .def("index", &index, nb::arg("value"), nb::sig("def index(self, value: int | Sequence[int]) -> LazyIndex"),
           "An index operand: one number, or up to four.")
      .def(
          "flush",
          [](LazyGraphObject& self) {
            const std::source_location line = calling_line();
            computing(*self.use, [&] { self.graph->flush(line); });
          },
          "Computes everything recorded since the last flush. Does not wait for it.")
      .def("backward", &backward_of_lazy, nb::arg("losses"),
           nb::sig("def backward(self, losses: LazyExpr | Iterable[LazyExpr]) -> None"),
           "Pushes ops that compute the gradients of the sum of the losses, each of width 1, for all parameters.")
      .def(
          "clear", [](LazyGraphObject& self) { computing(*self.use, [&] { self.graph->clear(); }); },
          "Forgets all expressions. Call it after each step.")
      .def(
          "stats",
          [](LazyGraphObject& self) {
            self.use->require_free();
            return self.graph->stats();
          },
          "Counters since the graph was made. Does not wait.")
      .def("__repr__",
           [](LazyGraphObject& self) {
             return "<windrow.LazyGraph of " + counted(self.parameters->parameters.size(), "parameter", "parameters") +
                    ">";
           })
      .def(
          "describe",
          [](LazyGraphObject& self) {
            self.use->require_free();
            return self.graph->describe();
          },
          "The kinds of vertices found so far, and the plans that compute them, as text.");
}

}  // namespace windrow::python
