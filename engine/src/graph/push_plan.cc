#include "graph/push_plan.h"

#include <algorithm>
#include <utility>

#include "core/asymmetric_fence.h"
#include "core/core.h"

namespace windrow {

/// The most workers for which a plan has counts of their own.
constexpr int most_counts = 256;

// Counts are also made for threads that may yet come to launch and to run ops.
PushPlan::PushPlan(Core& core, CapturedOps captured)
    : core_(core),
      link_(core.link()),
      captured_(std::move(captured)),
      uses_(core.ports_.count() + static_cast<std::uint32_t>(std::min(core.options.workers, most_counts)) + 2,
            captured_.size() >= 8) {
  for (const std::shared_ptr<CapturedOp>& op : captured_) {
    ops.push_back({op.get(), op->info, op->priority, op->kind, static_cast<std::uint32_t>(op->accesses.size())});
    accesses.insert(accesses.end(), op->accesses.begin(), op->accesses.end());
    if (std::find(lanes.begin(), lanes.end(), op->info->lane) == lanes.end()) lanes.push_back(op->info->lane);
    uses_of_launch_ += op->kind != OpRecord::Body::none;
  }
  firsts = accesses;
  const auto by_var = [](const Dep::Access& a, const Dep::Access& b) { return &a.var() < &b.var(); };
  const auto same_var = [](const Dep::Access& a, const Dep::Access& b) { return &a.var() == &b.var(); };
  std::stable_sort(firsts.begin(), firsts.end(), by_var);
  firsts.erase(std::unique(firsts.begin(), firsts.end(), same_var), firsts.end());
}

void PushPlan::let_go(PushPlan* plan) noexcept {
  if (plan == nullptr || plan->unused()) return delete plan;
  const std::shared_ptr<CoreLink> link = plan->link_;
  // An engine that has ended has run all its ops.
  if (link->begin_use()) {
    EndingPlans& ending = link->of().ending_plans_;
    ending.add(*plan);
    AsymmetricFence::heavy();
    plan = ending.take_if_unused(plan);
  }
  link->end_use();  // before captures are destroyed, which may own the engine
  delete plan;
}

void PushPlan::end_use() noexcept {
  Core& core = core_;  // the engine does not end before the op does
  uses_.end(core.ports_.mine_if_last());
  AsymmetricFence::light();
  if (core.ending_plans_.any()) [[unlikely]]
    end_after_op(core, this);
}

void PushPlan::end_after_op(Core& core, const PushPlan* maybe_gone) noexcept {
  Port* const port = core.ports_.mine_if_any();
  PushPlan* const unused = port != nullptr ? core.ending_plans_.take_if_unused(maybe_gone) : nullptr;
  if (unused == nullptr) return;
  const Running* const frame = core.frame_of_mine();
  unused->first_id = frame != nullptr ? frame->op->id() : 0;
  unused->next_ended = std::exchange(port->ended, unused);
}

EndingPlans::~EndingPlans() {
  for (PushPlan*& first : lists_) {
    while (first != nullptr) delete std::exchange(first, first->next_ending);
  }
}

void EndingPlans::add(PushPlan& plan) noexcept {
  MutexLock lock(mutex_);
  plan.next_ending = std::exchange(lists_[list_of(&plan)], &plan);
  ++count_;
  any_.store(true, std::memory_order_relaxed);
}

PushPlan* EndingPlans::take_if_unused(const PushPlan* plan) noexcept {
  MutexLock lock(mutex_);
  for (PushPlan** at = &lists_[list_of(plan)]; *at != nullptr; at = &(*at)->next_ending) {
    PushPlan* const found = *at;
    if (found != plan) continue;
    if (!found->unused()) return nullptr;
    *at = found->next_ending;
    any_.store(--count_ > 0, std::memory_order_relaxed);
    return found;
  }
  return nullptr;
}

}  // namespace windrow
