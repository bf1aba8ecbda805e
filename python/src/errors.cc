// Exceptions, from C++ to Python.
#include <cstring>

#include "python.h"
#include "windrow/batching/runner.h"
#include "windrow/engine/error.h"
#include "windrow/memory/allocator.h"
#include "windrow/models/datasets.h"
#include "windrow/training/tensor_file.h"

namespace windrow::python {
namespace {

/// A class of windrow._errors. A new reference.
nb::object class_of(const char* name) { return nb::module_::import_("windrow._errors").attr(name); }

const char* name_of(Failure::Kind kind) {
  constexpr const char* names[] = {"threw", "waited", "skipped", "lost", "lane", "cancelled"};
  return names[static_cast<std::size_t>(kind)];
}

nb::list failures_of(const OpError& error) {
  nb::list all;
  const nb::object make = class_of("Failure");
  for (const FailurePtr& failure : error.failures()) {
    const std::source_location& at = failure->pushed_at;
    all.append(make(failure->name, std::string(at.file_name()) + ":" + std::to_string(at.line()),
                    name_of(failure->kind), failure->describe()));
  }
  return all;
}

/// The Python exception that the first failure goes back to, or none.
nb::object cause_of(const OpError& error) {
  const std::exception_ptr origin = error.failures().front()->origin();
  if (origin == nullptr) return {};
  try {
    std::rethrow_exception(origin);
  } catch (const PythonError& raised) {
    return raised.exception().get();
  } catch (const std::exception& thrown) {
    return exception_of(thrown);
  } catch (...) {
    return {};
  }
}

nb::object new_exception(const char* name, const char* text) { return class_of(name)(text); }

}  // namespace

nb::object exception_of(const std::exception& error) {
  if (const auto* const op = dynamic_cast<const OpError*>(&error)) {
    nb::object made = class_of("OpError")(op->what(), failures_of(*op));
    if (const nb::object cause = cause_of(*op); cause.is_valid()) {
      PyException_SetCause(made.ptr(), nb::borrow(cause).release().ptr());
    }
    return made;
  }
  if (const auto* const raised = dynamic_cast<const PythonError*>(&error)) return raised->exception().get();
  if (dynamic_cast<const WaitCycleError*>(&error)) return new_exception("WaitCycleError", error.what());
  if (dynamic_cast<const MisuseError*>(&error)) return new_exception("MisuseError", error.what());
  if (dynamic_cast<const Cancelled*>(&error)) return new_exception("Cancelled", error.what());
  if (dynamic_cast<const DeadlineError*>(&error)) return new_exception("DeadlineError", error.what());
  if (dynamic_cast<const OutOfMemory*>(&error)) return new_exception("OutOfMemory", error.what());
  if (dynamic_cast<const NotFiniteError*>(&error)) return new_exception("NotFiniteError", error.what());
  if (dynamic_cast<const FileError*>(&error)) return new_exception("FileError", error.what());
  if (dynamic_cast<const DataError*>(&error)) return new_exception("DataError", error.what());
  if (dynamic_cast<const Error*>(&error)) return new_exception("Error", error.what());
  return nb::steal(PyObject_CallFunction(PyExc_RuntimeError, "s", error.what()));
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
        } catch (const Error& error) {
          const nb::object made = exception_of(error);
          PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
        }
      },
      nullptr);
}

}  // namespace windrow::python
