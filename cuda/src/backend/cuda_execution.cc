#include "backend/cuda_execution.h"

#include <algorithm>
#include <limits>

namespace windrow::cuda {
namespace {

/// Appends lists of rows to the words of a minibatch. Their numbers are elements from data().
class ListPacker {
 public:
  ListPacker(const Plan& plan, const Packing& to) : plan_(plan), to_(to), layout_(to.layout), words_(to.packed.words) {}

  /// Begin and end for each row of the type, counted from the list's beginning; then the elements at which the slots of
  /// its consumers begin. Returns where the list begins.
  std::size_t append(std::size_t type, const RowList& list) {
    const TypeRows& rows = layout_.types[type];
    const std::size_t begin = words_.size();
    words_.resize(begin + 2 * static_cast<std::size_t>(rows.rows));
    const auto note = [&](const Slot& slot) {
      if (slot.row < 0) return;
      const TypePlan& consumer = plan_.types[slot.type];
      const ChildSlots& slots = (list.of == RowList::Of::slots ? consumer.states : consumer.gradients)[list.state];
      if (!slots.any() || slots.column[slot.child] < 0) return;
      const Index element = to_.offsets[consumer.first_region + slots.region] +
                            slot.row * consumer.regions[slots.region].stride + slots.column[slot.child];
      if (element > std::numeric_limits<std::int32_t>::max()) {
        throw Error("a minibatch of more than 2^31 elements on a CUDA device; expected a smaller one");
      }
      words_.push_back(static_cast<std::int32_t>(element));
    };
    const auto here = [&] { return static_cast<std::int32_t>(words_.size() - begin); };
    auto more = rows.further.begin();
    for (Index r = 0; r < rows.rows; ++r) {
      const auto at = begin + 2 * static_cast<std::size_t>(r);
      words_[at] = here();
      note(layout_.slot(type, r));
      for (; more != rows.further.end() && more->row == r; ++more) note(more->slot);
      words_[at + 1] = here();
    }
    return begin;
  }

 private:
  const Plan& plan_;
  const Packing& to_;
  const Layout& layout_;
  PackedLayout::Words& words_;
};

}  // namespace

std::shared_ptr<CudaExecution> CudaExecution::make(const Device& device, std::shared_ptr<const Plan> plan,
                                                   std::shared_ptr<const CudaPlan> cuda, Layout layout,
                                                   std::vector<Tensor> tensors, Options options) {
  const auto lists = std::make_shared<ListBegins>();
  More more{.locals = cuda->fused.locals};
  more.gathers = cuda->code == nullptr;
  more.pack = [&plan, &cuda, &lists](const Packing& to) {
    ListPacker packer(*plan, to);
    for (std::size_t t = 0; t < plan->types.size(); ++t) {
      lists->emplace_back();
      if (to.layout.types[t].rows == 0) continue;
      for (const RowList& list : cuda->fused.lists[t]) lists->back().push_back(packer.append(t, list));
    }
  };
  return std::shared_ptr<CudaExecution>(
      new CudaExecution(device, plan, cuda, std::move(layout), std::move(tensors), std::move(options), more, lists));
}

CudaExecution::CudaExecution(const Device& device, std::shared_ptr<const Plan> plan,
                             std::shared_ptr<const CudaPlan> cuda, Layout layout, std::vector<Tensor> tensors,
                             Options options, const More& more, std::shared_ptr<const ListBegins> lists)
    : Interpretation(device, std::move(plan), std::move(layout), std::move(tensors), std::move(options), more),
      cuda_(std::move(cuda)),
      lists_(std::move(lists)) {}

void CudaExecution::run(const Segment& segment, const At& at) {
  for (const Part& part : cuda_->fused.parts.at(&segment)) {
    switch (part.does) {
      case Part::Does::fused:
        run_fused(cuda_->fused.kernels[part.number], cuda_->code->function(part.number), at);
        break;
      case Part::Does::step:
        Interpretation::run(segment.steps[part.first], at);
        break;
      case Part::Does::products:
        run_products(segment, part, at);
        break;
    }
  }
}

/// The struct that Printer declares for the kernel.
void CudaExecution::run_fused(const FusedKernel& kernel, Function* function, const At& at) const {
  const Index rows = at.rows.end - at.rows.begin;
  std::vector<std::uint64_t> arguments = {static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(at.rows.begin),
                                          static_cast<std::uint64_t>(elements()),
                                          reinterpret_cast<std::uint64_t>(data()),
                                          reinterpret_cast<std::uint64_t>(word(0))};
  for (const Place& place : kernel.places) {
    const Matrix<const float> matrix = operand(place, at);
    arguments.push_back(reinterpret_cast<std::uint64_t>(matrix.data));
    arguments.push_back(static_cast<std::uint64_t>(matrix.stride));
  }
  if (kernel.places.empty()) arguments.resize(arguments.size() + 2);
  for (const std::size_t list : kernel.lists) arguments.push_back((*lists_)[at.type][list]);
  if (kernel.lists.empty()) arguments.emplace_back();
  CudaLane& lane = CudaLane::of(at.lane, kernel.name);
  lane.issue(kernel.name.c_str(), [&] {
    return lane.hardware().cuda().launch(lane.queue(), function, rows * kernel.width, arguments.data());
  });
}

void CudaExecution::run_products(const Segment& segment, const Part& part, const At& at) {
  const Step& one = segment.steps[part.first];
  const Step& two = segment.steps[part.first + 1];
  Products products{.x = operand(one.in[0], at),
                    .y = operand(one.in[1], at),
                    .out = place(one.out, at),
                    .add = one.write == Write::add,
                    .count = 2};
  const Matrix<const float> x = operand(two.in[0], at);
  const Matrix<float> out = place(two.out, at);
  if (x.stride != products.x.stride || out.stride != products.out.stride) {
    for (std::size_t i = part.first; i < part.last; ++i) Interpretation::run(segment.steps[i], at);
    return;
  }
  products.x_step = x.data - products.x.data;
  products.out_step = out.data - products.out.data;
  CudaLane& lane = CudaLane::of(at.lane, "products");
  lane.issue("products", [&] { return lane.hardware().cuda().multiply(lane.queue(), &products); });
}

}  // namespace windrow::cuda
