// The gradients of parameters, and other tensors that belong to no vertex: their ops.
#include <algorithm>
#include <functional>

#include "execute/push.h"
#include "execute/step_kernels.h"

namespace windrow {
namespace {

/// Gradients of parameters come last, when no other ops are left to run concurrently, so they are cut into blocks of
/// columns. A block has at least this much work, about a quarter of a millisecond. It has at least 128 columns, or 64
/// if there are only two blocks, since narrower products are slower.
constexpr Index flops_of_a_block = 25'000'000;
constexpr Index columns_of_a_block = 128, columns_of_a_half = 64;
constexpr Index most_blocks = 8;

}  // namespace

// --- Early gradients

/// In order: how many batches of the backward pass remain when the step has its operands; 0 if it needs the whole pass.
Index Push::batches_left(const TensorStep& step) const {
  const Index batches = execution_->batch_count();
  if (step.after < Phase::back_eager) return batches;
  if (step.after == Phase::back_eager) return std::max<Index>(batches - 1, 0);  // it precedes the first batch
  if (step.after != Phase::back_level) return 0;
  const auto of_type = [&](const Layout::BatchRows& batch) {
    return batch.type == static_cast<std::size_t>(step.vertex_type) && batch.begin < batch.end;
  };
  const auto& of_group = layout().batches.front();
  return std::ranges::find_if(of_group, of_type) - of_group.begin();
}

/// In order: where the backward pass is divided, so that gradients which need a part of it only follow that part.
std::set<Index> Push::ends_in_order() const {
  std::map<std::size_t, Index> left;  // by tensor
  for (const TensorStep& step : plan().after) {
    if (!counts(step)) continue;
    Index& of = left.try_emplace(step.step.out.number, execution_->batch_count()).first->second;
    of = std::min(of, execution_->stage_ends(batches_left(step)));
  }
  std::set<Index> ends;
  for (const auto& [tensor, end] : left) ends.insert(end);
  ends.erase(execution_->batch_count());  // such a step needs no part of the pass
  return ends;
}

/// Notes after which ops of the group the gradients of parameters can be computed.
void Push::note_ends(const GroupPieces& group) {
  for (const TensorStep& step : plan().after) {
    if (step.vertex_type >= 0) phase_ends_.try_emplace({static_cast<std::size_t>(step.vertex_type), step.after});
  }
  const std::vector<std::size_t> last = group.pieces.last();
  for (auto& [of, ends] : phase_ends_) {
    for (std::size_t end : group.pieces.ends_of(of.first, of.second)) {
      if (!in_order()) ends.ops.push_back(group.done[end]);
      ends.any = true;
      ends.last |= std::ranges::count(last, end) > 0;
      ends.due = std::max(ends.due, end);
    }
  }
}

/// Whether the step's operands are complete before the last ops of the groups have run. Call it for the steps that
/// write these operands first.
bool Push::may_be_early(const TensorStep& step) const {
  const auto late = [&](const Place& place) { return place.in == Place::In::tensor && late_.contains(place.number); };
  if (std::ranges::any_of(step.step.in, late)) return false;
  if (step.vertex_type < 0) return true;
  const auto type = static_cast<std::size_t>(step.vertex_type);
  if (layout().count(type, step.step.rate) == 0) return true;
  const Ends& ends = phase_ends_.at({type, step.after});
  return ends.any && !ends.last;
}

/// In order, some gradients are left for the end of the pass. These fail if a loss is not finite, so the others need
/// not wait until the host has checked the losses.
void Push::find_early() {
  bool waits = false;  // whether an early step sums over vertices
  for (const TensorStep& step : plan().after) {
    if (counts(step) && !may_be_early(step)) late_.insert(step.step.out.number);
  }
  if (in_order() && late_.empty()) return;
  for (const TensorStep& step : plan().after) {
    if (!counts(step) || late_.contains(step.step.out.number)) continue;
    std::size_t& due = early_[step.step.out.number];
    if (step.vertex_type >= 0) {
      due = std::max(due, phase_ends_.at({static_cast<std::size_t>(step.vertex_type), step.after}).due);
    }
    for (const Place& place : step.step.in) {
      const auto found = place.in == Place::In::tensor ? early_.find(place.number) : early_.end();
      if (found != early_.end()) due = std::max(due, found->second);
    }
    waits |= step.vertex_type >= 0;
  }
  if (!waits) early_.clear();
}

// --- Their ops

void Push::after() { gradients(When::late); }

/// Sums of products over rows are pushed first, those with more work before others, so that workers end at about the
/// same time. Such a sum is an op for each part, or several ops that each compute all parts for a block of columns. All
/// other steps follow in the order of the plan, since they may read tensors that were computed before.
void Push::gradients(When when, std::optional<std::size_t> due) {
  const auto now = [&](const TensorStep& step) {
    const auto early = early_.find(step.step.out.number);
    if ((early != early_.end()) != (when == When::early)) return false;
    return counts(step) && (!due || early->second == *due);
  };
  struct Sum {
    std::vector<const TensorStep*> parts = {};
    Index flops = 0;
  };
  std::map<std::size_t, Sum> sums;  // by tensor
  for (const TensorStep& step : plan().after) {
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
      for (const TensorStep* part : sum->parts) tensor(*part, when, 0);
    }
  }
  std::vector<const TensorStep*> at_once;
  const TensorSteps steps(*execution_);
  for (const auto& [tensor, sum] : sums) {
    const auto may = [&](const TensorStep* part) {
      return steps.may_be_one_of_each(*part) && (at_once.empty() || part->step.op == at_once.front()->step.op);
    };
    if (sum.flops > 0 || !std::ranges::all_of(sum.parts, may)) continue;
    at_once.insert(at_once.end(), sum.parts.begin(), sum.parts.end());
  }
  if (at_once.size() > 1) each_at_once(at_once, when);
  for (const TensorStep& step : plan().after) {
    if (!now(step) || sums[step.step.out.number].flops > 0) continue;
    if (at_once.size() < 2 || std::ranges::find(at_once, &step) == at_once.end()) tensor(step, when, 0);
  }
}

