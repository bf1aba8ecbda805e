#include "host/push.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

namespace windrow {
namespace {

/// Gradients of parameters come last, with no other ops to run beside them, so they are cut into blocks of columns.
/// A block has at least this much work, about a quarter of a millisecond. It has at least 128 columns, or 64 if there
/// are only two blocks, since narrower products are slower.
constexpr Index flops_of_a_block = 25'000'000;
constexpr Index columns_of_a_block = 128, columns_of_a_half = 64;
constexpr Index most_blocks = 8;

}  // namespace

Push::Push(std::shared_ptr<HostExecution> execution, const Execution::Pushing& pushing)
    : execution_(std::move(execution)),
      options_{.op_flops = pushing.options.op_flops,
               .split_rows = pushing.options.split_rows,
               .streaming = pushing.options.optimisations.streaming,
               .splitting = pushing.options.optimisations.splitting},
      stats_(pushing.stats),
      from_(pushing.from) {}

void Push::push(OpName name, const std::vector<Access>& accesses, OpFunction function, int priority) {
  const Device& device = execution_->device();
  device.engine->push(std::move(function), accesses,
                      {.name = name, .priority = priority, .lane = device.lane, .pushed_at = from_});
  ++stats_.ops;
}

/// The op reads the parameters. The step that writes them follows the previous minibatch, so that minibatch has
/// released its memory, which this op can reuse. If its gradients are kept instead, the op follows these, but not their
/// failures: a minibatch that adds to them has losses and outputs all the same.
void Push::memory() {
  std::vector<Access> accesses = execution_->parameters();
  if (std::vector<Access> kept = execution_->kept_gradients(); !kept.empty()) {
    const Var end = execution_->add_op_var();
    kept.push_back(overwrite(end));
    execution_->device().engine->push([] {}, kept, {.name = "kept gradients", .run_always = true, .pushed_at = from_});
    accesses.push_back(read(end));
  }
  accesses.push_back(overwrite(execution_->memory()));
  push("minibatch memory", accesses, [execution = execution_] { execution->take_memory(); });
}

void Push::before() {
  for (const HostTensorStep& step : execution_->lowered().before) {
    if (counts(step)) tensor(step, -1);
  }
}

void Push::early() {
  find_early();
  if (early_.empty()) return;
  if (!forward_ends_.empty()) losses();
  gradients(When::early);
}

void Push::after() { gradients(When::late); }

/// Sums of products over rows are pushed first, those with more work before others, so that workers end at about the
/// same time. Such a sum is an op for each part, or several ops that each compute all parts for a block of columns. All
/// other steps follow in the order of the plan, since they may read tensors that were computed before.
void Push::gradients(When when) {
  const auto now = [&](const HostTensorStep& step) {
    return early_.contains(step.step.out.number) == (when == When::early) && counts(step);
  };
  struct Sum {
    std::vector<const HostTensorStep*> parts = {};
    Index flops = 0;
  };
  std::map<std::size_t, Sum> sums;  // by tensor
  for (const HostTensorStep& step : execution_->lowered().after) {
    if (now(step)) sums[step.step.out.number].parts.push_back(&step);
  }
  std::vector<const Sum*> of_products;
  for (auto& [tensor, sum] : sums) {
    sum.flops = flops_of(sum.parts);
    if (sum.flops > 0) of_products.push_back(&sum);
  }
  std::ranges::stable_sort(of_products, std::greater(), [](const Sum* sum) { return sum->flops; });
  for (const Sum* sum : of_products) {
    const Index blocks = blocks_of(*sum->parts.front(), sum->flops);
    if (blocks > 1) {
      in_blocks(sum->parts, blocks);
    } else {
      for (const HostTensorStep* part : sum->parts) tensor(*part, 0);
    }
  }
  for (const HostTensorStep& step : execution_->lowered().after) {
    if (now(step) && sums[step.step.out.number].flops == 0) tensor(step, 0);
  }
}

/// Whether the values that it reads are there before the last ops of the groups have run. Steps of tensors that it
/// reads come first.
bool Push::may_be_early(const HostTensorStep& step) const {
  const auto late = [&](const Place& place) { return place.in == Place::In::tensor && late_.contains(place.number); };
  if (std::ranges::any_of(step.step.in, late)) return false;
  if (step.vertex_type < 0) return true;
  const auto type = static_cast<std::size_t>(step.vertex_type);
  if (execution_->layout().count(type, step.step.rate) == 0) return true;
  const Ends& ends = phase_ends_.at({type, step.after});
  return !ends.ops.empty() && !ends.last;
}

void Push::find_early() {
  if (phase_ends_.empty()) return;
  bool waits = false;  // whether one of them is of vertices
  for (const HostTensorStep& step : execution_->lowered().after) {
    if (counts(step) && !may_be_early(step)) late_.insert(step.step.out.number);
  }
  for (const HostTensorStep& step : execution_->lowered().after) {
    if (!counts(step) || late_.contains(step.step.out.number)) continue;
    early_.insert(step.step.out.number);
    waits |= step.vertex_type >= 0;
  }
  if (!waits) early_.clear();
}

/// The accesses by which an op sees what a step reads of the vertices.
void Push::add_rows(const HostTensorStep& step, std::vector<Access>& accesses) const {
  if (step.vertex_type < 0) return;
  if (!early_.contains(step.step.out.number)) return accesses.push_back(read(execution_->memory()));
  for (Var end : phase_ends_.at({static_cast<std::size_t>(step.vertex_type), step.after}).ops) {
    accesses.push_back(read(end));
  }
  accesses.push_back(read(losses_ ? *losses_ : execution_->memory()));
}

/// Whether the step changes a tensor that is needed.
bool Push::counts(const HostTensorStep& step) const {
  const std::size_t out = step.step.out.number;
  if (!execution_->needs(out)) return false;
  const bool adds = step.step.write == Write::add || execution_->adds_to(out);
  return !adds || step.vertex_type < 0 ||
         execution_->layout().count(static_cast<std::size_t>(step.vertex_type), step.step.rate) > 0;
}

void Push::count(const HostTensorStep& step) {
  if (step.vertex_type < 0) return;
  const Index rows = execution_->layout().count(static_cast<std::size_t>(step.vertex_type), step.step.rate);
  stats_.multiply_flops += rows * step.step.flops_a_row;
  stats_.batches += batches_of(rows);
  stats_.kernels += batches_of(rows);
}

/// Only the first op that writes the tensor may clear its poison; later poison comes from this minibatch.
Access Push::write_access(std::size_t tensor) {
  const Var var = execution_->tensor(tensor).var();
  return begun_.insert(tensor).second && !execution_->adds_to(tensor) ? overwrite(var) : mutate(var);
}

void Push::tensor(const HostTensorStep& step, int priority) {
  std::vector<Access> accesses;
  for (const Place& place : step.step.in) {
    if (place.in == Place::In::tensor) accesses.push_back(read(execution_->tensor(place.number).var()));
  }
  add_rows(step, accesses);
  count(step);
  accesses.push_back(write_access(step.step.out.number));
  push(
      execution_->name_of(step.step), accesses, [execution = execution_, &step] { execution->run(step); }, priority);
}

/// The floating point operations of a sum of products over rows of vertices; 0 if any part is something else.
Index Push::flops_of(const std::vector<const HostTensorStep*>& parts) const {
  Index flops = 0;
  const Index width = execution_->tensor(parts.front()->step.out.number).width();
  for (const HostTensorStep* part : parts) {
    const HostStep& step = part->step;
    const auto in_tensor = [](const Place& place) { return place.in == Place::In::tensor; };
    if (part->vertex_type < 0 || step.flops_a_row == 0 || step.out.width != width || step.in.size() != 2 ||
        std::ranges::any_of(step.in, in_tensor)) {
      return 0;
    }
    flops += step.flops_a_row * execution_->layout().count(static_cast<std::size_t>(part->vertex_type), step.rate);
  }
  return flops;
}

/// The number of column blocks for such a sum; 1 for little work. Depends on shapes only.
Index Push::blocks_of(const HostTensorStep& part, Index flops) const {
  // With access checks, writing the tensor under a read access would be an error.
  if (execution_->device().engine->watcher()) return 1;
  const Index width = execution_->tensor(part.step.out.number).width();
  const Index halves = std::min<Index>(2, width / columns_of_a_half);
  return std::clamp<Index>(std::min(flops / flops_of_a_block, std::max(halves, width / columns_of_a_block)), 1,
                           most_blocks);
}

/// Ops that may run concurrently write different columns of one tensor, under read accesses. They run between an op
/// that overwrites the tensor and an op that mutates it. Each has a variable of its own, which the last op reads, so
/// failures reach the tensor.
void Push::in_blocks(const std::vector<const HostTensorStep*>& parts, Index blocks) {
  const std::size_t number = parts.front()->step.out.number;
  const Tensor& tensor = execution_->tensor(number);
  const OpName name = execution_->name_of(parts.front()->step);
  for (const HostTensorStep* part : parts) count(*part);
  push(name, {write_access(number)}, [execution = execution_, number] { execution->begin_in_blocks(number); });
  std::vector<Access> all = {mutate(tensor.var())}, rows;
  for (const HostTensorStep* part : parts) add_rows(*part, rows);
  for (Index block = 0; block < blocks; ++block) {
    constexpr Index line = 16;
    const auto cut = [&](Index at) {
      return at == blocks ? tensor.width() : tensor.width() * at / blocks / line * line;
    };
    const HostExecution::Range columns{cut(block), cut(block + 1)};
    const Var done = execution_->add_op_var();
    std::vector<Access> accesses = rows;
    accesses.insert(accesses.end(), {read(tensor.var()), mutate(done)});
    push(name, accesses, [execution = execution_, parts, columns] {
      for (const HostTensorStep* part : parts) execution->run(*part, columns);
    });
    all.push_back(read(done));
  }
  push(name, all, [] {});
}

void Push::group(Index number, Passes passes) {
  Pieces pieces(execution_->lowered(), execution_->layout(), number, options_);
  if (passes != Passes::backward) pieces.forward();
  const std::vector<std::size_t> last_of_forward = pieces.last();
  if (passes != Passes::forward) pieces.backward();
  std::vector<Var> done;
  for (const Piece& piece : pieces.all()) {
    std::vector<Access> accesses = {read(execution_->memory()), overwrite(done.emplace_back(execution_->add_op_var()))};
    for (std::size_t other : piece.after) accesses.push_back(read(done[other]));
    std::set<std::size_t> tensors;
    for (const Part& part : piece.parts) count(part, tensors);
    for (std::size_t tensor : tensors) accesses.push_back(read(execution_->tensor(tensor).var()));
    push(name_of(piece), accesses, [execution = execution_, parts = piece.parts] { execution->run(parts); });
  }
  if (passes == Passes::both) {
    for (std::size_t last : last_of_forward) forward_ends_.push_back(done[last]);
  }
  if (passes != Passes::forward) note_ends(pieces, done);
  for (std::size_t last : pieces.last()) ends_.push_back(done[last]);
}

/// Notes after which ops of the group the gradients of parameters can be computed.
void Push::note_ends(const Pieces& pieces, const std::vector<Var>& done) {
  for (const HostTensorStep& step : execution_->lowered().after) {
    if (step.vertex_type >= 0) phase_ends_.try_emplace({static_cast<std::size_t>(step.vertex_type), step.after});
  }
  const std::vector<std::size_t> last = pieces.last();
  for (auto& [of, ends] : phase_ends_) {
    for (std::size_t end : pieces.ends_of(of.first, of.second)) {
      ends.ops.push_back(done[end]);
      ends.last |= std::ranges::count(last, end) > 0;
    }
  }
}

OpName Push::name_of(const Piece& piece) {
  const Phase phase = piece.parts.front().phase;
  const bool up = phase == Phase::eager || phase == Phase::level || phase == Phase::lazy;
  if (piece.chain) return up ? OpName("forward") : OpName("backward");
  if (!up) return "lazy backward";
  return phase == Phase::eager ? OpName("eager") : OpName("lazy");
}

/// Adds the tensors that the part reads to `tensors`.
void Push::count(const Part& part, std::set<std::size_t>& tensors) {
  const HostPlan::Type& type = execution_->lowered().types[part.type];
  const auto phase = static_cast<std::size_t>(part.phase);
  tensors.insert(type.tensors[phase].begin(), type.tensors[phase].end());
  for (Rate rate : {Rate::vertices, Rate::edges}) {
    const HostPlan::Cost& cost = type.costs[phase][static_cast<std::size_t>(rate)];
    if (cost.segments == 0) continue;
    const Index rows = execution_->layout().count(part.type, rate, part.begin, part.end);
    stats_.batches += cost.segments * batches_of(rows);
    stats_.kernels += cost.steps * batches_of(rows);
    stats_.multiply_flops += cost.multiply_flops * rows;
  }
}

Index Push::batches_of(Index rows) const {
  const Index most = execution_->batch_rows();
  return rows / most + (rows % most == 0 ? 0 : 1);
}

std::vector<Access> Push::after_groups() {
  std::vector<Access> accesses = {mutate(execution_->memory()), mutate(execution_->end()->over.var())};
  for (Var end : std::exchange(ends_, {})) accesses.push_back(read(end));
  if (losses_) accesses.push_back(read(*losses_));
  return accesses;
}

/// Beside the backward pass. If a loss is not finite, the gradients and the end of the minibatch fail for it.
void Push::losses() {
  losses_ = execution_->add_op_var();
  std::vector<Access> accesses = {read(execution_->memory()), overwrite(*losses_)};
  for (Var end : forward_ends_) accesses.push_back(read(end));
  for (Var input : execution_->inputs()) accesses.push_back(read(input));
  push("loss", accesses, [execution = execution_] { execution->finish_losses(); });
}

void Push::finish() {
  if (losses_) return seal();
  std::vector<Access> accesses = after_groups();
  for (const Access& parameter : execution_->parameters()) accesses.push_back(parameter);
  push("loss", accesses, [execution = execution_] {
    execution->finish();
    execution->finish_losses();
  });
}

void Push::seal() {
  push("end", after_groups(), [execution = execution_] { execution->finish(); });
}

}  // namespace windrow
