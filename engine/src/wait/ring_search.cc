#include "wait/ring_search.h"

#include <mutex>

#include "core/core.h"
#include "graph/launch.h"

namespace windrow {

RingSearch::RingSearch(const WaitGraph::Waiters& waiters, std::size_t most) : waiters_(waiters), most_(most) {}

WaitGraph::Ring RingSearch::find(const Running* frames) {
  for (; frames != Running::floor(); frames = frames->outer) {
    mine_.insert(frames->op);
    visit({frames->core, frames->op}, nobody, true);
  }
  for (std::size_t step = 0; step < walk_.size(); ++step) {
    if (step >= most_) return {.whole = false};
    visit_behind(step);
    if (ring_ != nobody) return {.text = describe(ring_)};
  }
  return {};
}

void RingSearch::visit(WaitGraph::Blocked at, std::size_t blocked_by, bool waits_inside) {
  if (known_.insert(at.op).second) walk_.push_back({at, blocked_by, waits_inside});
}

void RingSearch::visit_behind(std::size_t step) {
  const auto [at, before, waits_inside] = walk_[step];
  stopped_.try_emplace(at.core, at.core->front.ports);
  OpRecord& op = *at.op;
  for (const Dep::Access& access : op.accesses()) {
    Dep::for_each_behind(access, [&](OpRecord& next) {
      visit({at.core, &next}, step, false);
      if (next.body() == OpRecord::Body::gate) visit_opened(next, step);
    });
  }
  if (op.body() == OpRecord::Body::node) visit_behind_node(op, step);
  if (waits_inside && op.commutes()) visit_behind_turns(op, step);
  if (op.body() == OpRecord::Body::wait) visit_waiters(step);
}

void RingSearch::visit_opened(OpRecord& gate, std::size_t step) {
  GraphLaunch& launch = *gate.gate().launch;
  for (const std::uint32_t node : launch.plan().gates()[gate.gate().gate].opens) {
    visit({walk_[step].at.core, &launch.record(node)}, step, false);
  }
}

void RingSearch::visit_behind_node(OpRecord& op, std::size_t step) {
  Core* const core = walk_[step].at.core;
  const auto [launch, node] = op.node();
  for (const PlanNode::Successor next : launch->plan().successors_of(*node)) {
    visit({core, &launch->record(next.node)}, step, false);
  }
  for (std::uint32_t i = 0; i < node->gate_count; ++i) {
    visit({core, launch->gate_records()[node->gates_to_leave[i]]}, step, false);
  }
}

void RingSearch::visit_behind_turns(OpRecord& op, std::size_t step) {
  for (const Dep::Access& access : op.accesses()) {
    if (!access.commutes()) continue;
    VarState& var = var_of(access);
    std::lock_guard lock(var.residue_lock);
    Dep::Op* const last = var.last_for_turn;
    for (Dep::Op* each = last; each != nullptr; each = each->next_ready == last ? nullptr : each->next_ready) {
      visit({walk_[step].at.core, static_cast<OpRecord*>(each)}, step, false);
    }
  }
}

void RingSearch::visit_waiters(std::size_t step) {
  const WaitGraph::Blocked wait = walk_[step].at;
  const auto [first, last] = waiters_.equal_range({wait.core->number, wait.op->id()});
  for (auto each = first; each != last; ++each) {
    if (mine_.contains(each->second.op)) ring_ = step;
    visit(each->second, step, true);
  }
}

std::string RingSearch::describe(std::size_t last) const {
  const auto label = [](const OpRecord& op) {
    return "op '" + std::string(op.info().name) + "' (" + op.info().pushed_at.file_name() + ":" +
           std::to_string(op.info().pushed_at.line()) + ")";
  };
  std::vector<const OpRecord*> ring;  // without waits and gates, which are not ops
  for (std::size_t i = last; i != nobody; i = walk_[i].blocked_by) {
    const Visit& step = walk_[i];
    if (step.blocked_by == nobody || step.at.op->id() < OpRecord::first_wait_id) ring.push_back(step.at.op);
  }
  std::string text = "a wait that cannot end: " + label(*ring.back());
  for (std::size_t i = 0; i < ring.size(); ++i) {
    text += i == 0 ? " waits for " : ", which waits for ";
    text += label(*ring[i]);
  }
  return text;
}

}  // namespace windrow
