// The engine: variables, pushes, waits, graphs, cancellation, traces.
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <list>
#include <mutex>
#include <stop_token>

#include "python.h"
#include "windrow/engine/graph.h"
#include "windrow/ops/device.h"

namespace windrow::python {
namespace {

using Seconds = std::optional<double>;
using Patience = std::optional<std::chrono::nanoseconds>;

/// At the program's end, how long ops may take to finish.
constexpr std::chrono::seconds patience_at_exit{10};

std::chrono::nanoseconds nanoseconds_of(double seconds, const char* what) {
  if (!(seconds >= 0 && seconds <= 1e9)) {
    throw MisuseError(std::string(what) + " = " + std::to_string(seconds) + "; expected seconds from 0 to 1e9");
  }
  return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

/// Gives up the GIL while a push is held back, since the ops that it waits for may need it.
std::shared_ptr<void> release_gil_while_held() {
  return has_gil() ? std::make_shared<WithoutGil>() : nullptr;
}

/// All engines that are not closed. Guarded by the mutex.
struct Engines {
  std::mutex mutex;
  std::list<std::shared_ptr<EngineObject::State>> all;
};
Engines& engines() {
  static auto* const engines = new Engines();
  return *engines;
}

}  // namespace

std::vector<std::shared_ptr<EngineObject::State>> all_engines() {
  Engines& known = engines();
  const std::lock_guard lock(known.mutex);
  return {known.all.begin(), known.all.end()};
}

EngineObject::EngineObject(EngineOptions options) : state_(std::make_shared<State>()) {
  options.on_held = release_gil_while_held;
  state_->serial = options.policy == Policy::serial;
  {
    const WithoutGil without_gil;
    state_->engine = std::make_shared<Engine>(std::move(options));
  }
  Engines& known = engines();
  const std::lock_guard lock(known.mutex);
  known.all.push_back(state_);
}

EngineObject::~EngineObject() = default;

bool EngineObject::closed() const { return state_->engine == nullptr; }

bool EngineObject::runs_ops_in_push() const { return state_->serial; }

std::shared_ptr<Engine> EngineObject::share() const {
  if (closed()) throw MisuseError("this engine is closed; expected calls before close() and the end of its with block");
  return state_->engine;
}

void EngineObject::close() {
  if (closed()) return;
  if (inside_op()) throw MisuseError("close() inside an op; expected it outside");
  const std::shared_ptr<Engine> engine = share();
  waiting([&](Patience patience) {
    try {
      return engine->wait_all_for(*patience);
    } catch (const OpError&) {  // it was raised before, or is logged
      return true;
    }
  });
  state_->engine = nullptr;
  state_->devices.clear();
  {
    Engines& known = engines();
    const std::lock_guard lock(known.mutex);
    known.all.remove(state_);
  }
  const WithoutGil without_gil;
  engine->shutdown();
}

EngineObject& default_engine() {
  static auto* const engine = new EngineObject({});
  return *engine;
}

void add_accesses(std::vector<Access>& to, nb::handle from, AccessKind kind) {
  if (from.is_none()) return;
  Var var;
  if (nb::try_cast<Var>(from, var)) {
    to.push_back({var, kind});
  } else if (nb::hasattr(from, "var") && !nb::isinstance<EngineObject>(from)) {
    to.push_back({nb::cast<Var>(from.attr("var")), kind});
  } else {
    const nb::object all = nb::steal(PyObject_GetIter(from.ptr()));
    if (!all.is_valid()) {
      PyErr_Clear();
      throw nb::type_error(("an access to " + std::string(nb::type_name(from.type()).c_str()) +
                            "; expected a Var, a tensor, or a list of them")
                               .c_str());
    }
    while (PyObject* const item = PyIter_Next(all.ptr())) add_accesses(to, nb::steal(item), kind);
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
  }
}

namespace {

/// Cancels the ops that were pushed with it.
struct Stop {
  std::stop_source source;
};

EngineOptions options_of(const std::optional<std::string>& policy, std::optional<int> workers,
                         std::optional<std::uint64_t> max_pending_ops, Seconds push_patience, std::uint64_t chaos_seed,
                         Seconds watchdog) {
  EngineOptions options;
  if (policy) options.policy = parse_policy(*policy);
  if (workers) options.workers = *workers;
  if (max_pending_ops) options.max_pending_ops = *max_pending_ops;
  if (push_patience) options.push_patience = nanoseconds_of(*push_patience, "push_patience");
  if (watchdog) options.watchdog = nanoseconds_of(*watchdog, "watchdog");
  options.chaos_seed = chaos_seed;
  return options;
}

PushOptions push_options(const std::string& name, int priority, const Stop* stop, Seconds deadline, bool run_always) {
  PushOptions options{.priority = priority, .run_always = run_always, .pushed_at = calling_line()};
  if (!name.empty()) options.name = OpName(name);
  if (stop != nullptr) options.stop = stop->source.get_token();
  if (deadline) {
    options.deadline = std::chrono::steady_clock::now() +
                       std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                           nanoseconds_of(*deadline, "deadline"));
  }
  return options;
}

void push(EngineObject& engine, nb::object function, nb::handle reads, nb::handle mutates, nb::handle overwrites,
          nb::handle commutes, const std::string& name, int priority, const Stop* stop, Seconds deadline,
          bool run_always) {
  std::vector<Access> accesses;
  add_accesses(accesses, reads, AccessKind::read);
  add_accesses(accesses, mutates, AccessKind::mutate);
  add_accesses(accesses, overwrites, AccessKind::overwrite);
  add_accesses(accesses, commutes, AccessKind::commute);
  const PushOptions options = push_options(name, priority, stop, deadline, run_always);
  const std::shared_ptr<Engine> shared = engine.share();
  OpFunction op = op_of(std::move(function), accesses);
  std::optional<WithoutGil> without_gil;
  if (engine.runs_ops_in_push()) without_gil.emplace();
  shared->push(std::move(op), accesses, options);
}

/// Waits for the accesses; returns false after `timeout` seconds.
bool wait_for(EngineObject& engine, const std::vector<Access>& accesses, Seconds timeout) {
  const std::source_location from = calling_line();
  const std::shared_ptr<Engine> waited = engine.share();
  bool done = false;
  const auto until = std::chrono::steady_clock::now() + nanoseconds_of(timeout.value_or(0), "timeout");
  waiting([&](Patience patience) {
    if (!patience && !timeout) {
      waited->wait(accesses, from);
      return done = true;
    }
    const std::chrono::nanoseconds left = until - std::chrono::steady_clock::now();
    const std::chrono::nanoseconds most = patience.value_or(left);
    done = waited->wait_for(accesses, timeout ? std::clamp(left, std::chrono::nanoseconds(0), most) : most, from);
    return done || (timeout && left <= most);
  });
  return done;
}

bool wait_for_all(EngineObject& engine, Seconds timeout) {
  const std::shared_ptr<Engine> waited = engine.share();
  bool done = false;
  const auto until = std::chrono::steady_clock::now() + nanoseconds_of(timeout.value_or(0), "timeout");
  waiting([&](Patience patience) {
    if (!patience) {
      waited->wait_all();  // throws, inside an op
      return true;
    }
    const std::chrono::nanoseconds left = until - std::chrono::steady_clock::now();
    done = waited->wait_all_for(timeout ? std::clamp(left, std::chrono::nanoseconds(0), *patience) : *patience);
    return done || (timeout && left <= *patience);
  });
  return done;
}

/// Calls `callback(None)`, or with the error, when earlier ops that write the variables have finished.
void when_ready(EngineObject& engine, nb::handle vars, nb::object callback) {
  std::vector<Access> accesses;
  add_accesses(accesses, vars, AccessKind::read);
  const auto call = [kept = Kept(std::move(callback))](OpContext& context) {
    const InPython python;
    nb::object told = nb::none();
    try {
      context.throw_if_poisoned();
    } catch (const std::exception& error) {
      told = exception_of(error);
    }
    if (!nb::steal(PyObject_CallFunctionObjArgs(kept.ptr(), told.ptr(), nullptr)).is_valid()) throw take_python_error();
  };
  engine.share()->push(call, accesses, {.name = "ready", .run_always = true, .pushed_at = calling_line()});
}

/// A graph with the Python functions that its ops own together with it.
struct GraphObject {
  Graph graph;
  std::vector<Kept> functions;
};

GraphObject graph_of(EngineObject& engine, const nb::object& body, const std::string& name) {
  GraphObject made;
  const Capturing capturing(made.functions);
  made.graph = engine.share()->capture([&] { body(); }, OpName(name), calling_line());
  return made;
}

void append(GraphObject& to, const nb::object& body) {
  std::vector<Kept> functions;
  const Capturing capturing(functions);
  to.graph.append([&] { body(); }, calling_line());
  to.functions.insert(to.functions.end(), functions.begin(), functions.end());
}

/// A function of a graph often refers to the graph, by the names of its module, so the garbage collector must know.
int traverse_graph(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  for (const Kept& function : nb::inst_ptr<GraphObject>(self)->functions) Py_VISIT(function.ptr());
  return 0;
}
int clear_graph(PyObject* self) {
  GraphObject& graph = *nb::inst_ptr<GraphObject>(self);
  graph.functions.clear();
  graph.graph = Graph();
  return 0;
}
PyType_Slot graph_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_graph)},
                             {Py_tp_clear, reinterpret_cast<void*>(clear_graph)},
                             {0, nullptr}};

