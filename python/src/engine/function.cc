// Python objects and functions that C++ threads hold.
#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "python.h"

namespace windrow::python {
namespace {

std::atomic<bool> engines_ended{false};

/// The numbers of Python ops and of scopes without the GIL that are open on this thread, and the vector in which the
/// innermost capture collects functions.
thread_local int ops_inside = 0, without_gil = 0;
thread_local std::vector<Kept>* capturing_into = nullptr;
thread_local bool is_worker = false;

/// An object that a thread without the GIL has dropped. They form a lock-free stack, since that thread may be in a fork
/// or hold the engine's locks.
struct Dropped {
  PyObject* object;
  Dropped* next;
};
std::atomic<Dropped*> all_dropped{nullptr};

int release_in_main_thread(void*) {
  release_dropped();
  return 0;
}

void drop(PyObject* object) {
  auto* const what = new Dropped{object, all_dropped.load(std::memory_order_relaxed)};
  Dropped* first = what->next;
  while (!all_dropped.compare_exchange_weak(first, what, std::memory_order_release, std::memory_order_relaxed)) {
    what->next = first;
  }
  // From here on, another thread may have freed `what`.
  if (first == nullptr && !engines_ended) Py_AddPendingCall(release_in_main_thread, nullptr);
}

/// Gives a worker a Python thread state that it keeps, since making one for each op would take several microseconds.
/// The worker deletes it when its thread ends, for which no other thread waits with the GIL. Only the worker can delete
/// it: in another thread, Python would take it for that thread's own state.
void enter_python() {
  struct State {
    State() : given(PyGILState_Ensure()), state(PyEval_SaveThread()) { is_worker = true; }
    ~State() {
      if (engines_ended) return;
      PyEval_RestoreThread(state);
      PyGILState_Release(given);
    }
    const PyGILState_STATE given;
    PyThreadState* const state;
  };
  static thread_local const State state;
}

/// The accesses of the innermost Python op that runs on this thread.
thread_local const std::vector<Access>* accesses_here = nullptr;

void call(PyObject* function, const std::vector<Access>& accesses) {
  const auto* const outer = std::exchange(accesses_here, &accesses);
  const nb::object result = nb::steal(PyObject_CallNoArgs(function));
  accesses_here = outer;
  if (!result.is_valid()) {
    const bool interrupted = PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) != 0;
    try {
      throw_python_error();  // may run code of Python
    } catch (...) {
      // With the policy serial, an op runs in its push, which is interrupted, too.
      if (interrupted && SinglePush::is_under_way()) PyErr_SetInterrupt();
      throw;
    }
  }
  try {
    refuse_unstarted(result, "an op");
  } catch (nb::builtin_exception& error) {
    PyErr_SetString(PyExc_TypeError, error.what());
    throw_python_error();
  }
}

/// The function of an op that runs once. The op releases the Python object while it has the GIL; if the op never runs,
/// drop_object() gets it.
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
  without_outside_ = std::exchange(without_gil, 0);
  release_dropped();
  ++ops_inside;
}
InPython::~InPython() {
  --ops_inside;
  without_gil = without_outside_;
}

WithoutGil::WithoutGil() : state_(PyEval_SaveThread()), looks_([this] { handle_signals(); }) { ++without_gil; }
WithoutGil::~WithoutGil() { take_back(); }
void WithoutGil::take_back() {
  --without_gil;
  try {
    PyEval_RestoreThread(state_);
  } catch (...) {  // Python has ended, and ends this daemon thread; but the C++ code on its stack must not be unwound
    while (true) std::this_thread::sleep_for(std::chrono::hours(1));
  }
}
void WithoutGil::handle_signals() {
  if (inside_op()) return;
  take_back();
  std::exception_ptr raised;
  try {
    release_dropped();
    if (PyErr_CheckSignals() != 0) throw_interrupt();
  } catch (const std::exception&) {  // but not the unwinding that ends a daemon thread
    raised = std::current_exception();
  }
  state_ = PyEval_SaveThread();
  ++without_gil;
  if (raised) std::rethrow_exception(raised);
}

bool has_gil() {
  return PyGILState_GetThisThreadState() != nullptr && without_gil == 0 && (!is_worker || ops_inside > 0);
}