/// Whether the step changes a tensor that is needed.
bool Push::counts(const TensorStep& step) const {
  const std::size_t out = step.step.out.number;
  if (!execution_->needs(out)) return false;
  const bool adds = step.step.write == Write::add || execution_->adds_to(out);
  return !adds || step.vertex_type < 0 ||
         layout().count(static_cast<std::size_t>(step.vertex_type), step.step.rate) > 0;
}

void Push::count(const TensorStep& step) {
  if (step.vertex_type < 0) return;
  const Index rows = layout().count(static_cast<std::size_t>(step.vertex_type), step.step.rate);
  stats_.multiply_flops += rows * step.step.flops_a_row;
  stats_.batches += batches_of(rows);
  stats_.kernels += batches_of(rows);
}

/// Adds the accesses that an op needs to read the step's operands: values of vertices, or in order packed constants.
void Push::add_rows(const TensorStep& step, std::vector<Access>& accesses) const {
  if (in_order()) return accesses.push_back(read(execution_->memory()));
  if (step.vertex_type < 0) return;
  if (!early_.contains(step.step.out.number)) return accesses.push_back(read(execution_->memory()));
  for (Var end : phase_ends_.at({static_cast<std::size_t>(step.vertex_type), step.after}).ops) {
    accesses.push_back(read(end));
  }
  accesses.push_back(read(losses_ ? *losses_ : execution_->memory()));
}

/// Only the first op that writes the tensor may clear its poison; later poison comes from this minibatch.
Access Push::write_access(std::size_t tensor) {
  const Var var = execution_->tensor(tensor).var();
  return begun_.insert(tensor).second && !execution_->adds_to(tensor) ? overwrite(var) : mutate(var);
}

