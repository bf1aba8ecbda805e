// Exceptions, from C++ to Python.
#include <cstring>

#include "python.h"
#include "windrow/batching/runner.h"
#include "windrow/comm/communicator.h"
#include "windrow/engine/error.h"
#include "windrow/engine/internal/weak_op_error.h"
#include "windrow/memory/allocator.h"
#include "windrow/models/datasets.h"
#include "windrow/training/tensor_file.h"

namespace windrow::python {
namespace {

const char* name_of(Failure::Kind kind) {
  constexpr const char* names[] = {"threw", "waited", "skipped", "lost", "lane", "cancelled"};
  return names[static_cast<std::size_t>(kind)];
}

nb::list failures_of(const OpError& error) {
  nb::list all;
  const nb::object make = error_class("Failure");
  for (const FailurePtr& failure : error.failures()) {
    const std::source_location& at = failure->pushed_at;
    all.append(make(failure->name, std::string(at.file_name()) + ":" + std::to_string(at.line()),
                    name_of(failure->kind), failure->describe()));
  }
  return all;
}

/// The exception that the first failure goes back to, or none.
nb::object cause_of(const OpError& error) {
  const std::exception_ptr origin = error.failures().front()->origin();
  if (origin == nullptr) return {};
  try {
    std::rethrow_exception(origin);
  } catch (const std::exception& thrown) {
    return exception_of(thrown);
  } catch (...) {
    return {};
  }
}

class PythonError final : public Error, public CarriesPython {
 public:
  PythonError(const std::string& text, Kept exception) : Error(text), CarriesPython(std::move(exception)) {}
};
class PythonCancelled final : public Cancelled, public CarriesPython {
 public:
  PythonCancelled(std::string text, Kept exception) : CarriesPython(std::move(exception)), text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.empty() ? Cancelled::what() : text_.c_str(); }

 private:
  std::string text_;
};

/// What a signal's handler raised.
class Interrupt final : public std::exception, public CarriesPython {
 public:
  using CarriesPython::CarriesPython;
  const char* what() const noexcept override { return "a signal's handler raised an exception"; }
};

/// The name of the attribute of Python's OpError, and of the capsule in it, that refer to the OpError of C++.
constexpr const char* op_error_name = "_windrow";

std::string text_of(nb::handle error) {
  const nb::object text = nb::steal(PyObject_Str(error.ptr()));
  const char* const chars = text.is_valid() ? PyUnicode_AsUTF8AndSize(text.ptr(), nullptr) : nullptr;
  if (chars != nullptr) return chars;
  PyErr_Clear();
  return "(an exception without text)";
}

nb::object new_exception(const char* name, const char* text) { return error_class(name)(text); }

}  // namespace

nb::object error_class(const char* name) { return nb::module_::import_("windrow._errors").attr(name); }

nb::object exception_of(const std::exception& error) {
  if (const auto* const op = dynamic_cast<const OpError*>(&error)) {
    nb::object made = error_class("OpError")(op->what(), failures_of(*op));
    made.attr(op_error_name) = nb::capsule(new WeakOpError(*op), op_error_name,
                                           [](void* kept) noexcept { delete static_cast<WeakOpError*>(kept); });
    if (const nb::object cause = cause_of(*op); cause.is_valid()) {
      PyException_SetCause(made.ptr(), nb::borrow(cause).release().ptr());
    }
    return made;
  }
  if (const auto* const raised = dynamic_cast<const CarriesPython*>(&error)) return raised->exception().get();
  if (dynamic_cast<const WaitCycleError*>(&error)) return new_exception("WaitCycleError", error.what());
  if (dynamic_cast<const MisuseError*>(&error)) return new_exception("MisuseError", error.what());
  if (dynamic_cast<const Cancelled*>(&error)) return new_exception("Cancelled", error.what());
  if (dynamic_cast<const DeadlineError*>(&error)) return new_exception("DeadlineError", error.what());
  if (dynamic_cast<const OutOfMemory*>(&error)) return new_exception("OutOfMemory", error.what());
  if (dynamic_cast<const NotFiniteError*>(&error)) return new_exception("NotFiniteError", error.what());
  if (dynamic_cast<const FileError*>(&error)) return new_exception("FileError", error.what());
  if (dynamic_cast<const DataError*>(&error)) return new_exception("DataError", error.what());
  if (dynamic_cast<const AbortError*>(&error)) return new_exception("AbortError", error.what());
  if (dynamic_cast<const PeerError*>(&error)) return new_exception("PeerError", error.what());
  if (dynamic_cast<const CommError*>(&error)) return new_exception("CommError", error.what());
  if (dynamic_cast<const Error*>(&error)) return new_exception("Error", error.what());
  return nb::steal(PyObject_CallFunction(PyExc_RuntimeError, "s", error.what()));
}

std::optional<OpError> op_error_of(nb::handle error) {
  const nb::object capsule = nb::steal(PyObject_GetAttrString(error.ptr(), op_error_name));
  if (!capsule.is_valid()) PyErr_Clear();
  if (!capsule.is_valid() || PyCapsule_IsValid(capsule.ptr(), op_error_name) == 0) return {};
  return static_cast<const WeakOpError*>(PyCapsule_GetPointer(capsule.ptr(), op_error_name))->lock();
}

namespace {

void raise_in_python(const std::exception& error) {
  const nb::object made = exception_of(error);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
}

}  // namespace

void throw_python_error() {
  const nb::python_error raised;
  const nb::handle error = raised.value();
  if (const std::optional<OpError> again = op_error_of(error)) throw OpError(*again);
  const Kept kept(nb::borrow(error));
  const std::string text = text_of(error);
  if (nb::isinstance(error, error_class("Cancelled"))) throw PythonCancelled(text, kept);
  throw PythonError(nb::type_name(error.type()).c_str() + (text.empty() ? "" : ": " + text), kept);
}

void throw_interrupt() {
  const nb::python_error raised;
  throw Interrupt(Kept(nb::borrow(raised.value())));
}

void bind_errors(nb::module_&) {
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void*) {
        try {
          std::rethrow_exception(thrown);
        } catch (const nb::python_error&) {
          throw;
        } catch (const nb::cast_error&) {
          PyErr_SetString(PyExc_TypeError, "an object of a wrong type in an argument; see the function's signature");
        } catch (const Interrupt& error) {
          raise_in_python(error);
        } catch (const Error& error) {
          raise_in_python(error);
        }
      },
      nullptr);
}

}  // namespace windrow::python
