#include "host/host.h"

namespace windrow {

const KernelTable<float>& host_kernels() {
  static const KernelTable<float> table = [] {
    KernelTable<float> made;
    add_host_choices(made);
    add_host_elementwise(made);
    add_host_images(made);
    add_host_linear(made);
    add_host_norm(made);
    add_host_rows(made);
    add_host_rowwise(made);
    add_host_semirings(made);
    add_host_softmax(made);
    add_host_training_steps(made);
    return made;
  }();
  return table;
}

}  // namespace windrow
