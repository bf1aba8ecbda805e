// Methods that NumPy users expect of tensors, made of existing operators.
#include "ops/numpy_habits.h"

#include <cmath>
#include <cstdio>
#include <cstring>

#include "ops/arrays.h"
#include "ops/operators.h"
#include "ops/refusals.h"
#include "windrow/engine/internal/engine_use.h"

namespace windrow::python {
namespace {

using nb::literals::operator""_a;

template <class T>
std::string rows_by_width(const TensorOf<T>& tensor) {
  return std::to_string(tensor.rows()) + " x " + std::to_string(tensor.width());
}

/// The only element. `as` names the conversion, for errors.
template <class T>
T only_element(const TensorOf<T>& tensor, const char* as) {
  if (tensor.rows() != 1 || tensor.width() != 1) {
    throw MisuseError(std::string(as) + " of a tensor of " + rows_by_width(tensor) + "; expected 1 x 1");
  }
  return *copy_of(tensor).view().read().data;
}

template <class T>
nb::object int_of(const TensorOf<T>& tensor) {
  const double value = only_element(tensor, "int()");
  const nb::object whole = nb::steal(PyLong_FromDouble(value));  // raises for NaN and infinity
  if (!whole.is_valid()) throw nb::python_error();
  return whole;
}

std::string shown_number(float number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", static_cast<double>(number));
  return text;
}
std::string shown_number(std::int32_t number) { return std::to_string(number); }

/// ": [[1, 2], [3, 4]]", ", pending" or ", failed"; "" if there are many elements, or if they are not readable. Neither
/// waits nor throws.
template <class T>
std::string shown_elements(const TensorOf<T>& tensor) try {
  constexpr Index most = 32;
  const InUse use(tensor);
  if (tensor.rows() * tensor.width() > most || inside_op() || !tensor.view().on_host()) return "";
  if (!EngineUse::is_idle(use.engine(), tensor.var(), nullptr)) return ", pending";
  if (use.engine().failures() != 0) use.engine().wait_for({{tensor.var(), AccessKind::read}}, std::chrono::seconds(0));
  const Matrix<const T> elements = tensor.view().read();
  std::string text = ": [";
  for (Index row = 0; row < elements.rows; ++row) {
    text += row == 0 ? "[" : ", [";
    for (Index column = 0; column < elements.width; ++column) {
      text += (column == 0 ? "" : ", ") + shown_number(elements.row(row)[column]);
    }
    text += "]";
  }
  return text + "]";
} catch (const OpError&) {
  return ", failed";
} catch (const std::exception&) {
  return "";
}

/// A new tensor with the elements of another one, for which it waits.
template <class T>
TensorOf<T> copied_tensor(const TensorOf<T>& tensor) {
  const InUse use(tensor);
  const TensorOf<T> copy = copy_of(tensor);
  const T* const first = copy.view().read().data;
  const TensorOf<T> made(use.device(), tensor.rows(), tensor.width(), OpName("copy"));
  made.set(std::vector<T>(first, first + tensor.rows() * tensor.width()), calling_line());
  return made;
}

/// (rows, width, bytes), for pickle.
template <class T>
nb::tuple state_of(const TensorOf<T>& tensor) {
  const TensorOf<T> copy = copy_of(tensor);
  const auto bytes = static_cast<std::size_t>(tensor.rows() * tensor.width()) * sizeof(T);
  return nb::make_tuple(tensor.rows(), tensor.width(), nb::bytes(copy.view().read().data, bytes));
}

template <class T>
void restore(TensorOf<T>& self, const std::tuple<Index, Index, nb::bytes>& state) {
  const auto& [rows, width, bytes] = state;
  if (rows < 0 || width < 0 || bytes.size() != static_cast<std::size_t>(rows * width) * sizeof(T)) {
    throw MisuseError("a tensor from " + std::to_string(bytes.size()) + " bytes; expected those of " +
                      std::to_string(rows) + " x " + std::to_string(width));
  }
  const InUse use(static_cast<const Device*>(nullptr));
  const TensorOf<T> made(use.device(), rows, width, OpName("tensor"));
  std::vector<T> values(static_cast<std::size_t>(rows * width));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  made.set(std::move(values), calling_line());
  new (&self) TensorOf<T>(made);
}

/// The elements as another type. Pushes an op on the host.
template <class To, class From>
TensorOf<To> converted_to(const TensorOf<From>& tensor) {
  const InUse use(tensor);
  if (!tensor.view().on_host())
    throw MisuseError("astype() of a tensor in a device's memory; expected one of the host");
  const TensorOf<To> made(use.device(), tensor.rows(), tensor.width(), OpName("astype"));
  const std::source_location from = calling_line();
  made.fill(
      [view = tensor.view()](const Matrix<To>& to) {
        const Matrix<const From> elements = view.read();
        for (Index row = 0; row < to.rows; ++row) {
          for (Index column = 0; column < to.width; ++column) {
            const From element = elements.row(row)[column];
            const auto number = static_cast<double>(element);
            if (std::is_same_v<To, std::int32_t> && !(number > -2147483649.0 && number < 2147483648.0)) {
              throw MisuseError("astype: element " + std::to_string(element) + "; expected numbers of int32");
            }
            to.row(row)[column] = static_cast<To>(element);
          }
        }
      },
      {{tensor.var(), AccessKind::read}}, {.name = "astype", .pushed_at = from});
  return made;
}

template <class T>
nb::object as_type(const TensorOf<T>& tensor, const std::string& type) {
  if (type != "float32" && type != "int32") throw MisuseError("dtype '" + type + "'; expected 'float32' or 'int32'");
  if ((type == "float32") == std::is_same_v<T, float>) return nb::cast(tensor);
  if constexpr (std::is_same_v<T, float>) return nb::cast(converted_to<std::int32_t>(tensor));
  return nb::cast(converted_to<float>(tensor));
}

constexpr const char* axis_doc =
    "The result has two dimensions, too: axis 0 reduces rows (n x w -> 1 x w), axis 1 columns (n x w -> n x 1), None "
    "both (1 x 1). A Tape differentiates it.";

Tensor reduced(const Tensor& x, std::optional<Index> axis, bool mean, const char* name) {
  if (axis && *axis == -1) axis = 1;
  if (axis && *axis == -2) axis = 0;
  if (axis && *axis != 0 && *axis != 1) {
    throw MisuseError(std::string(name) + ": axis " + std::to_string(*axis) + "; expected 0, 1 or None");
  }
  const bool over_rows = !axis || *axis == 0, over_columns = !axis || *axis == 1;
  const Index count = (over_rows ? x.rows() : 1) * (over_columns ? x.width() : 1);
  if (mean && count == 0) {
    throw MisuseError("mean of a tensor of " + rows_by_width(x) + " along " + (over_columns ? "width " : "rows ") +
                      std::to_string(over_columns ? x.width() : x.rows()) + "; expected an element or more");
  }
  Tensor sum = x;
  if (over_columns) sum = row_sum(Array(sum));
  if (over_rows) sum = column_sum(Array(sum));
  return mean ? 1 / static_cast<double>(count) * Array(sum) : sum;
}

void refuse_in_place(nb::class_<Tensor>& tensor) {
  for (const char* name : {"__iadd__", "__isub__", "__imul__", "__itruediv__"}) {
    const std::string head = "def " + std::string(name) + "(self, arg: ", end = ", /) -> Tensor";
    def_with_signatures(
        tensor, name, {(head + "Tensor" + end).c_str(), (head + "float" + end).c_str(), (head + "Array" + end).c_str()},
        [](const Tensor& x, nb::handle) -> Tensor {
          if (x.whole()) throw nb::next_overload();  // then Python computes x = x + y
          throw MisuseError(
              "a change in place of a view of a part, such as x[0:1] += 1; expected `with part.edit() as array: array "
              "+= 1`, part.set(...), or y = part + 1 for a new tensor");
        },
        "Raises MisuseError for a view of a part; otherwise x += y is x = x + y, a new tensor.", nb::is_operator());
  }
}

}  // namespace

template <class T>
void bind_habits(nb::class_<TensorOf<T>>& tensor) {
  constexpr bool floats = std::is_same_v<T, float>;
  const std::string self = floats ? "Tensor" : "IntTensor", other = floats ? "IntTensor" : "Tensor";
  refuse_comparison(tensor, "tensors", "(x.numpy() == y.numpy()), element by element, or `x is y`");
  tensor
      .def(
          "__bool__", [](const TensorOf<T>& t) { return only_element(t, "bool()") != 0; },
          "Whether the element of a tensor of 1 x 1 is not 0. Waits for it.")
      .def(
          "__float__", [](const TensorOf<T>& t) { return static_cast<double>(only_element(t, "float()")); },
          "The element of a tensor of 1 x 1. Waits for it.")
      .def("__int__", &int_of<T>, nb::sig("def __int__(self) -> int"),
           "The element of a tensor of 1 x 1, without its fraction. Waits for it.")
      .def_prop_ro(
          "size", [](const TensorOf<T>& t) { return t.rows() * t.width(); }, "The number of elements.")
      .def("__repr__",
           [self](const TensorOf<T>& t) {
             return "<windrow." + self + " " + rows_by_width(t) + shown_elements(t) + ">";
           })
      .def("copy", &copied_tensor<T>,
           "A new tensor with these elements, on the same device. Waits for the ops that write them.")
      .def("__copy__", &copied_tensor<T>)
      .def(
          "__deepcopy__", [](const TensorOf<T>& t, nb::handle) { return copied_tensor(t); }, "memo"_a,
          nb::sig(("def __deepcopy__(self, memo: dict[int, object] | None, /) -> " + self).c_str()))
      .def("__getstate__", &state_of<T>, nb::sig("def __getstate__(self) -> tuple[int, int, bytes]"))
      .def("__setstate__", &restore<T>, "state"_a,
           nb::sig("def __setstate__(self, state: tuple[int, int, bytes], /) -> None"));
  def_with_signatures(
      tensor, "astype",
      {("def astype(self, dtype: Literal['float32']) -> " + std::string("Tensor")).c_str(),
       ("def astype(self, dtype: Literal['int32']) -> " + std::string("IntTensor")).c_str()},
      &as_type<T>,
      "The elements as 'float32' or 'int32', such as windrow.argmax(x).astype('int32') for pick() and embedding(). "
      "Fractions are cut off. Has no gradient. Returns the same tensor if it already has that type.",
      "dtype"_a);
  if constexpr (floats) {
    tensor
        .def_prop_ro(
            "T", [](const Tensor& x) { return apply_to_tensors(op::transpose, {.in = {x}}); },
            "The transpose, a new tensor: k x m -> m x k.")
        .def(
            "sum", [](const Tensor& x, std::optional<Index> axis) { return reduced(x, axis, false, "sum"); },
            "axis"_a = nb::none(), nb::sig("def sum(self, axis: Literal[0, 1, -1, -2] | None = None) -> Tensor"),
            (std::string("The sum. ") + axis_doc).c_str())
        .def(
            "mean", [](const Tensor& x, std::optional<Index> axis) { return reduced(x, axis, true, "mean"); },
            "axis"_a = nb::none(), nb::sig("def mean(self, axis: Literal[0, 1, -1, -2] | None = None) -> Tensor"),
            (std::string("The mean. ") + axis_doc).c_str());
    refuse_in_place(tensor);
  }
}

template void bind_habits(nb::class_<Tensor>&);
template void bind_habits(nb::class_<IntTensor>&);

void bind_reductions(nb::module_& m) {
  m.def(
      "sum", [](const Tensor& x, std::optional<Index> axis) { return reduced(x, axis, false, "sum"); }, "x"_a,
      "axis"_a = nb::none(), nb::sig("def sum(x: Tensor, axis: Literal[0, 1, -1, -2] | None = None) -> Tensor"),
      (std::string("The sum of a tensor. ") + axis_doc).c_str());
  m.def(
      "mean", [](const Tensor& x, std::optional<Index> axis) { return reduced(x, axis, true, "mean"); }, "x"_a,
      "axis"_a = nb::none(), nb::sig("def mean(x: Tensor, axis: Literal[0, 1, -1, -2] | None = None) -> Tensor"),
      (std::string("The mean of a tensor. ") + axis_doc).c_str());
}

}  // namespace windrow::python
