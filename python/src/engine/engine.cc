// The engine: variables, pushes, waits, cancellation, traces.
#include <nanobind/stl/optional.h>

#include <array>
#include <stop_token>

#include "python.h"

namespace windrow::python {
namespace {

using Seconds = std::optional<double>;

/// None if there is no such attribute.
nb::object attribute(nb::handle of, const char* name) {
  const nb::object found = nb::steal(PyObject_GetAttrString(of.ptr(), name));
  if (found.is_valid()) return found;
  if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) throw nb::python_error();
  PyErr_Clear();
  return nb::none();
}

/// The most levels of nested lists of accesses. A list that contains itself has more, and so has a str, whose elements
/// are strs.
constexpr int most_levels = 16;

void add_levels(std::vector<Access>& to, nb::handle from, AccessKind kind, int levels) {
  if (from.is_none()) return;
  const auto refuse = [&] {
    throw nb::type_error(("an access to " + std::string(nb::type_name(from.type()).c_str()) +
                          "; expected a Var, a tensor, or a list of them")
                             .c_str());
  };
  Var var;
  if (nb::try_cast<Var>(from, var) || nb::try_cast<Var>(attribute(from, "var"), var)) {
    to.push_back({var, kind});
    return;
  }
  const nb::object all = nb::steal(PyObject_GetIter(from.ptr()));
  if (!all.is_valid()) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw nb::python_error();
    PyErr_Clear();
  }
  if (!all.is_valid() || levels == 0) refuse();
  while (PyObject* const item = PyIter_Next(all.ptr())) add_levels(to, nb::steal(item), kind, levels - 1);
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
}

}  // namespace

void add_accesses(std::vector<Access>& to, nb::handle from, AccessKind kind) {
  add_levels(to, from, kind, most_levels);
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

/// The name of a function; empty for an object without a name, and for a lambda, whose "<lambda>" says nothing.
OpName name_of_function(nb::handle function) {
  // A cache of names by the addresses of their Python strings, since making an OpName searches a table under a lock. An
  // entry keeps its string alive, so that no other string gets its address. Guarded by the GIL.
  struct Known {
    PyObject* text = nullptr;
    OpName name = {};
  };
  static auto* const known = new std::array<Known, 256>();
  static PyObject* const attribute_name = PyUnicode_InternFromString("__name__");
  const nb::object name = nb::steal(PyObject_GetAttr(function.ptr(), attribute_name));
  if (!name.is_valid()) {
    if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) throw nb::python_error();
    PyErr_Clear();
    return {};
  }
  if (PyUnicode_Check(name.ptr()) == 0) return {};
  Known& entry = (*known)[reinterpret_cast<std::uintptr_t>(name.ptr()) / 16 % known->size()];
  if (entry.text != name.ptr()) {
    const char* const text = PyUnicode_AsUTF8AndSize(name.ptr(), nullptr);
    if (text == nullptr) PyErr_Clear();
    entry.name = text == nullptr || *text == '<' ? OpName() : OpName(std::string_view(text));
    Py_INCREF(name.ptr());
    Py_XDECREF(std::exchange(entry.text, name.ptr()));
  }
  return entry.name;
}

PushOptions push_options(const std::string& name, int priority, const Stop* stop, Seconds deadline, bool run_always) {
  PushOptions options{.priority = priority, .run_always = run_always, .pushed_at = calling_line()};
  if (!name.empty()) options.name = OpName(name);
  if (stop != nullptr) options.stop = stop->source.get_token();
  if (deadline) {
    options.deadline =
        std::chrono::steady_clock::now() +
        std::chrono::duration_cast<std::chrono::steady_clock::duration>(nanoseconds_of(*deadline, "deadline"));
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
  PushOptions options = push_options(name, priority, stop, deadline, run_always);
  if (const OpName own = name.empty() ? name_of_function(function) : OpName(); !own.text().empty()) options.name = own;
  const std::shared_ptr<Engine> shared = engine.share();
  const SinglePush single;
  shared->push(op_of(std::move(function), accesses), accesses, options);
}

bool wait_for_all(EngineObject& engine, Seconds timeout) {
  const std::shared_ptr<Engine> waited = engine.share();
  const std::chrono::nanoseconds limit = timeout ? nanoseconds_of(*timeout, "timeout") : no_limit;
  const auto wait = [&] {
    const WithoutGil without_gil;
    return waited->wait_all_for(limit);
  };
  const bool result = wait();
  release_dropped();
  return result;
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
    if (!nb::steal(PyObject_CallFunctionObjArgs(kept.ptr(), told.ptr(), nullptr)).is_valid()) throw_python_error();
  };
  engine.share()->push(call, accesses, {.name = "ready", .run_always = true, .pushed_at = calling_line()});
}

