#include "execute/push.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "execute/scratch.h"
#include "execute/step_clock.h"

namespace windrow {

// --- Stages

void Execution::forward(const Pushing& pushing) {
  Push push(self(), pushing);
  push.memory();
  push.before();
  push.passes(Push::Passes::forward);
  push.finish(Push::Passes::forward);
}

void Execution::differentiate(const Pushing& pushing) {
  Push push(self(), pushing);
  push.memory();
  push.before();
  push.passes(Push::Passes::both);
  push.finish(Push::Passes::both);
  push.after();
}

void Execution::backward(const Pushing& pushing) {
  Push push(self(), pushing);
  push.resume();
  push.passes(Push::Passes::backward);
  push.seal();
  push.after();
}

// --- Passes

Push::Push(std::shared_ptr<Execution> execution, const Execution::Pushing& pushing)
    : execution_(std::move(execution)), stats_(pushing.stats), from_(pushing.from) {
  if (in_order()) {
    options_ = {.op_flops = std::numeric_limits<Index>::max(), .streaming = false, .splitting = false};
  } else {
    options_ = {.op_flops = pushing.options.op_flops,
                .split_rows = pushing.options.split_rows,
                .streaming = pushing.options.optimisations.streaming,
                .splitting = pushing.options.optimisations.splitting};
  }
}

void Push::push(OpName name, const std::vector<Access>& accesses, OpFunction function, int priority) {
  const Device& device = execution_->device();
  device.engine->push(std::move(function), accesses,
                      {.name = name, .priority = priority, .lane = device.lane, .pushed_at = from_});
  ++stats_.ops;
}

/// The op reads the parameters. The step that writes them follows the previous minibatch, so that minibatch has
/// released its memory, which this op can reuse. If gradients are kept instead, the op waits for them, but does not
/// fail with them: the minibatch that adds to them still has losses and outputs. A device's memory is always reused in
/// the order of its lane.
void Push::memory() {
  std::vector<Access> accesses = execution_->parameters();
  if (std::vector<Access> kept = execution_->options_.kept_gradients; !kept.empty() && !in_order()) {
    const Var end = execution_->add_op_var();
    kept.push_back(overwrite(end));
    execution_->device().engine->push([] {}, kept, {.name = "kept gradients", .run_always = true, .pushed_at = from_});
    accesses.push_back(read(end));
  }
  accesses.push_back(overwrite(execution_->memory()));
  push("minibatch memory", accesses, [execution = execution_](OpContext& op) { execution->take_memory(op.lane()); });
}

void Push::before() {
  for (const TensorStep& step : plan().before) {
    if (counts(step)) tensor(step, When::late, in_order() ? 0 : -1);
  }
}

void Push::resume() {
  if (!execution_->verdict_) return;
  push("loss", {read(execution_->verdict_), mutate(execution_->memory())}, [execution = execution_] {});
}

void Push::passes(Passes passes) {
  if (in_order() && passes != Passes::forward) options_.ends = ends_in_order();
  std::vector<GroupPieces> groups;
  for (Index g = 0; g < layout().groups; ++g) groups.push_back(group(g, passes));
  if (passes != Passes::forward) find_early();
  const bool looks = passes != Passes::backward && (in_order() || !early_.empty());
  for (const GroupPieces& one : groups) {
    const bool last = &one == &groups.back();
    for (std::size_t i = 0; i <= one.pieces.all().size(); ++i) {
      if (last && looks && i == one.forward) losses();
      if (last && in_order() && i > 0 && !early_.empty()) gradients(When::early, i - 1);
      if (i < one.pieces.all().size()) piece(one, i);
    }
  }
  if (!in_order() && !early_.empty()) gradients(When::early);
}

Push::GroupPieces Push::group(Index number, Passes passes) {
  GroupPieces made{.pieces = Pieces(plan(), layout(), number, options_)};
  if (passes != Passes::backward) made.pieces.forward();
  made.forward = made.pieces.all().size();
  const std::vector<std::size_t> last_of_forward = made.pieces.last();
  if (passes != Passes::forward) made.pieces.backward();
  if (!in_order()) {
    for (std::size_t i = 0; i < made.pieces.all().size(); ++i) made.done.push_back(execution_->add_op_var());
    for (std::size_t last : made.pieces.last()) ends_.push_back(made.done[last]);
    for (std::size_t last : last_of_forward) {
      if (passes == Passes::both) forward_ends_.push_back(made.done[last]);
    }
  }
  if (passes != Passes::forward) note_ends(made);
  return made;
}

void Push::piece(const GroupPieces& group, std::size_t number) {
  const Piece& piece = group.pieces.all()[number];
  for (const PhaseRows& part : piece.parts) count(part);
  std::vector<Access> accesses;
  if (in_order()) {
    accesses.push_back(mutate(execution_->memory()));
    if (number < group.forward) {
      for (const Var input : execution_->inputs()) accesses.push_back(read(input));
    } else {  // with the gradients of outputs
      for (std::size_t i = 0; i < plan().tensors.size(); ++i) {
        if (plan().tensors[i].is != TensorSpec::Is::gradient) accesses.push_back(read(execution_->tensor(i).var()));
      }
    }
  } else {
    accesses = {read(execution_->memory()), overwrite(group.done[number])};
    for (std::size_t other : piece.after) accesses.push_back(read(group.done[other]));
    std::set<std::size_t> tensors;
    for (const PhaseRows& part : piece.parts) {
      const auto& of_part = plan().types[part.type].tensors[static_cast<std::size_t>(part.phase)];
      tensors.insert(of_part.begin(), of_part.end());
    }
    for (std::size_t tensor : tensors) accesses.push_back(read(execution_->tensor(tensor).var()));
  }
  push(name_of(piece), accesses,
       [execution = execution_, parts = piece.parts](OpContext& op) { execution->run_op(parts, op.lane()); });
}

OpName Push::name_of(const Piece& piece) {
  const Phase phase = piece.parts.front().phase;
  const bool up = phase == Phase::eager || phase == Phase::level || phase == Phase::lazy;
  if (piece.chain) return up ? OpName("forward") : OpName("backward");
  if (!up) return "lazy backward";
  return phase == Phase::eager ? OpName("eager") : OpName("lazy");
}

void Push::count(const PhaseRows& part) {
  for (Rate rate : {Rate::vertices, Rate::edges}) {
    const TypePlan::Cost& cost =
        plan().types[part.type].costs[static_cast<std::size_t>(part.phase)][static_cast<std::size_t>(rate)];
    if (cost.segments == 0) continue;
    const Index rows = layout().count(part.type, rate, part.begin, part.end);
    stats_.batches += cost.segments * batches_of(rows);
    stats_.kernels += cost.steps * batches_of(rows);
    stats_.multiply_flops += cost.multiply_flops * rows;
  }
}

Index Push::batches_of(Index rows) const {
  const Index most = execution_->options_.batch_rows;
  return rows / most + (rows % most == 0 ? 0 : 1);
}

// --- Ends

std::vector<Access> Push::after_groups() {
  std::vector<Access> accesses = {mutate(execution_->memory()), mutate(execution_->end()->over.var())};
  for (Var end : std::exchange(ends_, {})) accesses.push_back(read(end));
  if (losses_) accesses.push_back(read(*losses_));
  return accesses;
}

/// Pushes the losses concurrently with the backward pass. Side by side, if a loss is not finite, the gradients and the
/// end of the minibatch fail.
void Push::losses() {
  if (in_order()) {
    check_ = Losses(*execution_).push(from_);
    if (check_ != nullptr) stats_.ops += 2;
    return;
  }
  losses_ = execution_->add_op_var();
  std::vector<Access> accesses;
  accesses.reserve(2 + forward_ends_.size() + execution_->inputs().size());
  accesses.insert(accesses.end(), {read(execution_->memory()), overwrite(*losses_)});
  for (Var end : forward_ends_) accesses.push_back(read(end));
  for (Var input : execution_->inputs()) accesses.push_back(read(input));
  push("loss", accesses, [execution = execution_] { Losses(*execution).finish(); });
}

/// In order and without a backward pass, the verdict uses another lane: waits for the loss or an output must not wait
/// for later minibatches, whose work may be on the device's own lane before the host has checked the losses. See
/// Execution::collect.
void Push::finish(Passes passes) {
  if (losses_) return seal();
  std::vector<Access> accesses = after_groups();
  if (!in_order()) {
    for (const Access& parameter : execution_->parameters()) accesses.push_back(parameter);
    return push("loss", accesses, [execution = execution_] {
      execution->tiles_->give_back();
      Losses(*execution).finish();
    });
  }
  if (check_ == nullptr) return push("loss", accesses, [execution = execution_] {});
  Losses losses(*execution_);
  LaneId lane = execution_->device().lane;
  if (passes == Passes::forward) {
    execution_->verdict_ = execution_->add_op_var();
    accesses.front() = read(execution_->memory());
    accesses.push_back(overwrite(execution_->verdict_));
    lane = losses.verdict_lane();
  }
  losses.push_verdict(check_, std::move(accesses), lane, from_);
  ++stats_.ops;
}

void Push::seal() {
  if (in_order()) return;
  push("end", after_groups(), [execution = execution_] { execution->tiles_->give_back(); });
}

}  // namespace windrow
