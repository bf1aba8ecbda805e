// Waiting: for variables, for all, for lanes; from outside and from inside an op.
#include <algorithm>

#include "core.h"
#include "slots_free.h"

namespace windrow {
namespace {

/// A wait inside an op that has lasted so long looks whether it can end. Most are over by then.
constexpr std::chrono::milliseconds ring_patience{2};

/// The entry in the wait graph of a thread's ops, while they wait.
class Entry {
 public:
  Entry(const Running* frames, VarState& var, OpId wait) : frames_(frames) {
    WaitGraph::of_process().enter(frames, var, wait);
  }
  ~Entry() { WaitGraph::of_process().leave(frames_); }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

 private:
  const Running* const frames_;
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

/// Takes the wait back, unless it has been granted by the end of the scope.
class Core::Withdrawal {
 public:
  Withdrawal(Core& core, Waiter& waiter, VarState& var, OpId wait)
      : core_(core), waiter_(waiter), var_(var), wait_(wait) {}
  ~Withdrawal() {
    if (!waiter_.granted.is_set()) core_.withdraw(var_, wait_);
  }
  Withdrawal(const Withdrawal&) = delete;
  Withdrawal& operator=(const Withdrawal&) = delete;

 private:
  Core& core_;
  Waiter& waiter_;
  VarState& var_;
  const OpId wait_;
};

Running* Core::frame_of_mine() const {
  Running* frame = Running::innermost();
  while (frame != nullptr && frame->core != this) frame = frame->outer;
  return frame;
}

bool Core::wait(AccessList accesses, Deadline deadline, std::source_location from) {
  refuse_on_ordered_lane();
  ++(frame_of_mine() ? waits_in_ops_ : waits_);
  const OpInfo about{.name = "wait", .pushed_at = from, .lane = host_, .run_always = true};
  std::vector<FailurePtr> failures;
  // One after the other: a wait that stood in several queues at once would hold up others for what it still awaits.
  for (const Dep::Access& access : canonical(accesses, about)) {
    if (!wait_one(access, about, deadline, failures)) return false;
  }
  if (failures.empty()) return true;
  FailureLog::mark_reported(failures);
  throw OpError(std::move(failures));
}

bool Core::wait_one(const Dep::Access& access, const OpInfo& about, Deadline deadline,
                    std::vector<FailurePtr>& failures) {
  const auto waiter = std::make_shared<Waiter>();
  OpPtr op(OpRecord::create({&access, 1}));
  const OpId id = op->id = ++last_wait_id_;
  op->info = about;
  op->body = waiter;
  enter(std::move(op));
  if (!waiter->granted.is_set() && !wait_long(*waiter, var_of(access), id, deadline)) return false;
  failures.insert(failures.end(), waiter->failures.begin(), waiter->failures.end());
  return true;
}

bool Core::wait_long(Waiter& waiter, VarState& var, OpId id, Deadline deadline) {
  const Withdrawal unless_granted(*this, waiter, var, id);
  const SlotsFree slots;
  const Running* frames = Running::innermost();
  // A wait that has a limit ends, so it closes no ring.
  if (frames == nullptr || deadline) return waiter.granted.wait(deadline);
  const Entry entry(frames, var, id);
  if (waiter.granted.wait(std::chrono::steady_clock::now() + ring_patience)) return true;
  const std::string ring = WaitGraph::of_process().find_ring(frames);
  if (!ring.empty()) throw WaitCycleError(ring);
  return waiter.granted.wait(std::nullopt);
}

void Core::withdraw(VarState& var, OpId id) {
  ReadyList ready;
  Dep::Op* op = Dep::withdraw(
      var, [&](Dep::Op& queued) { return static_cast<OpRecord&>(queued).id == id; },
      [&](Dep::Op& next) { ready.push(next); });
  if (op == nullptr) return;  // granted meanwhile: it ends by itself
  OpRecord::destroy(static_cast<OpRecord*>(op));
  release_all(ready);
  one_less_pending();
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
    if (!wait_until_idle(deadline) || !wait_until_lanes_reached(deadline, failures)) return false;
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
      return pending_ == 0;
    }
  }
  return true;
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
    if (error) failures.push_back(lane->failure(failures_, error));
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
