// Exchange of tensors with other libraries without copies, by DLPack 1.1 (https://dmlc.github.io/dlpack).
//
//   Out  A view of a tensor's memory, which keeps the memory alive, also after the end of the engine.
//   In   A tensor wraps the memory of an array, and releases it after its last op. Arrays of other layouts and types,
//        and read-only arrays, are copied.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "ops/arrays.h"
#include "windrow/memory/allocator.h"

namespace windrow::python {
namespace {

// The binary interface of DLPack beyond what nanobind declares.

struct Managed {
  nb::dlpack::dltensor tensor;
  void* context;
  void (*deleter)(Managed* self);
};
struct ManagedVersioned {
  struct {
    std::uint32_t major, minor;
  } version;
  void* context;
  void (*deleter)(ManagedVersioned* self);
  std::uint64_t flags;
  nb::dlpack::dltensor tensor;
};
constexpr std::uint64_t read_only_flag = 1, copied_flag = 2;
template <class M>
constexpr const char* capsule_name = std::is_same_v<M, Managed> ? "dltensor" : "dltensor_versioned";

using DeviceOfArray = std::pair<int, int>;
constexpr int cpu = nb::device::cpu::value, pinned = nb::device::cuda_host::value;

nb::object buffer_error(const std::string& text) {
  return nb::steal(PyObject_CallFunction(PyExc_BufferError, "s", text.c_str()));
}
[[noreturn]] void raise_buffer_error(const std::string& text) {
  PyErr_SetObject(PyExc_BufferError, buffer_error(text).ptr());
  throw nb::python_error();
}

// Out.

/// A managed tensor with what it points to.
template <class M>
struct Exported {
  M managed;
  std::array<std::int64_t, 2> shape, strides;
  std::shared_ptr<Buffer> buffer;

  /// Any thread may call it.
  static void end(M* managed) {
    const std::unique_ptr<Exported> self(static_cast<Exported*>(managed->context));
    if (Py_IsInitialized() == 0) return;
    // No engine ends while this thread has the GIL.
    const nb::gil_scoped_acquire with_gil;
    self->buffer.reset();
  }
  /// The capsule's destructor: ends the tensor if no library has taken it from the capsule.
  static void end_capsule(PyObject* capsule) {
    if (PyCapsule_IsValid(capsule, capsule_name<M>) == 0) return;
    end(static_cast<M*>(PyCapsule_GetPointer(capsule, capsule_name<M>)));
  }
};

template <class M, class T>
nb::object capsule_of(const Viewed<T>& viewed, std::uint64_t flags) {
  const Matrix<T>& of = viewed.elements;
  auto made =
      std::make_unique<Exported<M>>(Exported<M>{{}, {of.rows, of.width}, {of.stride, 1}, viewed.tensor.buffer()});
  M& managed = made->managed;
  managed.tensor = {.data = of.data,
                    .device = {cpu, 0},
                    .ndim = 2,
                    .dtype = nb::dtype<T>(),
                    .shape = made->shape.data(),
                    .strides = made->strides.data()};
  managed.context = made.get();
  managed.deleter = Exported<M>::end;
  if constexpr (std::is_same_v<M, ManagedVersioned>) {
    managed.version = {nb::dlpack::major_version, nb::dlpack::minor_version};
    managed.flags = flags;
  }
  nb::object capsule = nb::steal(PyCapsule_New(&managed, capsule_name<M>, Exported<M>::end_capsule));
  if (!capsule.is_valid()) throw nb::python_error();
  static_cast<void>(made.release());
  return capsule;
}

template <class T>
nb::object dlpack(const TensorOf<T>& tensor, nb::handle stream, const std::optional<DeviceOfArray>& max_version,
                  const std::optional<DeviceOfArray>& device, std::optional<bool> copy) {
  if (!stream.is_none()) raise_buffer_error("__dlpack__: a stream, of a tensor in the host's memory; expected None");
  if (device && device->first != cpu) {
    raise_buffer_error("__dlpack__: device " + std::to_string(device->first) + "; expected (1, 0), the host");
  }
  const bool copies = copy.value_or(false);
  const Viewed<T> viewed =
      copies ? viewed_for(copy_of(tensor), AccessKind::read) : viewed_for(tensor, AccessKind::read);
  if (max_version && max_version->first >= 1) {
    return capsule_of<ManagedVersioned>(viewed, (viewed.read_only ? read_only_flag : 0) | (copies ? copied_flag : 0));
  }
  if (viewed.read_only) {
    raise_buffer_error("__dlpack__ of a tensor that the op only reads, without flags; expected max_version=(1, 0)");
  }
  return capsule_of<Managed>(viewed, 0);
}

// In.

/// Memory of an array of another library. The first allocation returns this memory; others, for a value that moves
/// away, come from the host's allocator.
class BorrowedMemory : public Allocator {
 public:
  BorrowedMemory(std::byte* start, Kept owner) : start_(start), owner_(std::move(owner)) {}
  std::string_view name() const override { return "borrowed memory"; }
  bool borrowed() const override { return true; }
  std::byte* allocate(std::size_t bytes) override {
    return taken_.exchange(true) ? host_allocator()->allocate(bytes) : start_;
  }
  void deallocate(std::byte* start, std::size_t bytes) noexcept override {
    if (start != start_) host_allocator()->deallocate(start, bytes);
  }

