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

/// The batches of a phase with rows of types that compute something in it.
MoreWords::Batches append_batches(const Plan& plan, Phase phase, const Packing& to) {
  PackedLayout::Words& words = to.packed.words;
  MoreWords::Batches made{.begin = words.size()};
  words.push_back(0);
  const auto append = [&](const Layout::BatchRows& batch) {
    if (plan.types[batch.type].phases[static_cast<std::size_t>(phase)].empty() || batch.begin == batch.end) return;
    for (const Index word : {Index{batch.type}, batch.begin, batch.end - batch.begin}) {
      words.push_back(static_cast<std::int32_t>(word));
    }
    ++made.count;
  };
  const std::vector<Layout::BatchRows>& batches = to.layout.batches.front();
  if (phase == Phase::level) {
    std::for_each(batches.begin(), batches.end(), append);
  } else {
    std::for_each(batches.rbegin(), batches.rend(), append);
  }
  return made;
}

}  // namespace

/// Whether one kernel for all levels takes less time than launches, by what a launch, a barrier and floating point
/// operations take on an H100. An estimate: it has not been measured.
static bool pays(const LevelsKernel& kernel, const Layout& layout, std::size_t parts) {
  constexpr double launch = 2.2e-6, barrier = 1.5e-6;           // seconds
  constexpr double of_launches = 40e12, of_one_kernel = 20e12;  // floating point operations a second
  double batches = 0, flops = 0;
  for (const Layout::BatchRows& batch : layout.batches.front()) {
    double of_row = 0;
    for (const LevelsKernel::Part& part : kernel.parts) {
      if (part.type == batch.type && part.product != nullptr) of_row += static_cast<double>(part.product->flops_a_row);
    }
    // A kernel has work for 32 rows at a time.
    flops += of_row * static_cast<double>((batch.end - batch.begin + 31) / 32 * 32);
    batches += of_row > 0;
  }
  return batches * (launch * static_cast<double>(parts) - barrier * static_cast<double>(kernel.barriers)) >
         flops * (1 / of_one_kernel - 1 / of_launches);
}

std::shared_ptr<CudaExecution> CudaExecution::make(const Device& device, std::shared_ptr<const Plan> plan,
                                                   std::shared_ptr<const CudaPlan> cuda, Layout layout,
                                                   std::vector<Tensor> tensors, Options options) {
  const auto words = std::make_shared<MoreWords>();
  More more{.locals = cuda->fused.locals};
  more.gathers = cuda->code == nullptr;
  const bool whole = options.batch_rows == std::numeric_limits<Index>::max();
  more.pack = [&](const Packing& to) {
    ListPacker packer(*plan, to);
    for (std::size_t t = 0; t < plan->types.size(); ++t) {
      words->lists.emplace_back();
      if (to.layout.types[t].rows == 0) continue;
      for (const RowList& list : cuda->fused.lists[t]) words->lists.back().push_back(packer.append(t, list));
    }
    for (std::size_t i = 0; i < cuda->fused.levels.size(); ++i) {
      const auto& kernel = cuda->fused.levels[i];
      if (!kernel || !whole) continue;
      if (cuda->levels == Levels::together || pays(*kernel, to.layout, kernel->parts.size())) {
        words->batches[i] = append_batches(*plan, i == 0 ? Phase::level : Phase::back_level, to);
      }
    }
  };
  return std::shared_ptr<CudaExecution>(
      new CudaExecution(device, plan, cuda, std::move(layout), std::move(tensors), std::move(options), more, words));
}

CudaExecution::CudaExecution(const Device& device, std::shared_ptr<const Plan> plan,
                             std::shared_ptr<const CudaPlan> cuda, Layout layout, std::vector<Tensor> tensors,
                             Options options, const More& more, std::shared_ptr<const MoreWords> words)
    : Interpretation(device, std::move(plan), std::move(layout), std::move(tensors), std::move(options), more),
      cuda_(std::move(cuda)),
      words_(std::move(words)) {}

