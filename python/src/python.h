// What all bindings share. Start here, then read module.cc.
//
// The package has two layers: this extension module, windrow._windrow, which binds the C++ libraries one to one, and
// the files of python/windrow, which add what is Python's own: context managers, asyncio, notebooks, torch.
//
// Contract
//   GIL      A binding holds the GIL, except while it waits: every wait is inside a WithoutGil, so that signals can end
//            it. A worker takes the GIL only while it runs a Python function, and when its thread ends; so no thread
//            may end an engine while it holds the GIL. Destructors of an op's function must not take the GIL, since
//            engines destroy functions while they hold locks: see Kept.
//   Lines    Each binding that pushes passes calling_line(), so errors name the user's Python line.
//   Errors   Exceptions of C++ become those of windrow._errors; see errors.cc.
//   Types    A binding that takes or returns Python objects says their types by nb::sig, in names of python/stub.txt
//            or of the module. tests/python/test_stub.py names the exceptions.
//   Life     An engine lives until close() or the end of the program, so that tensors and variables may outlive the
//            Python object that made it.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "windrow/engine/engine.h"
#include "windrow/engine/internal/engine_use.h"

namespace windrow {
struct Device;
}

namespace windrow::python {

namespace nb = nanobind;

/// The innermost Python line outside this package. The location stays valid as long as the process. Needs the GIL.
std::source_location calling_line();

/// A Python object that any C++ thread may drop. Only construction and use need the GIL: the destructor of the last
/// copy hands the object over to drop_object().
class Kept {
 public:
  explicit Kept(nb::object object);
  /// A new reference. Needs the GIL.
  nb::object get() const { return nb::borrow(object_.get()); }
  PyObject* ptr() const { return object_.get(); }

 private:
  std::shared_ptr<PyObject> object_;
};

/// Drops the Python objects that C++ threads have left. Needs the GIL. Ops and waits call it.
void release_dropped();
/// From now on, threads with the GIL drop objects at once, since no engine holds locks any more.
void all_engines_ended();
bool have_all_engines_ended();
/// Ends a reference on any thread: at once if no engine is left and the thread has the GIL, else in release_dropped().
void drop_object(PyObject* object);

/// A Python function as an op's function: takes the GIL while it runs, and ends its references to Python before it
/// returns. An exception becomes the op's failure, and is the cause of the error that a wait raises.
/// `accesses` are those of the op.
OpFunction op_of(nb::object function, std::vector<Access> accesses);
/// The access to `var` that the Python op on this thread has declared; empty outside ops, and if it has declared none.
std::optional<AccessKind> access_here(Var var);

/// A base of C++ exceptions that carry a Python exception. Copying and destroying it needs no GIL.
class CarriesPython {
 public:
  explicit CarriesPython(Kept exception) : exception_(std::move(exception)) {}
  virtual ~CarriesPython() = default;
  const Kept& exception() const { return exception_; }

 private:
  Kept exception_;
};
/// Clears the present Python exception and throws it as a C++ exception. OpError and Cancelled become the C++
/// exceptions of these names, which the engine treats specially. Needs the GIL.
[[noreturn]] void throw_python_error();
/// A class of windrow._errors. Needs the GIL.
nb::object error_class(const char* name);
/// The exception of windrow._errors for one of C++, or the Python one that it carries. Needs the GIL.
nb::object exception_of(const std::exception& error);
/// The C++ OpError from which exception_of() made a Python OpError. Empty for other objects, for an OpError that the
/// program has made, and if no variable carries the failure any more.
std::optional<OpError> op_error_of(nb::handle error);

/// Clears the present Python exception, which a signal handler has raised, and throws it as a C++ exception that is no
/// windrow::Error, so that no code takes it for a failure. Needs the GIL.
[[noreturn]] void throw_interrupt();

/// Releases the GIL, which this thread must have. Use it in place of nb::gil_scoped_release: has_gil() depends on it.
///
/// While it lives, waits in C++ call handle_signals(), so that an interrupt ends them; see LookWhileWaiting. A push
/// that is held back calls it only inside a SinglePush.
class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

