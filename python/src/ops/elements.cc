#include "ops/elements.h"

#include <nanobind/ndarray.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace windrow::python {
namespace {

using HostArray = nb::ndarray<nb::ro>;

/// Elements of 16 bits, for which C++20 has no types.
struct Half {
  std::uint16_t bits;
  operator float() const {
    const std::uint32_t sign = (bits & 0x8000U) << 16, rest = bits & 0x7fffU;
    if (rest >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000U | (rest & 0x3ffU) << 13);  // inf and NaN
    const float scaled = std::bit_cast<float>(rest << 13) * 0x1p112F;                             // exact
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(scaled));
  }
};
struct Bfloat {
  std::uint16_t bits;
  operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
};

template <class To, class From>
To converted(From from) {
  if constexpr (std::is_same_v<To, std::int32_t> && !std::is_same_v<From, std::int32_t>) {
    constexpr auto first = std::numeric_limits<std::int32_t>::min(), last = std::numeric_limits<std::int32_t>::max();
    bool fits = false;
    if constexpr (std::is_integral_v<From>) {
      fits = std::in_range<std::int32_t>(from);
    } else {
      fits = from >= first && from <= last && std::trunc(static_cast<double>(from)) == static_cast<double>(from);
    }
    if (!fits) {
      throw MisuseError("tensor: element " + std::to_string(from) + "; expected integers from " +
                        std::to_string(first) + " to " + std::to_string(last));
    }
  }
  return static_cast<To>(from);
}

/// The shape and the steps, in elements, of an array of at most two dimensions.
struct Layout {
  std::int64_t rows = 1, width = 1, row_step = 0, step = 0;
};

MisuseError too_deep(std::size_t dimensions) {
  return MisuseError("tensor: data of " + std::to_string(dimensions) +
                     " dimensions; expected at most two: rows and columns. Reshape it first");
}

Layout layout_of(const HostArray& array) {
  if (array.ndim() > 2) throw too_deep(array.ndim());
  Layout layout;
  if (array.ndim() > 0) {
    layout.width = static_cast<std::int64_t>(array.shape(array.ndim() - 1));
    layout.step = array.stride(array.ndim() - 1);
  }
  if (array.ndim() == 2) {
    layout.rows = static_cast<std::int64_t>(array.shape(0));
    layout.row_step = array.stride(0);
  }
  return layout;
}

template <class From, class To>
std::vector<To> elements_copied(const HostArray& array, const Layout& layout) {
  std::vector<To> to(static_cast<std::size_t>(layout.rows * layout.width));
  const auto* const from = static_cast<const From*>(array.data());
  To* next = to.data();
  for (std::int64_t row = 0; row < layout.rows; ++row) {
    const From* const start = from + row * layout.row_step;
    for (std::int64_t column = 0; column < layout.width; ++column) {
      *next++ = converted<To>(start[column * layout.step]);
    }
  }
  return to;
}

using Copy = Elements (*)(const HostArray& array, bool to_floats);
template <class From>
Elements copied(const HostArray& array, bool to_floats) {
  const Layout layout = layout_of(array);
  if (to_floats) return {elements_copied<From, float>(array, layout), layout.rows, layout.width};
  return {elements_copied<From, std::int32_t>(array, layout), layout.rows, layout.width};
}

/// How to copy an array of elements of that type. Null for other types, such as complex numbers.
Copy copy_for(nb::dlpack::dtype type) {
  using Code = nb::dlpack::dtype_code;
  const auto code = static_cast<Code>(type.code);
  if (type.lanes != 1) return nullptr;
  switch (type.bits) {
    case 8:
      if (code == Code::Bool || code == Code::UInt) return copied<std::uint8_t>;
      return code == Code::Int ? copied<std::int8_t> : nullptr;
    case 16:
      if (code == Code::Float) return copied<Half>;
      if (code == Code::Bfloat) return copied<Bfloat>;
      return code == Code::Int ? copied<std::int16_t> : code == Code::UInt ? copied<std::uint16_t> : nullptr;
    case 32:
      if (code == Code::Float) return copied<float>;
      return code == Code::Int ? copied<std::int32_t> : code == Code::UInt ? copied<std::uint32_t> : nullptr;
    case 64:
      if (code == Code::Float) return copied<double>;
      return code == Code::Int ? copied<std::int64_t> : code == Code::UInt ? copied<std::uint64_t> : nullptr;
    default:
      return nullptr;
  }
}

