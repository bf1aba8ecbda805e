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

template <class Real>
std::size_t Kernel<Real>::workspace_bytes(const KernelCall<Real>& call) const {
  const auto in = shapes_of(call.in);
  const auto indices = shapes_of(call.indices);
  const auto states = shapes_of(call.states);
  KernelCall<Real> shapes = call;
  shapes.in = in;
  shapes.indices = indices;
  shapes.states = states;
  shapes.out.data = nullptr;
  return workspace(shapes);
}

/// On a device, the lane that orders the memory runs later uses of the workspace after the kernel, so the workspace is
/// freed as soon as the kernel is issued. A kernel on another lane gets a workspace that only this lane uses.
template <class Real>
template <class Use>
void Kernel<Real>::with_workspace(Lane* lane, std::size_t bytes, Allocator& memory, const Use& use) {
  std::byte* const beside = lane == nullptr ? nullptr : memory.workspace_beside(lane, bytes);
  if (beside != nullptr) return use(beside);
  if (KeptWorkspaces* const kept = KeepWorkspaces::here()) return use(kept->add(memory, bytes));
  const auto free = [&](std::byte* start) { memory.deallocate(start, bytes); };
  const std::unique_ptr<std::byte, decltype(free)> held(memory.allocate(bytes), free);
  use(held.get());
}

template <class Real>
void Kernel<Real>::run_with_workspace(const KernelCall<Real>& call, Allocator& memory) const {
  with_workspace(call.lane, workspace_bytes(call), memory, [&](std::byte* start) {
    KernelCall<Real> whole = call;
    whole.workspace = start;
    run(whole);
  });
}

template <class Real>
void Kernel<Real>::each(std::span<KernelCall<Real>> calls, Allocator& memory) const {
  if (run_each == nullptr || calls.size() < 2) {
    for (const KernelCall<Real>& call : calls) (*this)(call, memory);
    return;
  }
  if (workspace == nullptr) return run_each(calls);
  std::vector<std::size_t> ends = {0};
  for (const KernelCall<Real>& call : calls) ends.push_back(ends.back() + aligned_size(workspace_bytes(call)));
  with_workspace(calls.front().lane, ends.back(), memory, [&](std::byte* start) {
    for (std::size_t i = 0; i < calls.size(); ++i) calls[i].workspace = start + ends[i];
    run_each(calls);
  });
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
