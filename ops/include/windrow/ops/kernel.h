// Kernels: what computes an operator on one kind of device, and the table in which they are found.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "windrow/ops/operator.h"

namespace windrow {

/// What becomes of the elements that were in the result before.
enum class Write {
  overwrite,  ///< they are not looked at
  add,        ///< the result is added to them
};

/// One application of an operator. Shapes fit the operator's rule. The result overlaps no operand, except that of an
/// elementwise operator, which may be one of them.
template <class Real>
struct KernelCall {
  std::span<const Matrix<const Real>> in = {};
  std::span<const Matrix<const std::int32_t>> indices = {};
  Matrix<Real> out;
  Attributes attributes = {};
  Write write = Write::overwrite;
};

/// Runs on the calling thread. Throws MisuseError for an index out of range, having written anything or nothing.
template <class Real>
using Kernel = void (*)(const KernelCall<Real>& call);

/// Which kernel computes which operator, by the operator's name. A value; a copy costs no more than a shared pointer.
/// Threads: find() from any thread while nobody adds.
template <class Real>
class KernelTable {
 public:
  /// Replaces the kernel that was there. Throws MisuseError for a null kernel.
  void add(const Operator& op, Kernel<Real> kernel);
  /// Throws MisuseError if there is none, or one for another number of operands.
  Kernel<Real> find(const Operator& op) const;

 private:
  struct Entry {
    OpName op;
    Kernel<Real> kernel;
    std::size_t inputs, index_inputs;
  };
  using Entries = std::vector<Entry>;  // ascending by name
  static typename Entries::const_iterator place_of(const Entries& entries, OpName op);

  std::shared_ptr<const Entries> kernels_;  // null for none; shared by copies, so that add() makes another one
};

extern template class KernelTable<float>;
extern template class KernelTable<double>;

/// For the host: every operator of operators.h, by oneDNN, Highway and plain loops. Each kernel uses one thread.
const KernelTable<float>& host_kernels();

/// The slow and obvious oracle of every kernel, in double precision, without any library.
const KernelTable<double>& reference_kernels();

}  // namespace windrow
