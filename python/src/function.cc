// Python objects and functions that C++ threads hold.
#include <atomic>
#include <optional>

#include "python.h"

namespace windrow::python {
namespace {

std::atomic<bool> engines_ended{false};

/// How many ops of Python, and scopes without the GIL, are open on this thread; and where the innermost capture collects
/// functions.
thread_local int ops_inside = 0, without_gil = 0;
thread_local std::vector<Kept>* capturing_into = nullptr;
thread_local bool is_worker = false;
/// The accesses of the Python op that runs innermost on this thread.
thread_local const std::vector<Access>* accesses_here = nullptr;

/// What threads without the GIL have left: a stack without locks, since a thread may be in a fork or hold the engine's
/// locks.
struct Dropped {
  PyObject* object = nullptr;
  PyThreadState* state = nullptr;  // of a thread that has ended
  Dropped* next = nullptr;
};
std::atomic<Dropped*> all_dropped{nullptr};

int release_in_main_thread(void*) {
  release_dropped();
  return 0;
}

void drop(Dropped* what) {
  what->next = all_dropped.load(std::memory_order_relaxed);
  while (!all_dropped.compare_exchange_weak(what->next, what, std::memory_order_release)) {
  }
  if (what->next == nullptr) Py_AddPendingCall(release_in_main_thread, nullptr);
}
void drop_object(PyObject* object) {
  if (engines_ended && has_gil()) return Py_DECREF(object);
  drop(new Dropped{.object = object});
}

/// Gives a worker a thread state of Python that it keeps: to make one for each op takes several microseconds.
void enter_python() {
  struct State {
    State() {
      is_worker = true;
      PyGILState_Ensure();
      state = PyEval_SaveThread();
    }
    ~State() { drop(new Dropped{.state = state}); }
    PyThreadState* state;
  };
  static thread_local const State state;
}

void call(PyObject* function, const std::vector<Access>& accesses) {
  const auto* const outer = std::exchange(accesses_here, &accesses);
  const bool done = nb::steal(PyObject_CallNoArgs(function)).is_valid();
  accesses_here = outer;
  if (!done) throw take_python_error();
}

/// The function of an op that runs once. Its object is released in the op, which has the GIL; or dropped, if the op
/// never runs.
class OnceOp {
 public:
  OnceOp(PyObject* function, std::vector<Access> accesses) : function_(function), accesses_(std::move(accesses)) {}
  OnceOp(OnceOp&& other) noexcept
      : function_(std::exchange(other.function_, nullptr)), accesses_(std::move(other.accesses_)) {}
  OnceOp& operator=(OnceOp&&) = delete;
  ~OnceOp() {
    if (function_ != nullptr) drop_object(function_);
  }

  void operator()(OpContext&) {
    const InPython python;
    const nb::object function = nb::steal(std::exchange(function_, nullptr));
    call(function.ptr(), accesses_);
  }

 private:
  PyObject* function_;
  std::vector<Access> accesses_;
};

}  // namespace

InPython::InPython() {
  if (PyGILState_GetThisThreadState() == nullptr) enter_python();
  with_gil_.emplace();
  release_dropped();
  ++ops_inside;
}
InPython::~InPython() { --ops_inside; }

WithoutGil::WithoutGil() : state_(PyEval_SaveThread()) { ++without_gil; }
WithoutGil::~WithoutGil() {
  --without_gil;
  PyEval_RestoreThread(state_);
}

bool has_gil() {
  return PyGILState_GetThisThreadState() != nullptr && without_gil == 0 && (!is_worker || ops_inside > 0);
}

Capturing::Capturing(std::vector<Kept>& functions) : outer_(std::exchange(capturing_into, &functions)) {}
Capturing::~Capturing() { capturing_into = outer_; }

bool inside_op() { return ops_inside > 0; }

void all_engines_ended() {
  engines_ended = true;
  release_dropped();
}

Kept::Kept(nb::object object) : object_(object.release().ptr(), drop_object) {}

void release_dropped() {
  if (all_dropped.load(std::memory_order_relaxed) == nullptr) return;
  for (Dropped* next = all_dropped.exchange(nullptr, std::memory_order_acquire); next != nullptr;) {
    const std::unique_ptr<Dropped> dropped(next);
    next = dropped->next;
    Py_XDECREF(dropped->object);
    if (dropped->state != nullptr) {
      PyThreadState_Clear(dropped->state);
      PyThreadState_Delete(dropped->state);
    }
  }
}

PythonError take_python_error() {
  nb::python_error error;
  const std::string text = std::string(nb::type_name(error.type()).c_str()) + ": " + nb::str(error.value()).c_str();
  return {text, Kept(nb::borrow(error.value()))};
}

std::optional<AccessKind> access_here(Var var) {
  if (accesses_here == nullptr) return std::nullopt;
  std::optional<AccessKind> found;
  for (const Access& access : *accesses_here) {
    if (access.var == var && (!found || *found == AccessKind::read)) found = access.kind;
  }
  return found;
}

OpFunction op_of(nb::object function, std::vector<Access> accesses) {
  if (PyCallable_Check(function.ptr()) == 0) throw nb::type_error("push() expects a function without parameters");
  if (capturing_into == nullptr) return OnceOp(function.release().ptr(), std::move(accesses));
  const Kept& kept = capturing_into->emplace_back(std::move(function));
  return [kept, accesses = std::move(accesses)](OpContext&) {
    const InPython python;
    call(kept.ptr(), accesses);
  };
}

void waiting(const std::function<bool(std::optional<std::chrono::nanoseconds> patience)>& wait) {
  if (inside_op()) {  // without a limit, so that the engine detects a cycle
    const WithoutGil released;
    wait(std::nullopt);
    return;
  }
  for (std::chrono::milliseconds patience{20};; patience = std::chrono::milliseconds(100)) {
    bool done = false;
    {
      const WithoutGil released;
      done = wait(patience);
    }
    release_dropped();
    if (done) return;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

}  // namespace windrow::python
