// Kernels, which compute operators on one kind of device, and the table in which they are found.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "windrow/ops/operator.h"

namespace windrow {

/// What a kernel does with the old elements of the result.
enum class Write {
  overwrite,  ///< replaces them without reading them
  add,        ///< adds the result to them
};

/// One application of an operator. The shapes satisfy the operator's rule. The result overlaps no operand; but the
/// result of an elementwise operator may be one of its operands.
template <class Real>
struct KernelCall {
  std::span<const Matrix<const Real>> in = {};
  std::span<const Matrix<const std::int32_t>> indices = {};
  Matrix<Real> out;
  Attributes attributes = {};
  Write write = Write::overwrite;
};

/// A kernel runs on the calling thread. It throws MisuseError for an index out of range; the result is then undefined.
template <class Real>
using Kernel = void (*)(const KernelCall<Real>& call);

/// Maps operators, by name, to kernels. A value; a copy costs no more than a shared pointer. Threads: find() may be
/// called from any thread while no thread calls add().
template <class Real>
class KernelTable {
 public:
  /// Adds or replaces the operator's kernel. Throws MisuseError for a null kernel.
  void add(const Operator& op, Kernel<Real> kernel);
  /// Throws MisuseError if there is no kernel, or if it was added for a different number of operands.
  Kernel<Real> find(const Operator& op) const;

 private:
  struct Entry {
    OpName op;
    Kernel<Real> kernel;
    std::size_t inputs, index_inputs;
  };
  using Entries = std::vector<Entry>;  // ascending by name
  static typename Entries::const_iterator place_of(const Entries& entries, OpName op);

  std::shared_ptr<const Entries> kernels_;  // null if there are none; shared by copies, so add() replaces it
};

extern template class KernelTable<float>;
extern template class KernelTable<double>;

/// The host's kernels for all operators of operators.h, with oneDNN, Highway and plain loops. Each kernel uses one
/// thread.
const KernelTable<float>& host_kernels();

/// The reference kernels: simple, slow oracles of all kernels, in double precision, without any library.
const KernelTable<double>& reference_kernels();

}  // namespace windrow