 private:
  std::byte* const start_;
  const Kept owner_;
  std::atomic<bool> taken_ = false;
};

/// A capsule that an array has made for this module. It keeps the array alive until it ends.
struct Imported {
  nb::object capsule;
  nb::dlpack::dltensor tensor = {};
  bool read_only = false;
};

nb::object call_dlpack(nb::handle array) {
  static PyObject* const name = PyUnicode_InternFromString("__dlpack__");
  static auto* const arguments = new nb::dict([] {
    nb::dict with;
    with["max_version"] = nb::make_tuple(nb::dlpack::major_version, nb::dlpack::minor_version);
    return with;
  }());
  static auto* const nothing = new nb::tuple(nb::make_tuple());
  const nb::object method = nb::steal(PyObject_GetAttr(array.ptr(), name));
  if (!method.is_valid()) {
    PyErr_Clear();
    throw nb::type_error(("from_dlpack: a " + std::string(nb::type_name(array.type()).c_str()) +
                          "; expected an array with __dlpack__. windrow.tensor() copies lists and others")
                             .c_str());
  }
  nb::object capsule = nb::steal(PyObject_Call(method.ptr(), nothing->ptr(), arguments->ptr()));
  if (capsule.is_valid()) return capsule;
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
  PyErr_Clear();  // a library from before DLPack 1.0
  capsule = nb::steal(PyObject_CallNoArgs(method.ptr()));
  if (!capsule.is_valid()) throw nb::python_error();
  return capsule;
}

Imported imported(nb::handle array) {
  Imported made{.capsule = call_dlpack(array)};
  if (PyCapsule_IsValid(made.capsule.ptr(), capsule_name<ManagedVersioned>) != 0) {
    const auto* const managed =
        static_cast<const ManagedVersioned*>(PyCapsule_GetPointer(made.capsule.ptr(), capsule_name<ManagedVersioned>));
    if (managed->version.major > nb::dlpack::major_version) {
      raise_buffer_error("from_dlpack: DLPack " + std::to_string(managed->version.major) + "; expected version 1");
    }
    made.tensor = managed->tensor;
    made.read_only = (managed->flags & read_only_flag) != 0;
  } else if (PyCapsule_IsValid(made.capsule.ptr(), capsule_name<Managed>) != 0) {
    made.tensor = static_cast<const Managed*>(PyCapsule_GetPointer(made.capsule.ptr(), capsule_name<Managed>))->tensor;
  } else {
    raise_buffer_error("from_dlpack: __dlpack__() returned no capsule of DLPack");
  }
  const int device = made.tensor.device.device_type;
  if (device != cpu && device != pinned) {
    raise_buffer_error("from_dlpack: an array on device (" + std::to_string(device) + ", " +
                       std::to_string(made.tensor.device.device_id) + "); expected one in the host's memory");
  }
  return made;
}

/// The matrix, if a tensor of T can be a view of it.
template <class T>
std::optional<Matrix<T>> matrix_of(const Imported& from) {
  const nb::dlpack::dltensor& of = from.tensor;
  if (from.read_only || of.ndim > 2 || of.dtype != nb::dtype<T>()) return std::nullopt;
  Matrix<T> matrix{
      .data = reinterpret_cast<T*>(static_cast<std::byte*>(of.data) + of.byte_offset), .rows = 1, .width = 1};
  if (of.ndim > 0) matrix.width = of.shape[of.ndim - 1];
  if (of.ndim == 2) matrix.rows = of.shape[0];
  const bool strided = of.strides != nullptr && of.ndim > 0;
  if (strided && matrix.width > 1 && of.strides[of.ndim - 1] != 1) return std::nullopt;
  matrix.stride = strided && of.ndim == 2 && matrix.rows > 1 ? of.strides[0] : matrix.width;
  if (matrix.stride < matrix.width || matrix.rows == 0 || matrix.width == 0) return std::nullopt;
  if (reinterpret_cast<std::uintptr_t>(matrix.data) % sizeof(T) != 0) return std::nullopt;
  return matrix;
}

template <class T>
nb::object wrapped(const Matrix<T>& elements, Imported from, const InUse& use, const std::string& name) {
  auto* const start = reinterpret_cast<std::byte*>(elements.data);
  const auto bytes = static_cast<std::size_t>(elements.rows * elements.stride) * sizeof(T);
  const auto buffer = std::make_shared<Buffer>(
      use.engine(), std::make_shared<BorrowedMemory>(start, Kept(std::move(from.capsule))), bytes, OpName(name));
  buffer->bytes().write();  // from now on, the tensor counts as written
  return nb::cast(TensorOf<T>(buffer, elements.rows, elements.stride).column_range(0, elements.width));
}

nb::object from_dlpack(const nb::object& array, const Device* device, std::optional<bool> copy,
                       const std::string& name) {
  if (!copy.value_or(false)) {
    const InUse use(device);
    Imported from = imported(array);
    if (const auto floats = matrix_of<float>(from)) return wrapped(*floats, std::move(from), use, name);
    if (const auto integers = matrix_of<std::int32_t>(from)) return wrapped(*integers, std::move(from), use, name);
    if (copy) {
      raise_buffer_error(
          "from_dlpack with copy=False: an array that a tensor cannot share; expected a writable one of float32 or "
          "int32, of at most two dimensions, with contiguous rows");
    }
  }
  return tensor_of(array, device, name, "");
}

}  // namespace

template <class T>
Viewed<T> viewed_for(const TensorOf<T>& tensor, AccessKind kind) {
  const InUse use(tensor);
  const bool writes = kind != AccessKind::read;
  const std::optional<AccessKind> declared = access_here(tensor.var());
  if (!use.device().on_host()) {
    raise_buffer_error("a view of a tensor on device '" + use.device().name + "'; expected one in the host's memory");
  }
  if (!declared) {
    wait_for(use, tensor.var(), writes ? AccessKind::mutate : AccessKind::read);
  } else if (writes && *declared == AccessKind::read) {
    throw MisuseError("edit() of a tensor in an op that only reads it; expected mutate=tensor in its push");
  }
  const auto view = tensor.view();
  if (writes || (declared && *declared != AccessKind::read)) {
    view.bytes().write_cleared();
    return {tensor, view.write(), false};
  }
  const Matrix<const T> elements = view.read();
  return {
      tensor, {const_cast<T*>(elements.data), elements.rows, elements.width, elements.stride}, declared.has_value()};
}

template Viewed<float> viewed_for(const Tensor&, AccessKind);
template Viewed<std::int32_t> viewed_for(const IntTensor&, AccessKind);

template <class T>
void bind_exchange(nb::class_<TensorOf<T>>& tensor) {
  using nb::literals::operator""_a;
  tensor
      .def(
          "__dlpack__", &dlpack<T>, nb::kw_only(), "stream"_a = nb::none(), "max_version"_a = nb::none(),
          "dl_device"_a = nb::none(), "copy"_a = nb::none(),
          nb::sig("def __dlpack__(self, *, stream: None = None, max_version: tuple[int, int] | None = None, "
                  "dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> CapsuleType"),
          "A view of the memory for other libraries: numpy.from_dlpack(x), torch.from_dlpack(x). Waits for the earlier "
          "ops that write the tensor. Accesses through the view are not ordered with later ops: see edit().")
      .def(
          "__dlpack_device__", [](const TensorOf<T>&) { return DeviceOfArray(cpu, 0); }, "(1, 0): the host's memory.");
}

template void bind_exchange(nb::class_<Tensor>&);
template void bind_exchange(nb::class_<IntTensor>&);

void bind_dlpack(nb::module_& m) {
  using nb::literals::operator""_a;
  def_with_signatures(
      m, "from_dlpack",
      {"def from_dlpack(x: FloatArray, *, device: Device | None = None, "
       "copy: bool | None = None, name: str = 'tensor') -> Tensor",
       "def from_dlpack(x: IntArray, *, device: Device | None = None, "
       "copy: bool | None = None, name: str = 'tensor') -> IntTensor",
       "def from_dlpack(x: HasDlpack, *, device: Device | None = None, copy: bool | None = None, "
       "name: str = 'tensor') -> Tensor | IntTensor"},
      &from_dlpack,
      "A tensor that shares the memory of an array of another library, in rows of float32 or int32; the memory is "
      "released after the last op on the tensor. Arrays of other types or layouts, and read-only arrays, are copied, "
      "as by tensor(); with copy=False, they raise BufferError. With copy=True, always copies. Later accesses to the "
      "array are not ordered with ops on the tensor: see Tensor.edit().",
      "x"_a, nb::kw_only(), "device"_a = nb::none(), "copy"_a = nb::none(), "name"_a = "tensor");
}

}  // namespace windrow::python
