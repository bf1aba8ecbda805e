// Tensors: their elements from and to Python, and views of their rows and columns.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <algorithm>

#include "ops/arrays.h"
#include "ops/elements.h"
#include "ops/numpy_habits.h"
#include "windrow/engine/internal/engine_use.h"

namespace windrow::python {
namespace {

using nb::literals::operator""_a;

template <class T>
constexpr const char* type_name = std::is_same_v<T, float> ? "float32" : "int32";
template <class T>
constexpr const char* class_name = std::is_same_v<T, float> ? "Tensor" : "IntTensor";
/// The type of its elements in Python.
template <class T>
constexpr const char* number_name = std::is_same_v<T, float> ? "float" : "int";
template <class T>
const std::string array_name = std::string("NDArray[") + type_name<T> + "]";

template <class T>
std::string shape_of(const TensorOf<T>& tensor) {
  return std::to_string(tensor.rows()) + " x " + std::to_string(tensor.width());
}

template <class T>
void set(const TensorOf<T>& tensor, const nb::object& data) {
  Elements elements = elements_of(data, type_name<T>);
  if (elements.rows != tensor.rows() || elements.width != tensor.width()) {
    throw MisuseError("set: data of " + std::to_string(elements.rows) + " x " + std::to_string(elements.width) +
                      "; expected " + shape_of(tensor));
  }
  const InUse use(tensor);
  const std::source_location from = calling_line();
  tensor.set(std::get<std::vector<T>>(std::move(elements.values)), from);
}

template <class T>
nb::object new_tensor(const InUse& use, Elements& elements, const std::string& name) {
  const TensorOf<T> tensor(use.device(), elements.rows, elements.width, OpName(name));
  const std::source_location from = calling_line();
  tensor.set(std::get<std::vector<T>>(std::move(elements.values)), from);
  return nb::cast(tensor);
}

/// The range [begin, end) that an index or a slice names.
std::pair<Index, Index> range_of(nb::handle key, Index size) {
  if (nb::isinstance<nb::slice>(key)) {
    const auto [start, stop, step, length] = nb::borrow<nb::slice>(key).compute(static_cast<std::size_t>(size));
    if (step != 1) {
      throw MisuseError("a slice with step " + std::to_string(step) + "; expected step 1, since tensors view ranges");
    }
    return {start, start + static_cast<Index>(length)};
  }
  const Py_ssize_t index = PyNumber_AsSsize_t(key.ptr(), PyExc_IndexError);
  if (index == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  if (index < -size || index >= size) {
    throw nb::index_error(("index " + std::to_string(index) + " of " + std::to_string(size)).c_str());
  }
  const Index begin = index < 0 ? index + size : index;
  return {begin, begin + 1};
}

template <class T>
TensorOf<T> part_of(const TensorOf<T>& tensor, const nb::object& key) {
  const bool both = PyTuple_Check(key.ptr());
  const nb::tuple keys = both ? nb::borrow<nb::tuple>(key) : nb::make_tuple(key);
  if (keys.size() < 1 || keys.size() > 2) throw nb::index_error("a tensor has two dimensions: rows and columns");
  const auto [begin, end] = range_of(keys[0], tensor.rows());
  const TensorOf<T> rows = tensor.row_range(begin, end);
  if (keys.size() == 1) return rows;
  const auto [first, last] = range_of(keys[1], tensor.width());
  return rows.column_range(first, last);
}

template <class T>
nb::object filled(Index rows, Index width, T value, const Device* device, const std::string& name) {
  const InUse use(device);
  const TensorOf<T> tensor(use.device(), rows, width, OpName(name));
  const std::source_location from = calling_line();
  tensor.fill(
      [value](const Matrix<T>& to) {
        for (Index row = 0; row < to.rows; ++row) std::fill_n(to.row(row), to.width, value);
      },
      {}, {.name = "full", .pushed_at = from});
  return nb::cast(tensor);
}

bool is_float(const std::string& type) {
  if (type != "float32" && type != "int32") throw MisuseError("dtype '" + type + "'; expected 'float32' or 'int32'");
  return type == "float32";
}

nb::object full(Index rows, Index width, double value, const Device* device, const std::string& type,
                const std::string& name) {
  if (is_float(type)) return filled<float>(rows, width, static_cast<float>(value), device, name);
  const auto integer = static_cast<std::int32_t>(std::clamp(value, -2147483648.0, 2147483647.0));
  if (integer != value) throw MisuseError("full: value " + std::to_string(value) + "; expected one of int32");
  return filled<std::int32_t>(rows, width, integer, device, name);
}

nb::object empty(Index rows, Index width, const Device* device, const std::string& type, const std::string& name) {
  const InUse use(device);
  if (is_float(type)) return nb::cast(Tensor(use.device(), rows, width, OpName(name)));
  return nb::cast(IntTensor(use.device(), rows, width, OpName(name)));
}

template <class T>
nb::object list_of(const TensorOf<T>& tensor) {
  const TensorOf<T> copy = copy_of(tensor);
  const T* next = copy.view().read().data;
  nb::list rows;
  for (Index row = 0; row < tensor.rows(); ++row) {
    nb::list elements;
    for (Index column = 0; column < tensor.width(); ++column) elements.append(*next++);
    rows.append(elements);
  }
  return rows;
}

template <class T>
T item(const TensorOf<T>& tensor) {
  if (tensor.rows() != 1 || tensor.width() != 1) {
    throw MisuseError("item() of a tensor of " + shape_of(tensor) + "; expected 1 x 1");
  }
  return *copy_of(tensor).view().read().data;
}

/// The elements as an array of NumPy, which keeps the memory.
template <class T>
nb::object array_of(const Viewed<T>& viewed) {
  const Matrix<T>& of = viewed.elements;
  const nb::object owner = nb::cast(viewed.tensor);
  const auto rows = static_cast<std::size_t>(of.rows), width = static_cast<std::size_t>(of.width);
  if (viewed.read_only) return nb::cast(nb::ndarray<nb::numpy, const T>(of.data, {rows, width}, owner, {of.stride, 1}));
  return nb::cast(nb::ndarray<nb::numpy, T>(of.data, {rows, width}, owner, {of.stride, 1}));
}

template <class T>
nb::object numpy(const TensorOf<T>& tensor) {
  return array_of(viewed_for(copy_of(tensor), AccessKind::read));
}

/// For numpy.asarray().
template <class T>
nb::object array(const TensorOf<T>& tensor, const nb::object& type, std::optional<bool> copy) {
  const nb::object made = copy.value_or(false) ? numpy(tensor) : array_of(viewed_for(tensor, AccessKind::read));
  if (type.is_none()) return made;
  const nb::object converted = made.attr("astype")(type, "copy"_a = false);
  if (copy && !*copy && !converted.is(made)) {
    throw nb::value_error("__array__ with copy=False and another dtype; expected that of the tensor");
  }
  return converted;
}

/// A tensor in a with block, in which Python writes it.
template <class T>
class Edit {
 public:
  explicit Edit(const TensorOf<T>& tensor) : tensor_(tensor) {}

  nb::object enter() {
    if (array_.is_valid()) throw MisuseError("edit() entered again; expected a new edit() for each with block");
    return array_ = array_of(viewed_for(tensor_, AccessKind::mutate));
  }
  void exit() {
    if (array_.is_valid()) array_.attr("flags").attr("writeable") = false;
  }

 private:
  TensorOf<T> tensor_;
  nb::object array_;
};

template <class T>
void bind_edit(nb::module_& m, const char* name) {
  nb::class_<Edit<T>>(m, name, "A tensor that Python writes in a with block. Made by Tensor.edit().")
      .def("__enter__", &Edit<T>::enter, nb::sig(("def __enter__(self) -> " + array_name<T>).c_str()))
      .def(
          "__exit__", [](Edit<T>& edit, nb::handle, nb::handle, nb::handle) { edit.exit(); }, nb::arg().none(),
          nb::arg().none(), nb::arg().none(), nb::sig(signature_of_exit));
}

template <class T>
void bind(nb::module_& m, const char* doc) {
  nb::class_<TensorOf<T>> tensor(m, class_name<T>, doc);
  tensor.def_prop_ro("rows", &TensorOf<T>::rows, "The number of rows.")
      .def_prop_ro("width", &TensorOf<T>::width, "The number of columns.")
      .def_prop_ro(
          "shape", [](const TensorOf<T>& t) { return nb::make_tuple(t.rows(), t.width()); },
          nb::for_getter(nb::sig("def shape(self) -> tuple[int, int]")), "(rows, width).")
      .def_prop_ro(
          "ndim", [](const TensorOf<T>&) { return 2; }, "2.")
      .def_prop_ro(
          "dtype", [](const TensorOf<T>&) { return type_name<T>; },
          nb::for_getter(nb::sig((std::string("def dtype(self) -> Literal['") + type_name<T> + "']").c_str())),
          "'float32' or 'int32'.")
      .def_prop_ro(
          "device", [](const TensorOf<T>& t) { return InUse(t).device(); }, "Where the memory lies.")
      .def_prop_ro("var", &TensorOf<T>::var, "The variable that orders the ops on the tensor and all views of it.")
      .def("set", &set<T>, "data"_a, nb::sig("def set(self, data: ArrayLike) -> None"),
           "Pushes an op that writes the elements: data of the same shape, as for tensor().")
      .def("tolist", &list_of<T>,
           nb::sig((std::string("def tolist(self) -> list[list[") + number_name<T> + "]]").c_str()),
           "The elements as a list of rows. Waits for the ops that write them.")
      .def("item", &item<T>, "The element of a tensor of 1 x 1. Waits for the ops that write it.")
      .def("numpy", &numpy<T>, nb::sig(("def numpy(self) -> " + array_name<T>).c_str()),
           "A NumPy array with a copy of the elements. Waits for the ops that write them.")
      .def(
          "edit", [](const TensorOf<T>& t) { return Edit<T>(t); },
          "For a with block in which Python writes the elements: `with x.edit() as array: array[:] = 0`. Waits for all "
          "earlier ops on the tensor, and gives its memory as a NumPy array, with zeros if nothing was written yet. Do "
          "not push ops on the tensor in the block: they would run at the same time. To write without waiting, push a "
          "function: `engine.push(f, mutate=x)`; in f, edit() does not wait, and neither do numpy.from_dlpack(x) and "
          "numpy.asarray(x).")
      .def("__getitem__", &part_of<T>,
           nb::sig((std::string("def __getitem__(self, part: Part, /) -> ") + class_name<T>).c_str()),
           "A view of rows, x[2:5] or x[-1], of columns, x[:, 0:3], or of both. Steps must be 1.")
      .def("__len__", &TensorOf<T>::rows);
  def_with_signatures(
      tensor, "__array__",
      {("def __array__(self, dtype: None = None, copy: bool | None = None) -> " + array_name<T>).c_str(),
       "def __array__(self, dtype: DTypeLike, copy: bool | None = None) -> NDArray[Any]"},
      &array<T>, "A NumPy array that shares the memory, for numpy.asarray(). See __dlpack__().", "dtype"_a = nb::none(),
      "copy"_a = nb::none());
  bind_exchange(tensor);
  bind_habits(tensor);
}

}  // namespace

void wait_for(const InUse& use, Var var, AccessKind kind) { wait_for(use.engine(), {{var, kind}}); }

template <class T>
TensorOf<T> copy_of(const TensorOf<T>& tensor) {
  const InUse use(tensor);
  const auto bytes = static_cast<std::size_t>(tensor.rows() * tensor.width()) * sizeof(T);
  const auto buffer =
      std::make_shared<Buffer>(use.engine(), tensor.buffer()->memory()->staging(), bytes, OpName("values"));
  const TensorOf<T> copy(buffer, tensor.rows(), tensor.width());
  const std::source_location from = calling_line();
  const bool declared = access_here(tensor.var()).has_value(), here = tensor.view().on_host();
  if (here && !declared) wait_for(use, tensor.var(), AccessKind::read);
  // No other Python thread pushes meanwhile, since this one has the GIL.
  if (declared || (here && EngineUse::is_idle(use.engine(), tensor.var(), nullptr))) {
    tensor.view().download(nullptr, reinterpret_cast<T*>(buffer->bytes().write()));
    return copy;
  }
  const auto download = [to = buffer->bytes(), view = tensor.view()](OpContext& op) {
    view.download(op.lane(), reinterpret_cast<T*>(to.write_unwatched(op.lane())));
  };
  const Device& device = use.device();
  const LaneId lane = device.on_host() ? host_lane : device.copy_out.value_or(device.lane);
  use.engine().push(download, {read(tensor.var()), overwrite(buffer->var())},
                    {.name = "get", .lane = lane, .pushed_at = from});
  wait_for(use, buffer->var(), AccessKind::read);
  return copy;
}

template Tensor copy_of(const Tensor&);
template IntTensor copy_of(const IntTensor&);

nb::object tensor_of(const nb::object& data, const Device* device, const std::string& name, const std::string& type) {
  const InUse use(device);
  Elements elements = elements_of(data, type);
  if (elements.values.index() == 0) return new_tensor<float>(use, elements, name);
  return new_tensor<std::int32_t>(use, elements, name);
}

namespace {

/// A function of a shape: name(rows, width, device, dtype) and name((rows, width), device, dtype).
void bind_constant(nb::module_& m, const char* name, double value) {
  const std::string head = "def " + std::string(name), rows = "(rows: int, width: int, ",
                    shape = "(shape: tuple[int, int], ", device = "device: Device | None = None, ",
                    floats = "dtype: Literal['float32'] = 'float32') -> Tensor",
                    integers = "*, dtype: Literal['int32']) -> IntTensor";
  const std::string doc =
      "A new tensor of " + std::string(name) + ": " + name + "(rows, width) or " + name + "((rows, width)).";
  def_with_signatures(
      m, name, {(head + rows + device + floats).c_str(), (head + rows + device + integers).c_str()},
      [value](Index n, Index w, const Device* on, const std::string& type) {
        return full(n, w, value, on, type, "tensor");
      },
      doc.c_str(), "rows"_a, "width"_a, "device"_a = nb::none(), "dtype"_a = "float32");
  def_with_signatures(
      m, name, {(head + shape + device + floats).c_str(), (head + shape + device + integers).c_str()},
      [value](std::pair<Index, Index> of, const Device* on, const std::string& type) {
        return full(of.first, of.second, value, on, type, "tensor");
      },
      doc.c_str(), "shape"_a, "device"_a = nb::none(), "dtype"_a = "float32");
}

}  // namespace

void bind_tensors(nb::module_& m) {
  bind_edit<float>(m, "TensorEdit");
  bind_edit<std::int32_t>(m, "IntTensorEdit");
  bind<float>(
      m,
      "A handle to rows of float32 elements: copies, views and results of pending ops look the same. "
      "Made by windrow.tensor() and by operators. Reading the elements waits for the ops that write them. Operators "
      "give new tensors: `x += y` is `x = x + y`, so other names of x keep the old tensor; for a view of a part, it "
      "raises MisuseError. set() and edit() change a tensor in place, with all its views.");
  bind<std::int32_t>(m, "Rows of int32 elements, for indices such as labels and rows of a table. See Tensor.");
  def_with_signatures(
      m, "empty",
      {"def empty(rows: int, width: int, device: Device | None = None, dtype: Literal['float32'] = 'float32', "
       "name: str = 'tensor') -> Tensor",
       "def empty(rows: int, width: int, device: Device | None = None, *, dtype: Literal['int32'], "
       "name: str = 'tensor') -> IntTensor"},
      &empty, "A new tensor that no op has written yet. The first op that writes it allocates its memory.", "rows"_a,
      "width"_a, "device"_a = nb::none(), "dtype"_a = "float32", "name"_a = "tensor");
  def_with_signatures(m, "full",
                      {"def full(rows: int, width: int, value: float, device: Device | None = None, "
                       "dtype: Literal['float32'] = 'float32', name: str = 'tensor') -> Tensor",
                       "def full(rows: int, width: int, value: float, device: Device | None = None, *, "
                       "dtype: Literal['int32'], name: str = 'tensor') -> IntTensor"},
                      &full, "A new tensor whose elements all have one value.", "rows"_a, "width"_a, "value"_a,
                      "device"_a = nb::none(), "dtype"_a = "float32", "name"_a = "tensor");
  def_with_signatures(
      m, "full",
      {"def full(shape: tuple[int, int], value: float, device: Device | None = None, "
       "dtype: Literal['float32'] = 'float32', name: str = 'tensor') -> Tensor",
       "def full(shape: tuple[int, int], value: float, device: Device | None = None, *, "
       "dtype: Literal['int32'], name: str = 'tensor') -> IntTensor"},
      [](std::pair<Index, Index> of, double value, const Device* device, const std::string& type,
         const std::string& name) { return full(of.first, of.second, value, device, type, name); },
      "A new tensor whose elements all have one value.", "shape"_a, "value"_a, "device"_a = nb::none(),
      "dtype"_a = "float32", "name"_a = "tensor");
  for (const auto& [name, value] : {std::pair("zeros", 0.0), std::pair("ones", 1.0)}) bind_constant(m, name, value);
  def_with_signatures(
      m, "tensor",
      {"def tensor(data: FloatArray, device: Device | None = None, name: str = 'tensor', *, "
       "dtype: Literal['', 'float32'] = '') -> Tensor",
       "def tensor(data: Integers, device: Device | None = None, name: str = 'tensor', *, "
       "dtype: Literal['', 'int32'] = '') -> IntTensor",
       "def tensor(data: Floats, device: Device | None = None, name: str = 'tensor', *, "
       "dtype: Literal['', 'float32'] = '') -> Tensor",
       "def tensor(data: ArrayLike, device: Device | None = None, name: str = 'tensor', *, "
       "dtype: Literal['float32']) -> Tensor",
       "def tensor(data: ArrayLike, device: Device | None = None, name: str = 'tensor', *, "
       "dtype: Literal['int32']) -> IntTensor",
       "def tensor(data: ArrayLike, device: Device | None = None, name: str = 'tensor', *, "
       "dtype: Literal[''] = '') -> Tensor | IntTensor"},
      &tensor_of,
      "A new tensor with a copy of the data: a number (1 x 1), a list of numbers (1 x n), a list of rows, or an array "
      "of at most two dimensions with DLPack, the buffer protocol or NumPy's array interface. Floats give a Tensor; "
      "integers and bools an IntTensor, unless dtype is 'float32'. Raises MisuseError for more dimensions, rows of "
      "different lengths, and integers beyond int32.",
      "data"_a, "device"_a = nb::none(), "name"_a = "tensor", nb::kw_only(), "dtype"_a = "");
}

}  // namespace windrow::python