  /// Outside ops, handles signals, with the GIL. Throws what their handlers raise.
  void handle_signals();

 private:
  void take_back();

  PyThreadState* state_;
  const LookWhileWaiting looks_;
};
/// Whether this thread has the GIL. Any thread may call it.
bool has_gil();

/// While it lives, an interrupt also ends a push that is held back. Only for calls that push a single op: an interrupt
/// would leave other calls half done.
class SinglePush {
 public:
  SinglePush();
  ~SinglePush();
  SinglePush(const SinglePush&) = delete;
  SinglePush& operator=(const SinglePush&) = delete;
  /// Whether this thread is inside one, in which ops of the policy serial run.
  static bool is_under_way();
};

/// Takes the GIL inside an op, on any thread. Afterwards, WithoutGil scopes around the op are in effect again.
class InPython {
 public:
  InPython();
  ~InPython();
  InPython(const InPython&) = delete;
  InPython& operator=(const InPython&) = delete;

 private:
  std::optional<nb::gil_scoped_acquire> with_gil_;
  int without_outside_ = 0;  // how many scopes without the GIL are open around this one
};

/// While it lives, op_of() on this thread makes functions that may run several times, for ops of a graph. Collects the
/// Python functions, so that the graph's Python object can show them to the garbage collector.
class Capturing {
 public:
  explicit Capturing(std::vector<Kept>& functions);
  ~Capturing();
  Capturing(const Capturing&) = delete;
  Capturing& operator=(const Capturing&) = delete;

 private:
  std::vector<Kept>* const outer_;
};

/// Throws TypeError if `result` is a coroutine or a generator: then the called function is `async def` or has a yield,
/// and none of it has run yet. `what` names the function, such as "an op".
void refuse_unstarted(nb::handle result, const char* what);
/// The index that a Python object stands for: an int, or another type with __index__, but no bool. Needs the GIL.
std::optional<std::int64_t> integer_of(nb::handle object);
/// For errors: "a list", "an int", "None".
std::string kind_of(nb::handle object);
/// "1 graph", "2 graphs".
std::string counted(std::uint64_t number, const char* singular, const char* plural);

/// Whether this thread runs a Python function of an op.
bool inside_op();

constexpr std::chrono::nanoseconds no_limit = std::chrono::nanoseconds::max();
/// For waits that do not look for signals themselves: calls `wait(patience)` without the GIL until it returns true or
/// the time is over, and returns the last result. Handles signals between the calls. Inside an op, calls it once.
bool waiting(std::chrono::nanoseconds limit, const std::function<bool(std::chrono::nanoseconds patience)>& wait);
/// As Engine::wait and wait_for, without the GIL. The errors name calling_line().
bool wait_for(Engine& engine, AccessList accesses, std::chrono::nanoseconds limit = no_limit);

/// What C++ lends to a Python function for the duration of a call. The Python object may live longer.
template <class T>
class Lent {
 public:
  Lent(T& target, const char* if_ended) : target_(&target), if_ended_(if_ended) {}
  /// Throws MisuseError with the text after the call.
  T* operator->() const {
    if (target_ == nullptr) throw MisuseError(if_ended_);
    return target_;
  }
  void end() { target_ = nullptr; }

 private:
  T* target_;
  const char* if_ended_;
};

/// Calls `function(lent)`. Needs the GIL. `if_ended` says what is wrong with a later use; a literal.
template <class T>
void call_with(PyObject* function, T& target, const char* if_ended) {
  const nb::object lent = nb::cast(Lent<T>(target, if_ended));
  const nb::object result = nb::steal(PyObject_CallFunctionObjArgs(function, lent.ptr(), nullptr));
  nb::inst_ptr<Lent<T>>(lent)->end();
  if (!result.is_valid()) throw_python_error();
  refuse_unstarted(result, "a body");
}