Capturing::Capturing(std::vector<Kept>& functions) : outer_(std::exchange(capturing_into, &functions)) {}
Capturing::~Capturing() { capturing_into = outer_; }

bool inside_op() { return ops_inside > 0; }

void refuse_unstarted(nb::handle result, const char* what) {
  if (result.is_none()) return;
  PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(result.ptr()));
  static PyObject* const types[] = {// they live as long as Python
                                    nb::module_::import_("types").attr("CoroutineType").ptr(),
                                    nb::module_::import_("types").attr("GeneratorType").ptr(),
                                    nb::module_::import_("types").attr("AsyncGeneratorType").ptr()};
  if (std::ranges::find(types, type) == std::end(types)) return;
  if (type == types[0]) result.attr("close")();  // or Python warns that nobody awaits it
  throw nb::type_error((std::string("the function of ") + what + " is async or has a yield: it returned " +
                        kind_of(result) + ", and nothing of it has run; expected a function that runs to its end")
                           .c_str());
}

std::optional<std::int64_t> integer_of(nb::handle object) {
  if (PyBool_Check(object.ptr()) || PyIndex_Check(object.ptr()) == 0) return std::nullopt;
  const nb::object index = nb::steal(PyNumber_Index(object.ptr()));
  if (!index.is_valid()) {
    PyErr_Clear();
    return std::nullopt;
  }
  std::int64_t number = 0;
  if (!nb::try_cast(index, number)) return std::nullopt;
  return number;
}

std::string kind_of(nb::handle object) {
  if (object.is_none()) return "None";
  const std::string name = nb::cast<std::string>(object.type().attr("__name__"));
  return (std::string("AEIOUaeiou").find(name.front()) == std::string::npos ? "a " : "an ") + name;
}

std::string counted(std::uint64_t number, const char* singular, const char* plural) {
  return std::to_string(number) + " " + (number == 1 ? singular : plural);
}

void all_engines_ended() {
  engines_ended = true;
  release_dropped();
}
bool have_all_engines_ended() { return engines_ended; }

void drop_object(PyObject* object) {
  if (engines_ended && has_gil()) return Py_DECREF(object);
  drop(object);
}

Kept::Kept(nb::object object) : object_(object.release().ptr(), drop_object) {}

void release_dropped() {
  if (all_dropped.load(std::memory_order_relaxed) == nullptr) return;
  for (Dropped* next = all_dropped.exchange(nullptr, std::memory_order_acquire); next != nullptr;) {
    const std::unique_ptr<Dropped> dropped(next);
    next = dropped->next;
    Py_DECREF(dropped->object);
  }
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
  if (PyCallable_Check(function.ptr()) == 0)
    throw nb::type_error("an op that is no function; expected a function without parameters");
  if (capturing_into == nullptr) return OnceOp(function.release().ptr(), std::move(accesses));
  const Kept& kept = capturing_into->emplace_back(std::move(function));
  return [kept, accesses = std::move(accesses)](OpContext&) {
    const InPython python;
    call(kept.ptr(), accesses);
  };
}

bool waiting(std::chrono::nanoseconds limit, const std::function<bool(std::chrono::nanoseconds patience)>& wait) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::nanoseconds between_looks = LookWhileWaiting::interval;
  const auto wait_in_parts = [&] {
    WithoutGil without_gil;
    if (inside_op()) return wait(limit);
    const auto begun = Clock::now();
    while (true) {
      const std::chrono::nanoseconds left = limit == no_limit ? limit : limit - (Clock::now() - begun);
      if (wait(std::clamp(left, left.zero(), between_looks))) return true;
      if (left <= between_looks) return false;
      without_gil.handle_signals();
    }
  };
  const bool result = wait_in_parts();
  release_dropped();
  return result;
}

bool wait_for(Engine& engine, AccessList accesses, std::chrono::nanoseconds limit) {
  const std::source_location from = calling_line();
  const auto wait = [&] {
    const WithoutGil without_gil;
    if (limit != no_limit) return engine.wait_for(accesses, limit, from);
    engine.wait(accesses, from);  // detects a cycle
    return true;
  };
  const bool result = wait();
  release_dropped();
  return result;
}

}  // namespace windrow::python
