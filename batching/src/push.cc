#include "push.h"

#include <algorithm>

namespace windrow {
namespace {

/// Work below which stages of a group share an engine op, in floating point operations: some hundred microseconds.
constexpr Index flops_of_an_op = 20'000'000;
/// What a step does to an element counts as, beside its products.
constexpr Index flops_of_an_element = 20;

}  // namespace

void Push::push(OpName name, const std::vector<Access>& accesses, OpFunction function, int priority) {
  const Device& device = batch_->device();
  device.engine->push(std::move(function), accesses,
                      {.name = name, .priority = priority, .lane = device.lane, .pushed_at = from_});
  ++stats_.ops;
}

/// Parameters are there when the minibatch before has no more use for its memory, which may be had then.
void Push::memory() {
  std::vector<Access> accesses = parameters();
  accesses.push_back(overwrite(batch_->memory()));
  push("batch memory", accesses, [batch = batch_] { batch->take_memory(); });
}

std::vector<Access> Push::parameters() const {
  std::vector<Access> accesses;
  for (std::size_t i = 0; i < batch_->plan().tensors.size(); ++i) {
    if (batch_->plan().tensors[i].is == TensorSpec::Is::parameter) accesses.push_back(read(batch_->tensor(i).var()));
  }
  return accesses;
}

void Push::before() { tensors(batch_->plan().before, -1); }
void Push::after() { tensors(batch_->plan().after, 0); }

/// Whether it changes something that is needed.
bool Push::counts(const TensorStep& step) const {
  const std::size_t out = step.step.out.number;
  if (!batch_->needs(out)) return false;
  const bool adds = step.step.write == Write::add || batch_->adds_to(out);
  return !adds || step.vertex_type < 0 ||
         batch_->layout().count(static_cast<std::size_t>(step.vertex_type), step.step.rate) > 0;
}

void Push::tensors(const std::vector<TensorStep>& steps, int priority) {
  for (const TensorStep& step : steps) {
    if (!counts(step)) continue;
    std::vector<Access> accesses;
    for (const Place& place : step.step.in) {
      if (place.in == Place::In::tensor) accesses.push_back(read(batch_->tensor(place.number).var()));
    }
    if (step.vertex_type >= 0) {
      accesses.push_back(read(batch_->memory()));
      const Index rows = batch_->layout().count(static_cast<std::size_t>(step.vertex_type), step.step.rate);
      stats_.multiply_flops += rows * step.step.flops_a_row;
      stats_.batches += batches_of(rows);
      stats_.kernels += batches_of(rows);
    }
    const Var out = batch_->tensor(step.step.out.number).var();
    // Only the first may clear the poison that is there: that of the others is this minibatch's.
    const bool first = begun_.insert(step.step.out.number).second && !batch_->adds_to(step.step.out.number);
    accesses.push_back(first ? overwrite(out) : mutate(out));
    push(
        batch_->name_of(step.step), accesses, [batch = batch_, &step] { batch->run(step); }, priority);
  }
}

void Push::forward(Index group) {
  const auto batches = static_cast<Index>(batch_->layout().batches[static_cast<std::size_t>(group)].size());
  std::vector<Stage> stages = {{Phase::eager}};
  for (Index batch = 0; batch < batches; ++batch) stages.push_back({Phase::level, batch});
  stages.push_back({Phase::lazy});
  share(group, "forward", stages);
}

void Push::backward(Index group) {
  std::vector<Stage> stages;
  for (auto batch = static_cast<Index>(batch_->layout().batches[static_cast<std::size_t>(group)].size());
       batch-- > 0;) {
    stages.push_back({Phase::back_level, batch});
  }
  stages.push_back({Phase::back_lazy});
  share(group, "backward", stages);
}

/// Cuts the stages into ops that are worth one.
void Push::share(Index group, OpName name, const std::vector<Stage>& stages) {
  std::vector<Stage> some;
  std::set<std::size_t> tensors;
  Index work = 0;
  const auto push_some = [&] {
    if (some.empty()) return;
    std::vector<Access> accesses = {read(batch_->memory()), mutate(batch_->group(group))};
    for (std::size_t tensor : tensors) accesses.push_back(read(batch_->tensor(tensor).var()));
    push(name, accesses, [batch = batch_, group, stages = std::move(some)] {
      for (const Stage& stage : stages) batch->run(group, stage);
    });
    some.clear();
    tensors.clear();
    work = 0;
  };
  for (const Stage& stage : stages) {
    const Index more = count(group, stage, tensors);
    if (more == 0) continue;
    some.push_back(stage);
    work += more;
    if (work >= flops_of_an_op) push_some();
  }
  push_some();
}

/// The work of a stage; the tensors it reads are added to those given.
Index Push::count(Index group, const Stage& stage, std::set<std::size_t>& tensors) {
  Index work = 0;
  const auto [first, end] = batch_->types(group, stage);
  for (std::size_t t = first; t < end; ++t) {
    const Batch::Range range = batch_->range(t, group, stage);
    if (range.begin == range.end) continue;
    for (const Segment& segment : batch_->plan().types[t].phases[static_cast<std::size_t>(stage.phase)]) {
      const Batch::Range of = batch_->range(t, segment.rate, range);
      const Index rows = of.end - of.begin;
      stats_.batches += batches_of(rows);
      for (const Step& step : segment.steps) {
        work += rows * (step.flops_a_row + flops_of_an_element * std::max<Index>(step.out.width, 1));
        stats_.multiply_flops += rows * step.flops_a_row;
        stats_.kernels += batches_of(rows);
        for (const Place& place : step.in) {
          if (place.in == Place::In::tensor) tensors.insert(place.number);
        }
      }
    }
  }
  return work;
}

Index Push::batches_of(Index rows) const {
  const Index most = batch_->batch_rows();
  return rows / most + (rows % most == 0 ? 0 : 1);
}

std::vector<Access> Push::after_groups() const {
  std::vector<Access> accesses = {mutate(batch_->memory())};
  for (Index g = 0; g < batch_->layout().groups; ++g) accesses.push_back(read(batch_->group(g)));
  return accesses;
}

void Push::finish() {
  std::vector<Access> accesses = after_groups();
  for (const Access& parameter : parameters()) accesses.push_back(parameter);
  push("loss", accesses, [batch = batch_] { batch->finish(); });
}

void Push::seal() {
  push("gradients", after_groups(), [batch = batch_] {});
}

}  // namespace windrow
