#include "kernels.h"

#include <string_view>
#include <unordered_map>

#include "lane.h"
#include "windrow/ops/operators.h"

namespace windrow::cuda {
namespace {

const KernelEntry& entry_of(const Operator& op) {
  static const auto entries = [] {
    std::unordered_map<std::string_view, const KernelEntry*> made;
    for (const KernelEntry* entry = plugin().kernels; entry->op != nullptr; ++entry) made.emplace(entry->op, entry);
    return made;
  }();
  const auto found = entries.find(op.name.text());
  if (found == entries.end()) throw MisuseError(std::string(op.name.text()) + ": no kernel for CUDA devices");
  return *found->second;
}

void run(const KernelCall<float>& call) {
  const KernelEntry& entry = entry_of(*call.op);
  CudaLane& lane = CudaLane::of(call.lane, entry.op);
  lane.issue(entry.op, [&] { return entry.run(call, *lane.queue()); });
}

std::size_t workspace(const KernelCall<float>& call) { return entry_of(*call.op).workspace(call); }

}  // namespace

const KernelTable<float>& kernels() {
  static const KernelTable<float> table = [] {
    KernelTable<float> made;
    for (const Operator* op : op::all()) {
      made.add(*op, entry_of(*op).workspace == nullptr ? Kernel<float>(run) : Kernel<float>(run, workspace));
    }
    return made;
  }();
  return table;
}

}  // namespace windrow::cuda