/// A group of devices combines an early gradient: this waits until the device has computed it, but not for work issued
/// later.
void Push::tensor(const TensorStep& step, When when, int priority) {
  std::vector<Access> accesses;
  accesses.reserve(step.step.in.size() + 3);  // as many as usually follow
  for (const Place& place : step.step.in) {
    if (place.in == Place::In::tensor) accesses.push_back(read(execution_->tensor(place.number).var()));
  }
  add_rows(step, accesses);
  count(step);
  accesses.push_back(write_access(step.step.out.number));
  push(
      execution_->name_of(step.step), accesses,
      [execution = execution_, &step, anticipates = anticipates(when)](OpContext& op) {
        TensorSteps(*execution).run(step, op.lane());
        if (anticipates && op.lane() != nullptr) op.lane()->anticipate_next();
      },
      priority);
}

/// In order: one op for steps of one operator that read no tensor.
void Push::each_at_once(const std::vector<const TensorStep*>& steps, When when) {
  std::vector<Access> accesses = {read(execution_->memory())};
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::size_t tensor = steps[i]->step.out.number;
    count(*steps[i]);
    if (i == 0 || steps[i - 1]->step.out.number != tensor) accesses.push_back(write_access(tensor));
  }
  push(execution_->name_of(steps.front()->step), accesses,
       [execution = execution_, steps, anticipates = anticipates(when)](OpContext& op) {
         TensorSteps(*execution).run_each(steps, op.lane());
         if (anticipates) op.lane()->anticipate_next();
       });
}

/// The floating point operations of a sum of products over rows of vertices; 0 if any part is not such a product.
Index Push::flops_of(const std::vector<const TensorStep*>& parts) const {
  Index flops = 0;
  const Index width = execution_->tensor(parts.front()->step.out.number).width();
  for (const TensorStep* part : parts) {
    const Step& step = part->step;
    const auto in_tensor = [](const Place& place) { return place.in == Place::In::tensor; };
    if (part->vertex_type < 0 || step.flops_a_row == 0 || step.out.width != width || step.in.size() != 2 ||
        std::ranges::any_of(step.in, in_tensor)) {
      return 0;
    }
    flops += step.flops_a_row * layout().count(static_cast<std::size_t>(part->vertex_type), step.rate);
  }
  return flops;
}

/// The number of column blocks for such a sum; 1 for little work. Depends on shapes only.
Index Push::blocks_of(const TensorStep& part, Index flops) const {
  // With access checks, writing the tensor under a read access would be an error.
  if (in_order() || execution_->device().engine->watcher()) return 1;
  const Index width = execution_->tensor(part.step.out.number).width();
  const Index halves = std::min<Index>(2, width / columns_of_a_half);
  return std::clamp<Index>(std::min(flops / flops_of_a_block, std::max(halves, width / columns_of_a_block)), 1,
                           most_blocks);
}

/// Ops that may run concurrently write different columns of one tensor, under read accesses. They run between an op
/// that overwrites the tensor and an op that mutates it. Each writes its own variable, which the last op reads, so
/// failures reach the tensor.
void Push::in_blocks(const std::vector<const TensorStep*>& parts, Index blocks) {
  const std::size_t number = parts.front()->step.out.number;
  const Tensor& tensor = execution_->tensor(number);
  const OpName name = execution_->name_of(parts.front()->step);
  for (const TensorStep* part : parts) count(*part);
  push(name, {write_access(number)},
       [execution = execution_, number] { TensorSteps(*execution).begin_in_blocks(number); });
  std::vector<Access> all = {mutate(tensor.var())}, rows;
  for (const TensorStep* part : parts) add_rows(*part, rows);
  for (Index block = 0; block < blocks; ++block) {
    constexpr Index line = 16;
    const auto cut = [&](Index at) {
      return at == blocks ? tensor.width() : tensor.width() * at / blocks / line * line;
    };
    const Execution::Range columns{cut(block), cut(block + 1)};
    const Var done = execution_->add_op_var();
    std::vector<Access> accesses = rows;
    accesses.insert(accesses.end(), {read(tensor.var()), mutate(done)});
    push(name, accesses, [execution = execution_, parts, columns] {
      for (const TensorStep* part : parts) TensorSteps(*execution).run(*part, columns);
    });
    all.push_back(read(done));
  }
  push(name, all, [] {});
}

}  // namespace windrow
