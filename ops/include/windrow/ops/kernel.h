// Kernels, which compute operators on one kind of device, and the table in which they are found.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "windrow/memory/allocator.h"
#include "windrow/ops/operator.h"

namespace windrow {

/// How a kernel treats the old elements of the result.
enum class Write {
  overwrite,  ///< replaces them without reading them
  add,        ///< adds the result to them
};

/// One application of an operator. The shapes satisfy the operator's rule. The result overlaps no operand, except that
/// the result of an elementwise operator may be one of its operands. States overlap nothing else.
template <class Real>
struct KernelCall {
  std::span<const Matrix<const Real>> in = {};
  std::span<const Matrix<const std::int32_t>> indices = {};
  Matrix<Real> out;
  Attributes attributes = {};
  Write write = Write::overwrite;
  /// The operator, for functions that compute several.
  const Operator* op = nullptr;
  /// The ordered lane of the device on which the work is to be issued; null on the host.
  Lane* lane = nullptr;
  /// Operator::states matrices of the result's shape.
  std::span<const Matrix<Real>> states = {};
  /// Device memory of the size that the kernel has requested.
  std::byte* workspace = nullptr;
};

/// The functions that compute an operator on one kind of device. A value.
///
/// On the host a kernel runs on the calling thread, and throws MisuseError for an index out of range; the result is
/// then undefined. On a device it issues the work on the call's lane and returns; it must not use the spans of the call
/// after that, but the memory behind them stays valid. It throws Error if the work cannot be issued. It accesses
/// nothing outside its operands, whatever the indices are: a row of the result with an index out of range becomes NaN,
/// and a row to scatter is left out.
template <class Real>
struct Kernel {
  using Run = void (*)(const KernelCall<Real>& call);
  /// Returns the size of the workspace in bytes. Sees shapes and attributes; pointers to elements are null.
  using Workspace = std::size_t (*)(const KernelCall<Real>& call);
  /// Computes calls of one operator at once, none of which reads what another one writes. Calls may add to the result
  /// of an earlier one, if the operator sums rows.
  using RunEach = void (*)(std::span<const KernelCall<Real>> calls);

  Kernel() = default;
  Kernel(Run function, Workspace bytes = nullptr) : run(function), workspace(bytes) {}
  template <std::convertible_to<Run> Lambda>
  Kernel(Lambda function, Workspace bytes = nullptr) : run(function), workspace(bytes) {}

  explicit operator bool() const { return run != nullptr; }
  friend bool operator==(const Kernel&, const Kernel&) = default;
  /// For kernels without a workspace.
  void operator()(const KernelCall<Real>& call) const { run(call); }
  /// Runs or issues the kernel, with a workspace from the device's memory if it asks for one. Works on any ordered lane
  /// of the device. Throws OutOfMemory.
  void operator()(const KernelCall<Real>& call, Allocator& memory) const {
    if (workspace == nullptr) return run(call);
    run_with_workspace(call, memory);
  }
  /// The same for several calls on one lane, at once if the kernel can.
  void each(std::span<KernelCall<Real>> calls, Allocator& memory) const;

  Run run = nullptr;
  Workspace workspace = nullptr;
  RunEach run_each = nullptr;  ///< null if several calls gain nothing by it

 private:
  void run_with_workspace(const KernelCall<Real>& call, Allocator& memory) const;
  std::size_t workspace_bytes(const KernelCall<Real>& call) const;
  template <class Use>
  static void with_workspace(Lane* lane, std::size_t bytes, Allocator& memory, const Use& use);
};

extern template struct Kernel<float>;
extern template struct Kernel<double>;

/// Maps operators, by name, to kernels. A value; a copy costs no more than a shared pointer. Threads: find() may be
/// called from any thread while no thread calls add().
template <class Real>
class KernelTable {
 public:
  /// Adds or replaces the operator's kernel. Throws MisuseError for an empty kernel.
  void add(const Operator& op, Kernel<Real> kernel);
  /// Throws MisuseError if there is no kernel, or if it was added for a different number of operands.
  Kernel<Real> find(const Operator& op) const;
  /// The operator of that name for which a kernel was added last; null if there is none.
  const Operator* named(std::string_view name) const;

 private:
  struct Entry {
    OpName op;
    const Operator* of;
    Kernel<Real> kernel;
    std::size_t inputs, index_inputs;
  };
  using Entries = std::vector<Entry>;  // ascending by name
  static typename Entries::const_iterator place_of(const Entries& entries, std::string_view name);

  std::shared_ptr<const Entries> kernels_;  // null if there are none; shared by copies, so add() replaces it
};

extern template class KernelTable<float>;
extern template class KernelTable<double>;

/// The host's kernels for all operators of operators.h, with oneDNN, Highway and plain loops. Each kernel uses one
/// thread.
const KernelTable<float>& host_kernels();

/// The reference kernels: simple, slow oracles of all kernels, in double precision, without any library.
const KernelTable<double>& reference_kernels();

// Evaluates operators without an engine, in double precision: for test oracles and for gradient checks.

/// One application: the shapes, whose row counts must be numbers, and the operands' elements in row-major order.
struct Application {
  Signature signature = {};
  std::vector<std::vector<double>> in = {};
  std::vector<std::vector<std::int32_t>> indices = {};
};

/// The result in row-major order, added to `before` if that is given; both followed by the elements of the operator's
/// states, if it has some. Throws MisuseError if operands do not fit, or if there is no kernel for `op`.
std::vector<double> evaluate(const KernelTable<double>& kernels, const Operator& op, const Application& application,
                             std::optional<std::vector<double>> before = std::nullopt);

/// Compares op's gradients with central differences at the application's operands. The differentiated value is the sum
/// of the result's elements with weights 1, -1/2, 1/3, ... Returns the largest |gradient - difference| / (1 +
/// |difference|) over all elements of all operands. A correct rule gives about 1e-8; at kinks and ties the error is
/// arbitrary. Returns infinity if a gradient has the wrong shape or is NaN. Costs two evaluations per element. Throws
/// MisuseError if `op` has no gradient.
double gradient_error(const KernelTable<double>& kernels, const Operator& op, const Application& application);

}  // namespace windrow