bool wait(EngineObject& engine, nb::handle reads, nb::handle mutates, Seconds timeout) {
  std::vector<Access> accesses;
  add_accesses(accesses, reads, AccessKind::read);
  add_accesses(accesses, mutates, AccessKind::mutate);
  return wait_for(*engine.share(), accesses, timeout ? nanoseconds_of(*timeout, "timeout") : no_limit);
}

void make_engine(EngineObject* self, const std::optional<std::string>& policy, std::optional<int> workers,
                 std::optional<std::uint64_t> max_pending_ops, Seconds push_patience, std::uint64_t chaos_seed,
                 Seconds watchdog) {
  new (self) EngineObject(options_of(policy, workers, max_pending_ops, push_patience, chaos_seed, watchdog));
}

Var new_var(EngineObject& engine, const std::string& name) { return engine.share()->new_var(OpName(name)); }

void retire(EngineObject& engine, const Var& var) {
  engine.share()->retire(var, nullptr, {.name = "retire", .pushed_at = calling_line()});
}

void heal(EngineObject& engine, nb::handle what) {
  const PushOptions options{.name = "heal", .pushed_at = calling_line()};
  Var var;
  if (nb::try_cast<Var>(what, var)) {
    engine.share()->heal(var, options);
  } else if (!nb::isinstance(what, error_class("OpError"))) {
    throw nb::type_error("heal() expects a Var or an OpError");
  } else if (const std::optional<OpError> error = op_error_of(what)) {
    engine.share()->heal(*error, options);
  }
}

std::uint64_t version(EngineObject& engine, const Var& var) { return engine.share()->version(var, calling_line()); }

std::string describe_pending(EngineObject& engine) {
  const std::shared_ptr<Engine> shared = engine.share();
  const WithoutGil without_gil;
  return shared->describe_pending();
}

/// Calls `function` with the engine's trace, without the GIL.
template <class F>
auto with_trace(EngineObject& engine, F&& function) {
  const std::shared_ptr<Engine> shared = engine.share();
  const WithoutGil without_gil;
  return function(shared->trace());
}

constexpr const char* about_push = R"(Pushes an op, which calls ``function()`` once its accesses are granted.

``read``, ``mutate``, ``overwrite`` and ``commute`` say what the op does to variables and tensors: each is one of them,
or a list. The result is that of running all ops in the order of their pushes. Ops that share no variables, or only
read those that they share, may run at the same time. ``overwrite`` replaces a value without reading it; ops that
``commute`` change it in any order.

Errors and traces show ``name``, or else the name of the function. Distinct names are kept for ever, so use few. Ready
ops of higher ``priority`` run first. An op whose ``stop`` is requested before it begins does not run, and fails. The
same holds for a ``deadline`` (seconds from now); if it passes while the op runs, the op fails as well. An op with
``run_always`` runs although its variables carry a failure.

The result of ``function`` is dropped. If it raises, or is async, the op fails: the variables that it changes carry the
failure, ops that need them are skipped, and waits for them raise OpError, whose cause is the exception.

Raises MisuseError for a variable that is retired or of another engine, and after close(). An interrupt ends a push
that is held back (see max_pending_ops); then the op is not pushed.)";

constexpr const char* about_heal = R"(Declares that the values of variables are valid, as the failed op has left them.

``what`` is a variable, or an OpError, which stands for all variables that its failures have spread to: call wait_all()
first, so that they spread no further. A heal comes after all earlier ops on the variable, and counts in version().)";

constexpr const char* about_wait_all = R"(Waits for all ops that were pushed.

Returns False after ``timeout`` seconds, otherwise True.
Raises OpError for all failures that variables still carry, and for those that no wait has raised.)";

}  // namespace

