#include "windrow/ops/kernel.h"

namespace windrow {

template <class Real>
Kernel<Real> KernelTable<Real>::find(const Operator& op) const {
  const auto found = kernels_.find(op.name.text());
  if (found == kernels_.end()) {
    throw MisuseError("operator '" + std::string(op.name.text()) +
                      "' has no kernel in this table; expected one added with KernelTable::add");
  }
  return found->second;
}

template class KernelTable<float>;
template class KernelTable<double>;

}  // namespace windrow
