// Devices and tensors, for the bindings that take or return them. Start here, then read tensor.cc and operators.h.
//
// Python's Tensor, IntTensor and Device are the handles of the same names in C++: bindings take and return them as they
// are. A tensor does not know its device, so a call finds it by InUse.
#pragma once
#include <optional>

#include "python.h"
#include "windrow/batching/expression_operators.h"
#include "windrow/ops/apply.h"
#include "windrow/ops/tensor.h"

namespace windrow::python {

/// The engine and the device of one call. If another thread closes the engine meanwhile, it ends when the call has
/// ended. Constructor and destructor need the GIL. Throws MisuseError if the engine is closed.
class InUse {
 public:
  /// The device whose memory contains the tensor.
  explicit InUse(const Tensor& tensor) : InUse(tensor.engine(), tensor.lane()) {}
  explicit InUse(const IntTensor& tensor) : InUse(tensor.engine(), tensor.lane()) {}
  /// The given device; for null, the host of default_engine().
  explicit InUse(const Device* device);

  const Device& device() const { return *device_; }
  Engine& engine() const { return *engine_; }

 private:
  InUse(const Engine& engine, LaneId lane);

  std::shared_ptr<Engine> engine_;
  const Device* device_;  // one of the engine's, or `given_`
  std::shared_ptr<const Device> given_ = {};
};

/// The host of an engine: made by the first call.
const Device& host_of(const EngineObject& engine);

/// The signature of an __exit__() that suppresses no exception.
constexpr const char* signature_of_exit =
    "def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, "
    "traceback: TracebackType | None, /) -> None";

/// A new tensor of the shape and elements of `data`: nested lists, numbers, or an array. `type` is "float32", "int32",
/// or empty, for the one that suits the data. Copies. Throws MisuseError for more than two dimensions and for numbers
/// beyond int32, TypeError for other objects.
nb::object tensor_of(const nb::object& data, const Device* device, const std::string& name, const std::string& type);

/// Waits for the earlier ops that change the variable, or with mutate, for all that use it.
void wait_for(const InUse& use, Var var, AccessKind kind);

/// The elements of a tensor in the host's memory.
template <class T>
struct Viewed {
  TensorOf<T> tensor;  // keeps the memory
  Matrix<T> elements;
  bool read_only;
};
/// Views the elements. Waits for the earlier ops that write the tensor or, unless `kind` is read, for all earlier ops
/// on it; does not wait in an op that declares an access to the tensor. Unless `kind` is read, the elements may be
/// written, and are zeros if no op has written them. Throws OpError if an earlier op failed. Throws MisuseError for
/// reading elements that were never written, and for writing in an op that declares only a read.
template <class T>
Viewed<T> viewed_for(const TensorOf<T>& tensor, AccessKind kind);

/// A copy of the elements that earlier ops write, with contiguous rows in the host's memory. Waits for it.
template <class T>
TensorOf<T> copy_of(const TensorOf<T>& tensor);

/// Defines the methods for DLPack.
template <class T>
void bind_exchange(nb::class_<TensorOf<T>>& tensor);

class Array;

/// For the operators of expression_operators.h, applied to tensors: by the innermost active Tape, or else by apply() of
/// apply.h. Elementwise operators broadcast operands of one row, one column, or both.
struct ArrayTypes {
  using Result = Tensor;
  using Value = Array;
  using Input = Array;
  using Indices = IntTensor;
  static Tensor apply(const Operator& op, const Array& x, std::initializer_list<Array> in,
                      std::initializer_list<IntTensor> indices = {}, const Attributes& attributes = {});
  static Tensor elementwise(const Operator& op, const Array& x, const Array& y);
  static Tensor dropout(const Array& x, const Dropout& how);
  static Index width(const Array& x);
};

/// A tensor as an operand, for the duration of a call.
class Array : ExpressionOperators<ArrayTypes> {
 public:
  Array(const Tensor& tensor) : tensor_(&tensor) {}
  const Tensor& tensor() const { return *tensor_; }

 private:
  const Tensor* tensor_;
};

/// Applies any operator to tensors, as ArrayTypes does. There must be an operand.
Tensor apply_to_tensors(const Operator& op, const Operands& operands);

}  // namespace windrow::python

namespace nanobind::detail {

template <>
struct type_caster<windrow::python::Array> {
  static constexpr auto Name = const_name("windrow.Tensor");
  template <class T>
  using Cast = windrow::python::Array;
  template <class T>
  static constexpr bool can_cast() {
    return true;
  }
  bool from_python(handle from, std::uint32_t flags, cleanup_list* cleanup) noexcept {
    return tensor.from_python(from, flags, cleanup) && static_cast<windrow::Tensor*>(tensor) != nullptr;
  }
  explicit operator windrow::python::Array() { return *static_cast<windrow::Tensor*>(tensor); }

  make_caster<windrow::Tensor> tensor;
};

}  // namespace nanobind::detail
