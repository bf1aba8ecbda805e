// The ops of an interpreted minibatch and their accesses.
#include <algorithm>
#include <map>
#include <utility>

#include "run/tag.h"
#include "windrow/batching/backend/interpretation.h"

namespace windrow {

static std::vector<const TensorStep*> pointers_to(const std::vector<TensorStep>& steps) {
  std::vector<const TensorStep*> pointers;
  for (const TensorStep& step : steps) pointers.push_back(&step);
  return pointers;
}

Var Interpretation::add_tag() {
  tags_.push_back(tag(device_.engine, "stage of a minibatch"));
  return tags_.back().var();
}

void Interpretation::push(const Pushing& pushing, OpName name, std::vector<Access> accesses,
                          std::function<void(Lane*)> issue) {
  device_.engine->push([issue = std::move(issue)](OpContext& op) { issue(op.lane()); }, accesses,
                       {.name = name, .lane = device_.lane, .pushed_at = pushing.from});
  ++pushing.stats.ops;
}

void Interpretation::forward(const Pushing& pushing) {
  push_start(pushing);
  push_forward(pushing);
  push_end_of_forward(pushing, push_losses(pushing));
}

/// The host looks at the losses while the device computes the backward pass.
void Interpretation::differentiate(const Pushing& pushing) {
  push_start(pushing);
  push_forward(pushing);
  const auto losses = push_losses(pushing);
  const TensorSteps late = push_backward(pushing);
  push_end(pushing, losses);
  push_tensors(pushing, late);
}

void Interpretation::backward(const Pushing& pushing) {
  if (verdict_) push(pushing, "loss", {read(verdict_), mutate(memory())}, [self = self()](Lane*) {});
  push_tensors(pushing, push_backward(pushing));
}

/// Takes the memory, copies the indices and inputs, and computes tensors from parameters alone.
void Interpretation::push_start(const Pushing& pushing) {
  std::vector<Access> accesses = parameters();
  accesses.push_back(overwrite(memory()));
  push(pushing, "minibatch memory", std::move(accesses), [self = self()](Lane* lane) {
    const Bytes bytes = self->memory_->bytes();
    self->data_ = reinterpret_cast<float*>(bytes.write(lane));
    bytes.memory().upload(lane, reinterpret_cast<std::byte*>(self->data_ + self->values_),
                          reinterpret_cast<const std::byte*>(self->packed_.words.data()),
                          CopyShape::contiguous(self->packed_.words.size() * sizeof(self->packed_.words[0])));
    if (self->plan_->slots) self->clear_missing(lane);
  });
  push_tensors(pushing, pointers_to(plan_->before));
}

void Interpretation::push_forward(const Pushing& pushing) {
  count(pushing, Passes::forward);
  std::vector<Access> accesses = {mutate(memory())};
  for (Var var : inputs()) accesses.push_back(read(var));
  push_stage(pushing, "forward", {Passes::forward, {0, batch_count()}}, std::move(accesses));
}

/// Gradients that need a part of the pass only follow that part, so that others can use them while the rest of it runs.
/// Returns the steps of all others.
Interpretation::TensorSteps Interpretation::push_backward(const Pushing& pushing) {
  count(pushing, Passes::backward);
  std::vector<Access> accesses = {mutate(memory())};
  for (std::size_t i = 0; i < tensors_.size(); ++i) {  // with the gradients of outputs
    if (plan_->tensors[i].is != TensorSpec::Is::gradient) accesses.push_back(read(tensors_[i].var()));
  }
  auto ready = ready_after();
  TensorSteps late = std::move(ready[0]);
  ready.erase(0);
  Index end = batch_count();
  for (const auto& [batches, steps] : ready) {
    if (batches < end) push_stage(pushing, "backward", {Passes::backward, {batches, end}}, accesses);
    end = batches;
    push_tensors(pushing, steps, Wanted::early);
  }
  push_stage(pushing, "backward", {Passes::backward, {0, end}}, std::move(accesses));
  return late;
}

void Interpretation::push_stage(const Pushing& pushing, OpName name, const Stage& stage, std::vector<Access> accesses) {
  push(pushing, name, std::move(accesses), [self = self(), stage](Lane* lane) { self->run_stage(stage, lane); });
}

/// How many batches of the backward pass are left when the step has its operands; 0 if it needs the whole pass.
Index Interpretation::batches_left(const TensorStep& step) const {
  const Phase last = last_phase(*plan_, step);
  if (last < Phase::back_eager) return batch_count();
  if (last == Phase::back_eager) return std::max<Index>(batch_count() - 1, 0);  // it precedes the first batch
  if (last != Phase::back_level) return 0;
  const auto of_type = [&](const Layout::BatchRows& batch) {
    return batch.type == static_cast<std::size_t>(step.vertex_type) && batch.begin < batch.end;
  };
  const auto& batches = layout_.batches.front();
  return std::ranges::find_if(batches, of_type) - batches.begin();
}

/// The steps of gradients, in order, by the number of batches that the backward pass has left when all steps of the
/// same tensor have their operands. Some are left for the end of the pass, since these fail for a loss that is not
/// finite: the others do not wait until the host has looked at the losses.
Interpretation::ReadySteps Interpretation::ready_after() const {
  std::map<std::size_t, Index> left;  // by tensor
  for (const TensorStep& step : plan_->after) {
    if (!counts(step)) continue;
    const auto of = left.try_emplace(step.step.out.number, batch_count()).first;
    of->second = std::min(of->second, stage_ends(batches_left(step)));
    for (const Place& place : step.step.in) {
      const auto found = place.in == Place::In::tensor ? left.find(place.number) : left.end();
      if (found != left.end()) of->second = std::min(of->second, found->second);
    }
  }
  const bool some_wait = std::ranges::any_of(left, [](const auto& one) { return one.second == 0; });
  ReadySteps ready;
  for (const TensorStep& step : plan_->after) {
    if (counts(step)) ready[some_wait ? left.at(step.step.out.number) : 0].push_back(&step);
  }
  return ready;
}

void Interpretation::count(const Pushing& pushing, Passes passes) const {
  const auto count_rows = [&](Phase phase, std::size_t type, Range vertices) {
    for (const Segment& segment : plan_->types[type].phases[static_cast<std::size_t>(phase)]) {
      const Index rows = layout_.count(type, segment.rate, vertices.begin, vertices.end);
      if (rows == 0) continue;
      ++pushing.stats.batches;
      pushing.stats.kernels += static_cast<std::int64_t>(segment.steps.size());
      for (const Step& step : segment.steps) pushing.stats.multiply_flops += step.flops_a_row * rows;
    }
  };
  const bool forward = passes == Passes::forward;
  const Phase levels = forward ? Phase::level : Phase::back_level;
  for (const Layout::BatchRows& batch : layout_.batches.front()) {
    count_rows(levels, batch.type, {batch.begin, batch.end});
  }
  for (std::size_t t = 0; t < plan_->types.size(); ++t) {
    const Range all{0, layout_.types[t].rows};
    count_rows(forward ? Phase::eager : Phase::back_eager, t, all);
    count_rows(forward ? Phase::lazy : Phase::back_lazy, t, all);
  }
}

/// Whether the step changes its tensor.
bool Interpretation::counts(const TensorStep& step) const {
  const bool adds = step.step.write == Write::add || adds_to(step.step.out.number);
  return !adds || step.vertex_type < 0 || layout_.count(static_cast<std::size_t>(step.vertex_type), step.step.rate) > 0;
}

/// An op for each step. The first one that writes a tensor clears its poison; later poison comes from this minibatch.
/// What a group combines early waits for the device, and not for what is issued there meanwhile.
void Interpretation::push_tensors(const Pushing& pushing, const TensorSteps& steps, Wanted wanted) {
  const bool anticipates = wanted == Wanted::early && options_.combines_gradients;
  std::set<std::size_t> begun;
  for (const TensorStep* const step : steps) {
    if (!counts(*step)) continue;
    const std::size_t out = step->step.out.number;
    std::vector<Access> accesses;
    for (const Place& place : step->step.in) {
      if (place.in == Place::In::tensor) accesses.push_back(read(tensors_[place.number].var()));
    }
    accesses.push_back(read(memory()));
    const bool first = begun.insert(out).second && !adds_to(out);
    accesses.push_back(first ? overwrite(tensors_[out].var()) : mutate(tensors_[out].var()));
    if (step->vertex_type >= 0) {
      const Index rows = layout_.count(static_cast<std::size_t>(step->vertex_type), step->step.rate);
      pushing.stats.multiply_flops += rows * step->step.flops_a_row;
      ++pushing.stats.batches;
      ++pushing.stats.kernels;
    }
    push(pushing, name_of(step->step), std::move(accesses), [self = self(), step, anticipates](Lane* lane) {
      self->run(*step, lane);
      if (anticipates && lane != nullptr) lane->anticipate_next();
    });
  }
}

}  // namespace windrow