void bind_engine(nb::module_& m) {
  nb::class_<Var>(m, "Var", "A variable: a tag for whatever the program chooses. Made by Engine.var().")
      .def("__bool__", [](const Var& var) { return static_cast<bool>(var); })
      .def(
          "__eq__", [](const Var& a, const Var& b) { return a == b; }, nb::is_operator(),
          nb::sig("def __eq__(self, arg: object, /) -> bool"))
      .def("__hash__", [](const Var& var) { return std::hash<Var>()(var); })
      .def("__repr__", [](const Var& var) {
        return var ? "<windrow.Var " + std::to_string(std::hash<Var>()(var)) + ">" : "<windrow.Var of nothing>";
      });
  nb::class_<Stop>(m, "Stop",
                   "Cancels the ops that were pushed with it: those that have not begun fail with Cancelled.")
      .def(nb::init<>())
      .def(
          "request", [](Stop& stop) { stop.source.request_stop(); }, "Cancels them.")
      .def_prop_ro("requested", [](const Stop& stop) { return stop.source.stop_requested(); })
      .def("__repr__", [](const Stop& stop) {
        return std::string("<windrow.Stop, ") + (stop.source.stop_requested() ? "requested>" : "not requested>");
      });
  nb::class_<EngineStats>(m, "EngineStats", "Counters since the engine was made.")
      .def_ro("pushed", &EngineStats::pushed)
      .def_ro("pending", &EngineStats::pending, "Pushed and not yet finished.")
      .def_ro("failed", &EngineStats::failed)
      .def_ro("skipped", &EngineStats::skipped, "Ops that did not run because of a failure before them.")
      .def_ro("cancelled", &EngineStats::cancelled)
      .def_ro("waits", &EngineStats::waits)
      .def("__repr__", [](const EngineStats& of) {
        return "<windrow.EngineStats: " + std::to_string(of.pushed) + " pushed, " + std::to_string(of.pending) +
               " pending, " + std::to_string(of.failed) + " failed, " + std::to_string(of.skipped) + " skipped, " +
               std::to_string(of.cancelled) + " cancelled, " + std::to_string(of.waits) + " waits>";
      });
  nb::class_<EngineObject> engine(m, "Engine");
  engine.def("__init__", &make_engine, nb::arg("policy") = nb::none(), nb::arg("workers") = nb::none(), nb::kw_only(),
             nb::arg("max_pending_ops") = nb::none(), nb::arg("push_patience") = nb::none(), nb::arg("chaos_seed") = 1,
             nb::arg("watchdog") = nb::none());
  engine.def("var", &new_var, nb::arg("name") = "", "A new variable. Errors and traces show the name.");
  engine.def("retire", &retire, nb::arg("var"),
             "Ends a variable, after all earlier ops on it. Later uses of it raise MisuseError.");
  engine.def("push", &push, nb::arg("function"), nb::kw_only(), nb::arg("read") = nb::none(),
             nb::arg("mutate") = nb::none(), nb::arg("overwrite") = nb::none(), nb::arg("commute") = nb::none(),
             nb::arg("name") = "", nb::arg("priority") = 0, nb::arg("stop") = nb::none(),
             nb::arg("deadline") = nb::none(), nb::arg("run_always") = false,
             nb::sig("def push(self, function: Callable[[], object], *, read: Access = None, mutate: Access = None, "
                     "overwrite: Access = None, commute: Access = None, name: str = '', priority: int = 0, stop: Stop "
                     "| None = None, deadline: float | None = None, "
                     "run_always: bool = False) -> None"),
             about_push);
  engine.def("wait_all", &wait_for_all, nb::arg("timeout") = nb::none(), about_wait_all);
  engine.def("heal", &heal, nb::arg("what"), nb::sig("def heal(self, what: Var | windrow._errors.OpError) -> None"),
             about_heal);
  engine.def("version", &version, nb::arg("var"), "How many ops that change the variable have run.");
  engine.def(
      "stats", [](EngineObject& of) { return of.share()->stats(); }, "Counters at this moment.");
  engine.def("describe_pending", &describe_pending, "What is pending and what it waits for, as text of several lines.");
  engine.def("close", &EngineObject::close, "Waits for all ops, and ends the engine. A second call does nothing.");
  engine.def_prop_ro(
      "workers", [](EngineObject& of) { return of.share()->workers(); }, "The number of threads.");
  engine.def_prop_ro("closed", &EngineObject::closed);
  engine.def("_wait", &wait, nb::arg("reads"), nb::arg("mutates").none(), nb::arg("timeout").none(),
             nb::sig("def _wait(self, reads: Iterable[Access], mutates: Access, timeout: float | None) -> bool"));
  engine.def("_when_ready", &when_ready, nb::arg("vars"), nb::arg("callback"),
             nb::sig("def _when_ready(self, vars: Iterable[Access], callback: Callable[[BaseException | None], None]) "
                     "-> None"));
  engine.def("_trace_start", [](EngineObject& of) { with_trace(of, [](Trace trace) { trace.start(); }); });
  engine.def("_trace_stop", [](EngineObject& of) { with_trace(of, [](Trace trace) { trace.stop(); }); });
  engine.def(
      "_trace_save",
      [](EngineObject& of, const std::string& path) { with_trace(of, [&](Trace trace) { trace.save(path); }); },
      nb::arg("path"));
  engine.def("_trace_summary",
             [](EngineObject& of) { return with_trace(of, [](Trace trace) { return to_string(trace.summary()); }); });
}

}  // namespace windrow::python
