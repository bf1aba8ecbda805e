#include "windrow/ops/kernel.h"

namespace windrow {

template <class Real>
void KernelTable<Real>::add(const Operator& op, Kernel<Real> kernel) {
  const std::string name(op.name.text());
  if (kernel == nullptr) throw MisuseError("operator '" + name + "': a null kernel; expected a function");
  kernels_.insert_or_assign(name, Entry{kernel, op.inputs, op.index_inputs});
}

template <class Real>
Kernel<Real> KernelTable<Real>::find(const Operator& op) const {
  const auto found = kernels_.find(op.name.text());
  if (found == kernels_.end() || found->second.inputs != op.inputs || found->second.index_inputs != op.index_inputs) {
    throw MisuseError("operator '" + std::string(op.name.text()) +
                      "' has no kernel in this table; expected one added with KernelTable::add");
  }
  return found->second.kernel;
}

template class KernelTable<float>;
template class KernelTable<double>;

}  // namespace windrow
