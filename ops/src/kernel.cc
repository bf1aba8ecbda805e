#include "windrow/ops/kernel.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <string>

#include "workspaces.h"

namespace windrow {
namespace {

/// The shapes of a call, without elements.
template <class T>
std::vector<Matrix<T>> shapes_of(std::span<const Matrix<T>> matrices) {
  std::vector<Matrix<T>> shapes(matrices.begin(), matrices.end());
  for (Matrix<T>& shape : shapes) shape.data = nullptr;
  return shapes;
}

}  // namespace

/// On a device, the lane that orders the memory runs later uses of the workspace after the kernel, so the workspace is
/// freed as soon as the kernel is issued. A kernel on another lane gets a workspace that only this lane uses.
template <class Real>
void Kernel<Real>::run_with_workspace(const KernelCall<Real>& call, Allocator& memory) const {
  const auto in = shapes_of(call.in);
  const auto indices = shapes_of(call.indices);
  const auto states = shapes_of(call.states);
  KernelCall<Real> shapes = call;
  shapes.in = in;
  shapes.indices = indices;
  shapes.states = states;
  shapes.out.data = nullptr;
  const std::size_t bytes = workspace(shapes);
  KernelCall<Real> whole = call;
  whole.workspace = call.lane == nullptr ? nullptr : memory.workspace_beside(call.lane, bytes);
  if (whole.workspace != nullptr) return run(whole);
  if (KeptWorkspaces* const kept = KeepWorkspaces::here()) {
    whole.workspace = kept->add(memory, bytes);
    return run(whole);
  }
  const auto free = [&](std::byte* start) { memory.deallocate(start, bytes); };
  const std::unique_ptr<std::byte, decltype(free)> held(memory.allocate(bytes), free);
  whole.workspace = held.get();
  run(whole);
}

/// The position of the operator's entry, or the position at which to insert it.
template <class Real>
auto KernelTable<Real>::place_of(const Entries& entries, std::string_view name) -> typename Entries::const_iterator {
  return std::ranges::lower_bound(entries, name, {}, [](const Entry& entry) { return entry.op.text(); });
}

template <class Real>
void KernelTable<Real>::add(const Operator& op, Kernel<Real> kernel) {
  if (!kernel) {
    throw MisuseError("operator '" + std::string(op.name.text()) + "': a null kernel; expected a function");
  }
  Entries entries = kernels_ ? *kernels_ : Entries();
  const auto place = entries.begin() + (place_of(entries, op.name.text()) - entries.cbegin());
  const Entry made{op.name, &op, kernel, op.inputs, op.index_inputs};
  if (place != entries.end() && place->op.text() == op.name.text()) {
    *place = made;
  } else {
    entries.insert(place, made);
  }
  kernels_ = std::make_shared<const Entries>(std::move(entries));
}

template <class Real>
Kernel<Real> KernelTable<Real>::find(const Operator& op) const {
  // Where operators were found last. Programs use mostly one table, so a look is enough; any thread may replace it.
  static std::array<std::atomic<std::uint32_t>, 64> places{};
  if (kernels_) {
    std::atomic<std::uint32_t>& seen = places[reinterpret_cast<std::uintptr_t>(&op) / sizeof(Operator) % places.size()];
    const Entries& entries = *kernels_;
    std::uint32_t last = seen.load(std::memory_order_relaxed);
    if (last >= entries.size() || entries[last].of != &op) {
      last = static_cast<std::uint32_t>(place_of(entries, op.name.text()) - entries.begin());
      seen.store(last, std::memory_order_relaxed);
    }
    const auto place = entries.begin() + last;
    const bool known = place != entries.end() && (place->of == &op || place->op.text() == op.name.text());
    if (known && place->inputs == op.inputs && place->index_inputs == op.index_inputs) return place->kernel;
  }
  throw MisuseError("operator '" + std::string(op.name.text()) +
                    "' has no kernel in this table; expected one added with KernelTable::add");
}

template <class Real>
const Operator* KernelTable<Real>::named(std::string_view name) const {
  if (!kernels_) return nullptr;
  const auto place = place_of(*kernels_, name);
  return place != kernels_->end() && place->op.text() == name ? place->of : nullptr;
}

template struct Kernel<float>;
template struct Kernel<double>;
template class KernelTable<float>;
template class KernelTable<double>;

}  // namespace windrow
