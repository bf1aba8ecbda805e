#include "kernels.h"

#include <string>
#include <unordered_map>

#include "lane.h"
#include "windrow/ops/operators.h"

namespace windrow::cuda {
namespace {

/// Operators of operators.h have a kernel each.
const KernelEntry& entry_of(const Operator& op) {
  static const auto entries = [] {
    std::unordered_map<const Operator*, const KernelEntry*> made;
    for (const Operator* one : op::all()) made.emplace(one, plugin().kernel(std::string(one->name.text()).c_str()));
    return made;
  }();
  const auto found = entries.find(&op);
  if (found == entries.end() || found->second == nullptr) {
    throw MisuseError(std::string(op.name.text()) + ": no kernel for CUDA devices");
  }
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
