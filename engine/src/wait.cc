// Waiting: for variables, for all, for lanes; from outside and from inside an op.
#include <algorithm>

#include "core.h"

namespace windrow {
namespace {

/// While it lives, the ops that run on this thread leave their slots to others.
class SlotsFree {
 public:
  SlotsFree() {
    try {
      for (Running* frame = Running::innermost(); frame != nullptr; frame = frame->outer) {
        if (frame->crew == nullptr) continue;
        frame->crew->block();
        crews_.push_back(frame->crew);
      }
    } catch (...) {
      take_back();
      throw;
    }
  }
  ~SlotsFree() { take_back(); }
  SlotsFree(const SlotsFree&) = delete;
  SlotsFree& operator=(const SlotsFree&) = delete;

 private:
  void take_back() {
    for (; !crews_.empty(); crews_.pop_back()) crews_.back()->unblock();
  }
  std::vector<Crew*> crews_;
};

/// The op's entry in the wait graph, while it waits.
class Entry {
 public:
  Entry(WaitGraph& graph, const Running* frame, OpRecord& wait) : graph_(graph), op_(frame ? frame->op : nullptr) {
    if (op_ != nullptr) graph_.enter(*op_, wait);
  }
  ~Entry() {
    if (op_ != nullptr) graph_.leave(*op_);
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

 private:
  WaitGraph& graph_;
  const OpRecord* op_;
};

void refuse_on_ordered_lane() {
  for (const Running* frame = Running::innermost(); frame != nullptr; frame = frame->outer) {
    const OpInfo& info = frame->op->info;
    if (info.lane->ordered) {
      throw MisuseError("wait inside op '" + std::string(info.name) + "' on ordered lane '" + info.lane->host.name +
                        "' would stop its device; wait outside, or inside an op on a host lane");
    }
  }
}

}  // namespace

Running* Core::frame_of_mine() const {
  Running* frame = Running::innermost();
  while (frame != nullptr && frame->core != this) frame = frame->outer;
  return frame;
}

bool Core::wait(AccessList accesses, Deadline deadline, std::source_location from) {
  refuse_on_ordered_lane();
  const Running* frame = frame_of_mine();
  ++(frame ? waits_in_ops_ : waits_);

  const OpInfo wait_info = info({.name = "wait", .run_always = true, .pushed_at = from});
  const auto waiter = std::make_shared<Waiter>();
  OpPtr op(OpRecord::create(canonical(accesses, wait_info)));
  op->id = ++last_wait_id_;
  op->info = wait_info;
  op->body = waiter;
  const Entry entry(wait_graph_, frame, *op);
  enter(std::move(op));
  if (frame == nullptr) policy_->settle(Crew::Patience::give_up_if_taken);  // a wait, too, lets go of variables

  if (!waiter->granted.is_set()) {
    if (frame != nullptr) {
      const std::string ring = wait_graph_.find_ring(*frame->op);
      if (!ring.empty()) throw WaitCycleError("a wait that cannot end: " + ring);
    }
    const SlotsFree slots;
    if (!waiter->granted.wait(deadline)) return false;
  }
  if (waiter->failures.empty()) return true;
  FailureLog::mark_reported(waiter->failures);
  throw OpError(waiter->failures);
}

bool Core::wait_all(Deadline deadline) {
  refuse_on_ordered_lane();
  if (const Running* frame = frame_of_mine()) {
    throw MisuseError("wait_all inside op '" + std::string(frame->op->info.name) +
                      "' would wait for that op itself; wait for variables instead");
  }
  ++waits_;
  std::vector<FailurePtr> failures;
  {
    const SlotsFree slots;
    do {
      failures.clear();
      if (!wait_until_idle(deadline) || !wait_until_lanes_reached(deadline, failures)) return false;
    } while (pending_ != 0);
  }
  for (FailurePtr& root : failures_.report()) {
    if (std::find(failures.begin(), failures.end(), root) == failures.end()) failures.push_back(std::move(root));
  }
  if (failures.empty()) return true;
  FailureLog::mark_reported(failures);
  throw OpError(std::move(failures));
}

bool Core::wait_until_idle(Deadline deadline) {
  MutexLock lock(idle_mutex_);
  while (pending_ != 0) {
    if (!deadline) {
      idle_.wait(idle_mutex_);
    } else if (!idle_.wait_until(idle_mutex_, *deadline)) {
      break;
    }
  }
  return pending_ == 0;
}

bool Core::wait_until_lanes_reached(Deadline deadline, std::vector<FailurePtr>& failures) {
  std::vector<LaneState*> lanes;
  {
    MutexLock lock(table_mutex_);
    for (LaneState& lane : lanes_) lanes.push_back(&lane);
  }
  for (LaneState* lane : lanes) {
    const Point last = lane->last();
    std::exception_ptr error;
    if (last && !wait_until_reached(last, deadline, error)) return false;
    if (error) failures.push_back(failures_.root({.name = lane->host.name, .lane = lane}, error));
  }
  return true;
}

bool Core::wait_until_reached(Point point, Deadline deadline, std::exception_ptr& error) {
  struct Arrival {
    Signal reached;
    std::exception_ptr error;  // written before `reached`
  };
  const auto arrival = std::make_shared<Arrival>();  // the callback may come after we have given up
  point.lane->when_reached(point, [arrival](std::exception_ptr e) {
    arrival->error = std::move(e);
    arrival->reached.set();
  });
  if (!arrival->reached.wait(deadline)) return false;
  error = arrival->error;
  return true;
}

}  // namespace windrow