/// The engine of a Python Engine.
class EngineObject {
 public:
  explicit EngineObject(EngineOptions options);
  /// Does not end the engine; see Life, above.
  ~EngineObject();
  EngineObject(const EngineObject&) = delete;
  EngineObject& operator=(const EngineObject&) = delete;

  /// The engine for one call, which stays alive if another thread closes it meanwhile. Throws MisuseError if it is
  /// closed. While another thread forks, waits; see before_fork() in engine_life.cc.
  std::shared_ptr<Engine> share() const;
  bool closed() const;
  /// Waits for all ops, and ends the engine.
  void close();

  /// Lives until the engine is closed. Guarded by the GIL.
  struct State {
    std::shared_ptr<Engine> engine;                                 // calls under way share it; null once it is closed
    std::vector<std::unique_ptr<const Device>>* devices = nullptr;  // the host first, if asked for; live as the engine
  };
  State& state() const { return *state_; }

 private:
  const std::shared_ptr<State> state_;
};

/// The states of all engines that are not closed.
std::vector<std::shared_ptr<EngineObject::State>> all_engines();

/// Converts the argument `name` of a Python call from seconds. Throws MisuseError unless it is from 0 to 1e9 s.
std::chrono::nanoseconds nanoseconds_of(double seconds, const char* name);

/// The engine of calls that are given none; the first such call makes it.
EngineObject& default_engine();

/// Defines a function of a module or class with several signatures, for a function whose result type depends on the
/// arguments. All overloads are equal, so a call runs the first one.
template <class Scope, class Function, class... Arguments>
void def_with_signatures(Scope& scope, const char* name, std::initializer_list<const char*> signatures,
                         Function function, const char* doc, const Arguments&... arguments) {
  for (const char* signature : signatures) scope.def(name, function, arguments..., nb::sig(signature), doc);
}

/// Lets copies of an immutable object be the object, such as those of a model that has it.
template <class Class>
void define_copies_as_itself(Class& of) {
  of.def(
      "__copy__", [](nb::handle self) { return nb::borrow(self); }, nb::sig("def __copy__(self) -> Self"));
  of.def(
      "__deepcopy__", [](nb::handle self, nb::handle) { return nb::borrow(self); }, nb::arg("memo").none(),
      nb::sig("def __deepcopy__(self, memo: dict[int, object] | None, /) -> Self"));
}

/// Appends an access for each variable of `from`: None, a Var, an object with a var(), or an iterable of them.
void add_accesses(std::vector<Access>& to, nb::handle from, AccessKind kind);

void bind_errors(nb::module_& m);
void bind_engine_life(nb::module_& m);
void bind_engine(nb::module_& m);
void bind_graph(nb::module_& m);
void bind_devices(nb::module_& m);
void bind_tensors(nb::module_& m);
void bind_dlpack(nb::module_& m);
void bind_tensor_operators(nb::module_& m);
void bind_tapes(nb::module_& m);
void bind_random(nb::module_& m);
void bind_parameters(nb::module_& m);
void bind_lazy(nb::module_& m);
void bind_weights(nb::module_& m);
void bind_expressions(nb::module_& m);
void bind_vertex_function(nb::module_& m);
void bind_cells(nb::module_& m);
void bind_graphs(nb::module_& m);
void bind_runner(nb::module_& m);
void bind_schedule(nb::module_& m);
void bind_optimisers(nb::module_& m);
void bind_checkpoints(nb::module_& m);
void bind_datasets(nb::module_& m);
void bind_communicators(nb::module_& m);
void bind_data_parallel(nb::module_& m);
void bind_predictions(nb::module_& m);
void bind_models(nb::module_& m);
void bind_trainer(nb::module_& m);

}  // namespace windrow::python
