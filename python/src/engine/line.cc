// The lines of Python programs, as locations of C++.
#include <array>
#include <bit>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "python.h"

namespace windrow::python {
namespace {

/// What a std::source_location of GCC and Clang points to.
struct Place {
  const char* file;
  const char* function;
  unsigned line, column;
};
static_assert(sizeof(std::source_location) == sizeof(const Place*));

/// A line of a code object. Never freed, since traces and failures refer to it.
struct Line {
  std::string file, function;
  bool in_package;
  Place place;
};

/// Text of an attribute of a code object, or "".
std::string text_of(PyObject* code, const char* attribute) {
  const nb::object text = nb::steal(PyObject_GetAttrString(code, attribute));
  Py_ssize_t size = 0;
  const char* const chars = text.is_valid() ? PyUnicode_AsUTF8AndSize(text.ptr(), &size) : nullptr;
  if (chars == nullptr) {
    PyErr_Clear();
    return "";
  }
  return {chars, static_cast<std::size_t>(size)};
}

bool is_in_package(std::string_view file) {
  static const std::string folder = [] {
    const nb::object package = nb::module_::import_("windrow");
    const std::string init = nb::cast<std::string>(package.attr("__file__"));
    return init.substr(0, init.rfind('/') + 1);
  }();
  return file.starts_with(folder);
}

const Line& line_of(PyObject* code, unsigned number) {
  static std::mutex mutex;
  static auto* const lines = new std::unordered_map<std::string, std::unique_ptr<Line>>();
  std::string file = text_of(code, "co_filename"), function = text_of(code, "co_name");
  std::string key = file + '\0' + function + '\0' + std::to_string(number);
  const bool in_package = is_in_package(file);
  const std::lock_guard lock(mutex);
  std::unique_ptr<Line>& line = (*lines)[key];
  if (line == nullptr) {
    line = std::make_unique<Line>(Line{std::move(file), std::move(function), in_package, {}});
    line->place = {line->file.c_str(), line->function.c_str(), number, 0};
  }
  return *line;
}

/// A thread's cache of lines, by code object and instruction, since Python computes a line number by a scan from the
/// beginning of the function. An entry keeps its code object alive, so that no other one gets its address.
class LineCache {
 public:
  LineCache() = default;
  ~LineCache() {
    for (const Entry& entry : entries_) {
      if (entry.code != nullptr) drop_object(entry.code);
    }
  }
  LineCache(const LineCache&) = delete;
  LineCache& operator=(const LineCache&) = delete;

  const Line& find(PyFrameObject* frame) {
    static PyObject* const attribute = PyUnicode_InternFromString("f_lasti");
    const nb::object code = nb::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
    const nb::object at = nb::steal(PyObject_GetAttr(reinterpret_cast<PyObject*>(frame), attribute));
    const long instruction = at.is_valid() ? PyLong_AsLong(at.ptr()) : -1;
    const auto hash = reinterpret_cast<std::uintptr_t>(code.ptr()) / 16 * 31 + static_cast<std::uintptr_t>(instruction);
    Entry& entry = entries_[hash % entries_.size()];
    if (entry.code != code.ptr() || entry.instruction != instruction) {
      const Line& line = line_of(code.ptr(), static_cast<unsigned>(PyFrame_GetLineNumber(frame)));
      Py_INCREF(code.ptr());
      Py_XDECREF(std::exchange(entry.code, code.ptr()));
      entry.instruction = instruction;
      entry.line = &line;
    }
    return *entry.line;
  }

 private:
  struct Entry {
    PyObject* code = nullptr;
    long instruction = 0;
    const Line* line = nullptr;
  };
  std::array<Entry, 256> entries_;
};

}  // namespace

std::source_location calling_line() {
  static thread_local const auto cache = std::make_unique<LineCache>();  // static TLS has little room
  nb::object frame = nb::steal(reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())));
  const Line* line = nullptr;
  while (frame.is_valid() && !frame.is_none()) {
    line = &cache->find(reinterpret_cast<PyFrameObject*>(frame.ptr()));
    if (!line->in_package) break;
    frame = frame.attr("f_back");
  }
  return line == nullptr ? std::source_location::current() : std::bit_cast<std::source_location>(&line->place);
}

}  // namespace windrow::python
