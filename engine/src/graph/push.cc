// Launches that push a graph's ops, where running them as nodes behind gates would cost more; and pushes of declared
// ops, which are graphs of one op.
//
// Each op gets a record of its own in the chains of its variables, as if it had been pushed; what a push finds out first
// is known from the capture. All enter at one instant. Their functions stay with the plan, and run where they are.
#include <algorithm>

#include "core/core.h"
#include "core/entry.h"

namespace windrow {
namespace {

/// One use of the plan, by the body of a pushed op.
struct CapturedUse {
  CapturedUse(CapturedOp& of, PushPlan& by) : op(&of), plan(&by) {}
  CapturedUse(CapturedUse&& other) noexcept : op(other.op), plan(std::exchange(other.plan, nullptr)) {}
  CapturedUse& operator=(CapturedUse&&) = delete;
  ~CapturedUse() {
    if (plan != nullptr) plan->end_use();
  }

  CapturedOp* op;
  PushPlan* plan;
};

struct CapturedCall : CapturedUse {
  using CapturedUse::CapturedUse;
  void operator()(OpContext& context) { op->function(context); }
};

struct CapturedAsyncCall : CapturedUse {
  using CapturedUse::CapturedUse;
  void operator()(OnComplete done) { op->async(std::move(done)); }
};

std::size_t body_bytes(const PushPlan::Op& op) {
  if (op.kind == OpRecord::Body::function) return sizeof(CapturedCall);
  return op.kind == OpRecord::Body::async ? sizeof(AsyncBody) : 0;
}

void set_body(OpRecord& record, const PushPlan::Op& op, PushPlan& plan) {
  if (op.kind == OpRecord::Body::function) [[likely]]
    return record.set_call<CapturedCall>(*op.captured, plan);
  if (op.kind == OpRecord::Body::async) record.set_async(AsyncFunction(CapturedAsyncCall(*op.captured, plan)));
}

bool has_no_threads(const LaneState* lane) { return !lane->started.load(std::memory_order_acquire); }

}  // namespace

PushPlan* Core::replace(std::atomic<PushPlan*>& pushes, PushPlan* by) {
  // Release: a launch sees the whole plan. Where there was one before, launches that have found it are in an Entry.
  if (pushes.load(std::memory_order_relaxed) == nullptr) return pushes.exchange(by, std::memory_order_release);
  const Ports::Stopped stopped(ports_);
  return pushes.exchange(by, std::memory_order_release);
}

bool Core::launch_by_pushes(const std::atomic<PushPlan*>& plan_now, const LaunchSite& site) {
  Port& port = ports_.mine();
  while (plan_now.load(std::memory_order_relaxed) != nullptr) {
    std::size_t pushed = 0;
    LaneState* to_start = nullptr;
    {
      const Push push(*this);
      ReadyList ready;
      {
        const Entry entry(*this, port);
        PushPlan* const plan = plan_now.load(std::memory_order_acquire);
        if (plan == nullptr) break;
        const auto lane = std::find_if(plan->lanes.begin(), plan->lanes.end(), has_no_threads);
        if (lane == plan->lanes.end()) [[likely]] {
          pushed = plan->ops.size();
          push_together(*plan, site, entry, ready);
        } else {
          to_start = *lane;  // outside, as a push does
        }
      }
      release_all(ready);
    }
    if (to_start == nullptr) {
      look_after_pushes(port, pushed);
      return true;
    }
    start(*to_start);
  }
  return false;
}

void Core::push_together(PushPlan& plan, const LaunchSite& site, const Entry& entry, ReadyList& ready) {
  Port& port = entry.port();
  if (const Life life = life_; life != Life::running) [[unlikely]]
    check_life(life, info(port, {.name = site.name, .pushed_at = site.from}));
  const auto drop = [&](OpRecord& ended) { records_.free(port.records, &ended); };
  const auto fence = [&](Dep::Var& var) -> OpRecord& { return make_fence(port, var); };
  struct Made : ReadyList {
    explicit Made(decltype(drop)& free) : free_(free) {}
    ~Made() {
      while (OpRecord* record = pop()) free_(*record);
    }
    decltype(drop)& free_;
  };
  Made records(drop);  // what enters nowhere goes back
  const Dep::Access* next = plan.accesses.data();
  for (const PushPlan::Op& op : plan.ops) {
    if (op.access_count == 1 && entry.joiners() == Dep::Joiners::one) Dep::foresee(next->var(), port.last_var);
    OpRecord& record = *records_.make(port.records, op.access_count, body_bytes(op));
    Dep::place(record, op.access_count, [&](std::size_t i) { return next[i]; });
    records.push(record);
    next += op.access_count;
  }
  const auto enter_all = [&] {
    // Nothing here needs memory.
    plan.begin_uses(port);
    OpId id = thread_number(port) | port.pushed.load(std::memory_order_relaxed);
    Port::add(port.pushed, plan.ops.size());
    for (const PushPlan::Op& op : plan.ops) {
      OpRecord& record = *records.pop();
      record.begin(*op.info, op.priority, false);
      set_body(record, op, plan);
      record.set_id(++id);
      const Dep::Join joined = Dep::join(
          record, record.count(), Dep::Joiners::one, [] {}, drop, fence);
      if (joined == Dep::Join::ready) ready.push(record);
    }
  };
  if (Dep::join_together(plan.firsts, entry.joiners(), enter_all, drop, fence)) [[likely]]
    return;
  refuse_retired(info(port, {.name = site.name, .pushed_at = site.from}), name_of_retired(plan.firsts, entry.joiners()));
}

}  // namespace windrow
