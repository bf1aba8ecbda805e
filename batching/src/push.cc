#include "push.h"

#include <algorithm>
#include <map>

namespace windrow {
namespace {

/// Work below which stages of a group share an engine op, in floating point operations: some hundred microseconds.
constexpr Index flops_of_an_op = 20'000'000;
/// What a step does to an element counts as, beside its products.
constexpr Index flops_of_an_element = 20;
/// Gradients of parameters are cut into ops of about so much work, a millisecond, and of so many columns, at least:
/// narrower products are slower.
constexpr Index flops_of_a_block = 100'000'000;
constexpr Index columns_of_a_block = 192;
constexpr Index most_blocks = 8;

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

void Push::before() {
  for (const TensorStep& step : batch_->plan().before) {
    if (counts(step)) tensor(step, -1);
  }
}

/// All parts of a sum by one op each, or by columns.
void Push::after() {
  std::map<std::size_t, std::vector<const TensorStep*>> parts;  // by tensor
  for (const TensorStep& step : batch_->plan().after) {
    if (counts(step)) parts[step.step.out.number].push_back(&step);
  }
  for (const TensorStep& step : batch_->plan().after) {
    const auto whole = parts.find(step.step.out.number);
    if (!counts(step) || whole == parts.end()) continue;
    const Index blocks = blocks_of(whole->second);
    if (blocks == 1) {
      tensor(step, 0);
      continue;
    }
    in_blocks(whole->second, blocks);
    parts.erase(whole);
  }
}

/// Whether it changes something that is needed.
bool Push::counts(const TensorStep& step) const {
  const std::size_t out = step.step.out.number;
  if (!batch_->needs(out)) return false;
  const bool adds = step.step.write == Write::add || batch_->adds_to(out);
  return !adds || step.vertex_type < 0 ||
         batch_->layout().count(static_cast<std::size_t>(step.vertex_type), step.step.rate) > 0;
}

void Push::count(const TensorStep& step) {
  if (step.vertex_type < 0) return;
  const Index rows = batch_->layout().count(static_cast<std::size_t>(step.vertex_type), step.step.rate);
  stats_.multiply_flops += rows * step.step.flops_a_row;
  stats_.batches += batches_of(rows);
  stats_.kernels += batches_of(rows);
}

/// Only the first op that touches it may clear the poison that is there: that of the others is this minibatch's.
Access Push::write_access(std::size_t tensor) {
  const Var var = batch_->tensor(tensor).var();
  return begun_.insert(tensor).second && !batch_->adds_to(tensor) ? overwrite(var) : mutate(var);
}

void Push::tensor(const TensorStep& step, int priority) {
  std::vector<Access> accesses;
  for (const Place& place : step.step.in) {
    if (place.in == Place::In::tensor) accesses.push_back(read(batch_->tensor(place.number).var()));
  }
  if (step.vertex_type >= 0) accesses.push_back(read(batch_->memory()));
  count(step);
  accesses.push_back(write_access(step.step.out.number));
  push(
      batch_->name_of(step.step), accesses, [batch = batch_, &step] { batch->run(step); }, priority);
}

/// Of the gradient of a parameter, by its columns; 1 where it is anything else, or no work for two. By shapes alone.
Index Push::blocks_of(const std::vector<const TensorStep*>& parts) const {
  // A check of accesses would find that ops write what they only read.
  if (batch_->device().engine->watcher()) return 1;
  Index flops = 0;
  const Index width = batch_->tensor(parts.front()->step.out.number).width();
  for (const TensorStep* part : parts) {
    const Step& step = part->step;
    const auto in_tensor = [](const Place& place) { return place.in == Place::In::tensor; };
    if (part->vertex_type < 0 || step.flops_a_row == 0 || step.out.width != width || step.in.size() != 2 ||
        std::any_of(step.in.begin(), step.in.end(), in_tensor)) {
      return 1;
    }
    flops += step.flops_a_row * batch_->layout().count(static_cast<std::size_t>(part->vertex_type), step.rate);
  }
  return std::clamp<Index>(std::min(flops / flops_of_a_block, width / columns_of_a_block), 1, most_blocks);
}

/// Ops that run side by side write columns of one tensor, which they only read as the engine sees it: between one op
/// that overwrites it and one that mutates it and waits for all. Each has a variable of its own, which tells the last
/// one of failures.
void Push::in_blocks(const std::vector<const TensorStep*>& parts, Index blocks) {
  const std::size_t number = parts.front()->step.out.number;
  const Tensor& tensor = batch_->tensor(number);
  const OpName name = batch_->name_of(parts.front()->step);
  for (const TensorStep* part : parts) count(*part);
  push(name, {write_access(number)}, [batch = batch_, number] { batch->begin_in_blocks(number); });
  std::vector<Access> all = {mutate(tensor.var())};
  for (Index block = 0; block < blocks; ++block) {
    constexpr Index line = 16;
    const auto cut = [&](Index at) {
      return at == blocks ? tensor.width() : tensor.width() * at / blocks / line * line;
    };
    const Batch::Range columns{cut(block), cut(block + 1)};
    const Var done = batch_->add_block();
    push(name, {read(batch_->memory()), read(tensor.var()), mutate(done)}, [batch = batch_, parts, columns] {
      for (const TensorStep* part : parts) batch->run(*part, columns);
    });
    all.push_back(read(done));
  }
  push(name, all, [] {});
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