/// The struct that LevelsPrinter declares for the kernel.
void CudaExecution::run_levels(Phase phase, Lane* lane) {
  const std::size_t number = phase == Phase::level ? 0 : 1;
  const MoreWords::Batches& batches = words_->batches[number];
  if (batches.count == 0) return Interpretation::run_levels(phase, lane);
  const LevelsKernel& kernel = *cuda_->fused.levels[number];
  std::vector<std::uint64_t> arguments = {static_cast<std::uint64_t>(elements()),
                                          reinterpret_cast<std::uint64_t>(data()),
                                          reinterpret_cast<std::uint64_t>(word(0)),
                                          reinterpret_cast<std::uint64_t>(word(batches.begin)),
                                          reinterpret_cast<std::uint64_t>(word(batches.begin + 1)),
                                          static_cast<std::uint64_t>(batches.count)};
  for (const LevelsKernel::Part& part : kernel.parts) {
    const At all{part.type, Rate::vertices, {0, layout_.types[part.type].rows}, lane};
    if (part.product == nullptr) {
      add_arguments(cuda_->fused.kernels[part.number], all, arguments);
      continue;
    }
    for (const Place& of : {part.product->in[0], part.product->in[1], part.product->out}) {
      const Matrix<const float> matrix = operand(of, all);
      arguments.push_back(reinterpret_cast<std::uint64_t>(matrix.data));
      arguments.push_back(static_cast<std::uint64_t>(matrix.stride));
    }
  }
  CudaLane& on = CudaLane::of(lane, kernel.name);
  on.issue(kernel.name.c_str(), [&] {
    return on.hardware().cuda().launch_together(on.queue(), cuda_->code->function(cuda_->levels_function[number]),
                                                kernel.teams, kernel.shared_bytes, arguments.data());
  });
}

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
void CudaExecution::add_arguments(const FusedKernel& kernel, const At& at, std::vector<std::uint64_t>& to) const {
  to.push_back(static_cast<std::uint64_t>(at.rows.end - at.rows.begin));
  to.push_back(static_cast<std::uint64_t>(at.rows.begin));
  to.push_back(static_cast<std::uint64_t>(elements()));
  to.push_back(reinterpret_cast<std::uint64_t>(data()));
  to.push_back(reinterpret_cast<std::uint64_t>(word(0)));
  for (const Place& place : kernel.places) {
    const Matrix<const float> matrix = operand(place, at);
    to.push_back(reinterpret_cast<std::uint64_t>(matrix.data));
    to.push_back(static_cast<std::uint64_t>(matrix.stride));
  }
  if (kernel.places.empty()) to.resize(to.size() + 2);
  const bool has_rows = layout_.types[at.type].rows > 0;
  for (const std::size_t list : kernel.lists) to.push_back(has_rows ? words_->lists[at.type][list] : 0);
  if (kernel.lists.empty()) to.emplace_back();
}

void CudaExecution::run_fused(const FusedKernel& kernel, Function* function, const At& at) const {
  std::vector<std::uint64_t> arguments;
  add_arguments(kernel, at, arguments);
  CudaLane& lane = CudaLane::of(at.lane, kernel.name);
  lane.issue(kernel.name.c_str(), [&] {
    return lane.hardware().cuda().launch(lane.queue(), function, (at.rows.end - at.rows.begin) * kernel.width,
                                         arguments.data());
  });
}

void CudaExecution::run_products(const Segment& segment, const Part& part, const At& at) {
  const Step& one = segment.steps[part.first];
  const Step& two = segment.steps[part.first + 1];
  const Matrix<const float> x = operand(one.in[0], at), further_x = operand(two.in[0], at);
  const Matrix<float> out = place(one.out, at), further_out = place(two.out, at);
  if (further_x.stride != x.stride || further_out.stride != out.stride) {
    for (std::size_t i = part.first; i < part.last; ++i) Interpretation::run(segment.steps[i], at);
    return;
  }
  const Products products{.x = x,
                          .y = operand(one.in[1], at),
                          .out = out,
                          .add = one.write == Write::add,
                          .count = 2,
                          .x_step = further_x.data - x.data,
                          .out_step = further_out.data - out.data};
  CudaLane& lane = CudaLane::of(at.lane, "products");
  lane.issue("products", [&] { return lane.hardware().cuda().multiply(lane.queue(), &products); });
}

}  // namespace windrow::cuda