/// At the program's end. Returns whether all engines have ended.
bool close_all() {
  bool ended = true;
  for (const auto& state : all_engines()) {
    std::shared_ptr<Engine> engine = state->engine;
    if (engine == nullptr) continue;
    const WithoutGil without_gil;
    if (!engine->shutdown_for(patience_at_exit)) {
      ended = false;
      continue;
    }
    state->engine = nullptr;
    state->devices.clear();
    engine.reset();
  }
  all_engines_ended();
  return ended;
}

/// Lets pending ops finish, which may need the GIL that the forking thread holds.
void before_fork() {
  if (inside_op()) return;
  for (const auto& state : all_engines()) {
    const std::shared_ptr<Engine> engine = state->engine;
    const WithoutGil without_gil;
    try {
      if (engine != nullptr) engine->wait_all_for(std::chrono::seconds(5));
    } catch (const Error&) {  // it is told to who waits
    }
  }
}

}  // namespace

void bind_engine(nb::module_& m) {
  nb::class_<Var>(m, "Var", "A variable: a tag for whatever the program chooses. Made by Engine.var().")
      .def("__bool__", [](const Var& var) { return static_cast<bool>(var); })
      .def("__eq__", [](const Var& a, const Var& b) { return a == b; })
      .def("__hash__", [](const Var& var) { return std::hash<Var>()(var); });
  nb::class_<Stop>(m, "Stop", "Cancels the ops that were pushed with it: those that have not begun fail with Cancelled.")
      .def(nb::init<>())
      .def("request", [](Stop& stop) { stop.source.request_stop(); }, "Cancels them.")
      .def_prop_ro("requested", [](const Stop& stop) { return stop.source.stop_requested(); });
  nb::class_<GraphObject>(m, "Graph", "Captured ops, to launch many times. Made by Engine.capture().",
                          nb::type_slots(graph_slots))
      .def("launch", [](const GraphObject& of) { of.graph.launch(calling_line()); },
           "Launches the ops, which are ordered after earlier ops as if they were pushed now.")
      .def("append", &append, nb::arg("body"), "Captures more ops after the existing ones.")
      .def("__len__", [](const GraphObject& of) { return of.graph.size(); })
      .def("dot", [](const GraphObject& of) { return of.graph.dot(); }, "The graph in the language of Graphviz.");
  nb::class_<EngineStats>(m, "EngineStats", "Counters since the engine was made.")
      .def_ro("pushed", &EngineStats::pushed)
      .def_ro("pending", &EngineStats::pending, "Pushed and not yet finished.")
      .def_ro("failed", &EngineStats::failed)
      .def_ro("skipped", &EngineStats::skipped, "Ops that did not run because of a failure before them.")
      .def_ro("cancelled", &EngineStats::cancelled)
      .def_ro("waits", &EngineStats::waits);
  nb::class_<EngineObject>(m, "Engine")
      .def("__init__",
           [](EngineObject* self, const std::optional<std::string>& policy, std::optional<int> workers,
              std::optional<std::uint64_t> max_pending_ops, Seconds push_patience, std::uint64_t chaos_seed,
              Seconds watchdog) {
             new (self) EngineObject(
                 options_of(policy, workers, max_pending_ops, push_patience, chaos_seed, watchdog));
           },
           nb::arg("policy") = nb::none(), nb::arg("workers") = nb::none(), nb::kw_only(),
           nb::arg("max_pending_ops") = nb::none(), nb::arg("push_patience") = nb::none(), nb::arg("chaos_seed") = 1,
           nb::arg("watchdog") = nb::none())
      .def("var", [](EngineObject& engine, const std::string& name) { return engine.share()->new_var(OpName(name)); },
           nb::arg("name") = "", "A new variable. Errors and traces show the name.")
      .def("retire",
           [](EngineObject& engine, const Var& var) {
             engine.share()->retire(var, nullptr, {.name = "retire", .pushed_at = calling_line()});
           },
           nb::arg("var"), "Ends a variable, after all earlier ops on it.")
      .def("push", &push, nb::arg("function"), nb::kw_only(), nb::arg("read") = nb::none(),
           nb::arg("mutate") = nb::none(), nb::arg("overwrite") = nb::none(), nb::arg("commute") = nb::none(),
           nb::arg("name") = "", nb::arg("priority") = 0, nb::arg("stop") = nb::none(),
           nb::arg("deadline") = nb::none(), nb::arg("run_always") = false)
      .def("_wait",
           [](EngineObject& engine, nb::handle reads, nb::handle mutates, Seconds timeout) {
             std::vector<Access> accesses;
             add_accesses(accesses, reads, AccessKind::read);
             add_accesses(accesses, mutates, AccessKind::mutate);
             return wait_for(engine, accesses, timeout);
           },
           nb::arg("reads"), nb::arg("mutates").none(), nb::arg("timeout").none())
      .def("wait_all", &wait_for_all, nb::arg("timeout") = nb::none())
      .def("_when_ready", &when_ready, nb::arg("vars"), nb::arg("callback"))
      .def("heal",
           [](EngineObject& engine, const Var& var) {
             engine.share()->heal(var, {.name = "heal", .pushed_at = calling_line()});
           },
           nb::arg("var"), "Declares a variable good again, as the failed op left it.")
      .def("version", [](EngineObject& engine, const Var& var) { return engine.share()->version(var, calling_line()); },
           nb::arg("var"), "How many ops that change the variable have run.")
      .def("capture", &graph_of, nb::arg("body"), nb::kw_only(), nb::arg("name") = "")
      .def("stats", [](EngineObject& engine) { return engine.share()->stats(); }, "Counters at this moment.")
      .def("describe_pending",
           [](EngineObject& engine) {
             const std::shared_ptr<Engine> shared = engine.share();
             const WithoutGil without_gil;
             return shared->describe_pending();
           },
           "What is pending and what it waits for, as text.")
      .def_prop_ro("workers", [](EngineObject& engine) { return engine.share()->workers(); })
      .def_prop_ro("closed", &EngineObject::closed)
      .def("close", &EngineObject::close, "Waits for all ops, and ends the engine. A second call does nothing.")
      .def("_trace_start", [](EngineObject& engine) { engine.share()->trace().start(); })
      .def("_trace_stop", [](EngineObject& engine) { engine.share()->trace().stop(); })
      .def("_trace_save", [](EngineObject& engine, const std::string& path) { engine.share()->trace().save(path); },
           nb::arg("path"))
      .def("_trace_summary", [](EngineObject& engine) { return to_string(engine.share()->trace().summary()); });
  m.def("default_engine", &default_engine, nb::rv_policy::reference,
        "The engine of tensors and devices for which none is given. Made by the first call.");
  m.def("_close_all", &close_all);
  m.def("_before_fork", &before_fork);
}

}  // namespace windrow::python
