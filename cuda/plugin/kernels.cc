// The table of kernels.
#include "kernels.h"

#include <cstring>

namespace windrow::cuda {
namespace kernel {

#define WINDROW_ELEMENTWISE(op, inputs, ...) Run op;
#define WINDROW_UPDATE(op, inputs, ...) Run op;
#include "elementwise_formulas.h"
#undef WINDROW_ELEMENTWISE
#undef WINDROW_UPDATE

}  // namespace kernel

namespace {

constexpr KernelEntry kernels[] = {
#define WINDROW_ELEMENTWISE(op, inputs, ...) {#op, kernel::op, nullptr},
#define WINDROW_UPDATE(op, inputs, ...) {#op, kernel::op, nullptr},
#include "elementwise_formulas.h"
#undef WINDROW_ELEMENTWISE
#undef WINDROW_UPDATE
#define WINDROW_ENTRY(op) {#op, kernel::op, nullptr},
#define WINDROW_ENTRY_WITH(op, workspace) {#op, kernel::op, kernel::workspace},
    WINDROW_KERNELS(WINDROW_ENTRY, WINDROW_ENTRY_WITH)
#undef WINDROW_ENTRY
#undef WINDROW_ENTRY_WITH
    // The same kernel by another name.
    {"embedding", kernel::gather_rows, nullptr},
};

}  // namespace

const KernelEntry* find_kernel(const char* op) {
  for (const KernelEntry& entry : kernels) {
    if (std::strcmp(entry.op, op) == 0) return &entry;
  }
  return nullptr;
}

}  // namespace windrow::cuda