Elements elements_of_array(const HostArray& array, const std::string& type) {
  using Code = nb::dlpack::dtype_code;
  const Copy copy = copy_for(array.dtype());
  if (copy == nullptr) {
    throw nb::type_error(("tensor: an array of elements of " + std::to_string(array.dtype().bits) +
                          " bits of another kind; expected floats, integers or bools")
                             .c_str());
  }
  const auto code = static_cast<Code>(array.dtype().code);
  const bool floats = code == Code::Float || code == Code::Bfloat;
  return copy(array, type.empty() ? floats : type == "float32");
}

/// The numbers of nested lists. Doubles contain all integers that a tensor may have.
class Nested {
 public:
  explicit Nested(nb::handle data) { add(data, 0); }

  Elements elements(const std::string& type) const {
    const bool floats = type.empty() ? !integers_ || numbers_.empty() : type == "float32";
    Elements made{{}, rows_, width_ < 0 ? 0 : width_};
    if (floats) {
      made.values = std::vector<float>(numbers_.begin(), numbers_.end());
      return made;
    }
    std::vector<std::int32_t> values;
    values.reserve(numbers_.size());
    for (const double number : numbers_) values.push_back(converted<std::int32_t>(number));
    made.values = std::move(values);
    return made;
  }

 private:
  static bool is_list(nb::handle data) {
    return PySequence_Check(data.ptr()) != 0 && !PyUnicode_Check(data.ptr()) && !PyBytes_Check(data.ptr());
  }

  void add_number(nb::handle number) {
    const bool integer = PyLong_Check(number.ptr()) || PyIndex_Check(number.ptr()) != 0;
    integers_ = integers_ && integer;
    const double value = PyFloat_AsDouble(number.ptr());
    if (value == -1.0 && PyErr_Occurred() != nullptr) {
      if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
      PyErr_Clear();
      throw nb::type_error(("tensor: an element of type " + std::string(nb::type_name(number.type()).c_str()) +
                            "; expected numbers, lists of them, or an array")
                               .c_str());
    }
    numbers_.push_back(value);
  }

  /// Adds `data`, which is `depth` lists deep.
  void add(nb::handle data, int depth) {
    if (PyFloat_Check(data.ptr()) || PyLong_Check(data.ptr()) || !is_list(data)) {
      if (depth == 0) rows_ = width_ = 1;
      return add_number(data);
    }
    if (depth == 2) throw too_deep(3);
    const nb::object all = nb::steal(PySequence_Fast(data.ptr(), "tensor: expected a list"));
    if (!all.is_valid()) throw nb::python_error();
    const Py_ssize_t count = PySequence_Size(all.ptr());
    bool lists = false;
    for (Py_ssize_t i = 0; i < count; ++i) {
      const nb::object item = nb::steal(PySequence_GetItem(all.ptr(), i));
      if (!item.is_valid()) throw nb::python_error();
      const bool list = is_list(item);
      if (i == 0) lists = list;
      if (list != lists) throw MisuseError("tensor: a list of numbers and lists; expected all of one kind");
      add(item, depth + 1);
    }
    if (depth == 0) rows_ = lists ? static_cast<std::int64_t>(count) : 1;
    if (!lists) end_row(static_cast<std::int64_t>(count));
  }

  void end_row(std::int64_t width) {
    if (width_ >= 0 && width != width_) {
      throw MisuseError("tensor: a row of " + std::to_string(width) + " elements after one of " +
                        std::to_string(width_) + "; expected rows of one length");
    }
    width_ = width;
  }

  std::vector<double> numbers_;
  std::int64_t rows_ = 0, width_ = -1;
  bool integers_ = true;
};

}  // namespace

void wait_for_elements(nb::handle data) {
  if (nb::isinstance<Tensor>(data)) viewed_for(nb::cast<const Tensor&>(data), AccessKind::read);
  if (nb::isinstance<IntTensor>(data)) viewed_for(nb::cast<const IntTensor&>(data), AccessKind::read);
}

bool is_array(nb::handle data) {
  return nb::hasattr(data, "__dlpack__") || nb::hasattr(data, "__array_interface__") || nb::hasattr(data, "__array__");
}

Elements elements_of(const nb::object& data, const std::string& type) {
  if (!type.empty() && type != "float32" && type != "int32") {
    throw MisuseError("dtype '" + type + "'; expected 'float32' or 'int32'");
  }
  const bool list = PyList_Check(data.ptr()) || PyTuple_Check(data.ptr());
  if (list || PyFloat_Check(data.ptr()) || PyLong_Check(data.ptr())) return Nested(data).elements(type);
  wait_for_elements(data);
  HostArray array;
  if (nb::try_cast(data, array)) return elements_of_array(array, type);
  if (is_array(data)) {
    const nb::object converted = nb::module_::import_("numpy").attr("ascontiguousarray")(data);
    if (nb::try_cast(converted, array)) return elements_of_array(array, type);
  }
  return Nested(data).elements(type);
}

}  // namespace windrow::python
