// What all bindings share. Start here, then read module.cc.
//
// The package has two layers: this extension module, windrow._windrow, which binds the C++ libraries one to one, and
// the files of python/windrow, which add what is Python's own: context managers, asyncio, notebooks, torch.
//
// Contract
//   GIL      A binding holds the GIL, except while it waits: every wait is inside `waiting()`. A worker takes the GIL
//            only while a Python function runs. No destructor takes it, since engines destroy functions while they hold
//            locks: see Kept.
//   Lines    Each binding that pushes passes calling_line(), so errors name the user's Python line.
//   Errors   Exceptions of C++ become those of windrow._errors; see errors.cc.
//   Life     An engine lives until close() or the end of the program, so that tensors and variables may outlive the
//            Python object that made it.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "windrow/engine/engine.h"

namespace windrow {
struct Device;
}

namespace windrow::python {

namespace nb = nanobind;

/// The innermost Python line outside this package. The location stays valid as long as the process. Needs the GIL.
std::source_location calling_line();

/// A Python object that C++ threads may drop. Needs the GIL only to be made and to be used: the last copy that ends
/// without it hands the object over to release_dropped().
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
/// From now on, threads with the GIL drop objects at once: there are no engine's locks any more.
void all_engines_ended();

/// A Python function as an op's function: takes the GIL while it runs, and ends its references to Python before it
/// returns. An exception becomes the op's failure, and is the cause of the error that a wait raises.
/// `accesses` are those of the op.
OpFunction op_of(nb::object function, std::vector<Access> accesses);
/// The access to a variable of the Python op that runs on this thread; empty outside ops, and if it declares none.
std::optional<AccessKind> access_here(Var var);

/// A C++ exception that carries a Python one. Needs no GIL to be copied or destroyed.
class PythonError : public Error {
 public:
  PythonError(const std::string& text, Kept exception) : Error(text), exception_(std::move(exception)) {}
  const Kept& exception() const { return exception_; }

 private:
  Kept exception_;
};
/// The present Python exception as a C++ exception; clears it. Needs the GIL.
PythonError take_python_error();
/// The exception of windrow._errors for one of C++; of a PythonError, the Python one. Needs the GIL.
nb::object exception_of(const std::exception& error);

/// Gives up the GIL, which this thread has. Use it in place of nanobind's class: has_gil() depends on it.
class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const state_;
};
/// Whether this thread, which may be any, has the GIL.
bool has_gil();

/// Takes the GIL inside an op, on any thread.
class InPython {
 public:
  InPython();
  ~InPython();
  InPython(const InPython&) = delete;
  InPython& operator=(const InPython&) = delete;

 private:
  std::optional<nb::gil_scoped_acquire> with_gil_;
};

/// While it lives, ops of this thread may run several times, as those of a graph do. It collects their functions, so
/// that the graph's Python object can tell the garbage collector of them.
class Capturing {
 public:
  explicit Capturing(std::vector<Kept>& functions);
  ~Capturing();
  Capturing(const Capturing&) = delete;
  Capturing& operator=(const Capturing&) = delete;

 private:
  std::vector<Kept>* const outer_;
};

/// Whether this thread runs a Python function of an op.
bool inside_op();

/// Calls `wait(patience)` without the GIL until it returns true. Between the calls, signals are handled, so that an
/// interrupt ends the wait. Inside an op, calls it once and without a limit.
void waiting(const std::function<bool(std::optional<std::chrono::nanoseconds> patience)>& wait);

/// The engine of a Python object.
class EngineObject {
 public:
  explicit EngineObject(EngineOptions options);
  /// Does not end the engine; see Life, above.
  ~EngineObject();
  EngineObject(const EngineObject&) = delete;
  EngineObject& operator=(const EngineObject&) = delete;

  /// For one call, during which another thread may close the engine. Throws MisuseError if it is closed.
  std::shared_ptr<Engine> share() const;
  bool closed() const;
  /// Whether pushes run ops, with policy serial: then they give up the GIL.
  bool runs_ops_in_push() const;
  /// Waits for all ops, and ends the engine.
  void close();

  /// Lives until the engine is closed. Guarded by the GIL.
  struct State {
    std::shared_ptr<Engine> engine;                      // calls under way share it; null once it is closed
    bool serial = false;                                 // so pushes run ops
    std::vector<std::shared_ptr<const Device>> devices;  // the host first, if it was asked for
  };
  State& state() const { return *state_; }

 private:
  const std::shared_ptr<State> state_;
};

/// Those of all engines that are not closed.
std::vector<std::shared_ptr<EngineObject::State>> all_engines();

/// The engine that calls use which are given none: made by the first such call.
EngineObject& default_engine();

/// Appends an access for each variable of `from`: None, a Var, an object with a var(), or an iterable of them.
void add_accesses(std::vector<Access>& to, nb::handle from, AccessKind kind);

void bind_errors(nb::module_& m);
void bind_engine(nb::module_& m);
void bind_devices(nb::module_& m);
void bind_tensors(nb::module_& m);
void bind_dlpack(nb::module_& m);
void bind_tensor_operators(nb::module_& m);
void bind_tapes(nb::module_& m);
void bind_random(nb::module_& m);
void bind_parameters(nb::module_& m);
void bind_expressions(nb::module_& m);
void bind_vertex_function(nb::module_& m);
void bind_graphs(nb::module_& m);
void bind_runner(nb::module_& m);
void bind_schedule(nb::module_& m);
void bind_optimisers(nb::module_& m);
void bind_checkpoints(nb::module_& m);
void bind_datasets(nb::module_& m);

}  // namespace windrow::python
