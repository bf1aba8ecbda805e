// Tensors: their elements from and to Python, and views of their rows and columns.
#include <cstring>

#include "arrays.h"
#include "elements.h"

namespace windrow::python {
namespace {

template <class T>
constexpr const char* type_name = std::is_same_v<T, float> ? "float32" : "int32";
template <class T>
constexpr const char* class_name = std::is_same_v<T, float> ? "Tensor" : "IntTensor";

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
  use.pushing([&] { tensor.set(std::get<std::vector<T>>(std::move(elements.values)), from); });
}

template <class T>
nb::object new_tensor(const InUse& use, Elements& elements, const std::string& name) {
  const TensorOf<T> tensor(use.device(), elements.rows, elements.width, OpName(name));
  const std::source_location from = calling_line();
  use.pushing([&] { tensor.set(std::get<std::vector<T>>(std::move(elements.values)), from); });
  return nb::cast(tensor);
}

/// The elements in row-major order, in the host's memory, once earlier ops have written them.
template <class T>
std::shared_ptr<Buffer> copied(const TensorOf<T>& tensor) {
  const InUse use(tensor);
  const auto count = static_cast<std::size_t>(tensor.rows() * tensor.width());
  const auto copy =
      std::make_shared<Buffer>(use.engine(), tensor.buffer()->memory()->staging(), count * sizeof(T), OpName("values"));
  const std::source_location from = calling_line();
  const auto download = [to = copy->bytes(), view = tensor.view()](OpContext& op) {
    view.download(op.lane(), reinterpret_cast<T*>(to.write_unwatched(op.lane())));
  };
  const Device& device = use.device();
  use.pushing([&] {
    use.engine().push(download, {read(tensor.var()), overwrite(copy->var())},
                      {.name = "get",
                       .lane = device.on_host() ? host_lane : device.copy_out.value_or(device.lane),
                       .pushed_at = from});
  });
  wait_for(use, copy->var(), AccessKind::read, from);
  return copy;
}

template <class T>
nb::object list_of(const TensorOf<T>& tensor) {
  const std::shared_ptr<Buffer> copy = copied(tensor);
  const auto* next = tensor.rows() * tensor.width() > 0 ? reinterpret_cast<const T*>(copy->bytes().read()) : nullptr;
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
  return *reinterpret_cast<const T*>(copied(tensor)->bytes().read());
}

template <class T>
void bind(nb::module_& m, const char* doc) {
  using nb::literals::operator""_a;
  nb::class_<TensorOf<T>>(m, class_name<T>, doc)
      .def_prop_ro("rows", &TensorOf<T>::rows, "The number of rows.")
      .def_prop_ro("width", &TensorOf<T>::width, "The number of columns.")
      .def_prop_ro(
          "shape", [](const TensorOf<T>& t) { return nb::make_tuple(t.rows(), t.width()); }, "(rows, width).")
      .def_prop_ro(
          "ndim", [](const TensorOf<T>&) { return 2; }, "2.")
      .def_prop_ro(
          "dtype", [](const TensorOf<T>&) { return type_name<T>; }, "'float32' or 'int32'.")
      .def_prop_ro(
          "device", [](const TensorOf<T>& t) { return InUse(t).device(); }, "Where the memory lies.")
      .def_prop_ro("var", &TensorOf<T>::var, "The variable that orders the ops on the tensor and all views of it.")
      .def("set", &set<T>, "data"_a, "Pushes an op that writes the elements: data of the same shape, as for tensor().")
      .def("tolist", &list_of<T>, "The elements as a list of rows. Waits for the ops that write them.")
      .def("item", &item<T>, "The element of a tensor of 1 x 1. Waits for the ops that write it.")
      .def("__len__", &TensorOf<T>::rows)
      .def("__repr__",
           [](const TensorOf<T>& t) { return std::string("<windrow.") + class_name<T> + " " + shape_of(t) + ">"; });
}

}  // namespace

void wait_for(const InUse& use, Var var, AccessKind kind, std::source_location from) {
  waiting([&](std::optional<std::chrono::nanoseconds> patience) {
    if (patience) return use.engine().wait_for({{var, kind}}, *patience, from);
    use.engine().wait({{var, kind}}, from);
    return true;
  });
}

nb::object tensor_of(const nb::object& data, const Device* device, const std::string& name, const std::string& type) {
  const InUse use(device);
  Elements elements = elements_of(data, type);
  if (elements.values.index() == 0) return new_tensor<float>(use, elements, name);
  return new_tensor<std::int32_t>(use, elements, name);
}

void bind_tensors(nb::module_& m) {
  using nb::literals::operator""_a;
  bind<float>(m,
              "Rows of float32 elements, as a handle: copies, views and results of ops that are pending look the same. "
              "Made by windrow.tensor() and by operators. Reading the elements waits for the ops that write them.");
  bind<std::int32_t>(m, "Rows of int32 elements, for indices such as labels and rows of a table. See Tensor.");
  m.def(
      "tensor", &tensor_of, "data"_a, "device"_a = nb::none(), "name"_a = "tensor", nb::kw_only(), "dtype"_a = "",
      "A new tensor with a copy of the data: a number (1 x 1), a list of numbers (1 x n), a list of rows, or an array "
      "of at most two dimensions with DLPack, the buffer protocol or NumPy's array interface. Floats give a Tensor; "
      "integers and bools an IntTensor, unless dtype is 'float32'. Raises MisuseError for more dimensions, rows of "
      "different lengths, and integers beyond int32.");
}

}  // namespace windrow::python
