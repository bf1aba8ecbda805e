// Waiting: for variables, for all, for lanes; from outside and from inside an op.
#include <algorithm>

#include "core.h"
#include "slots_free.h"

namespace windrow {
namespace {

/// A wait inside an op that has lasted so long looks whether it can end, so that short ones need no search.
constexpr std::chrono::milliseconds ring_patience{2};

/// The entry in the wait graph of a thread's ops, while they wait.
class Entry {
 public:
  Entry(const Running* frames, WaitGraph::Place place) : frames_(frames) {
    WaitGraph::of_process().enter(frames, place);
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

/// The records of one call of wait: one for each variable, all entered at one instant. Each leaves its queue when it is
/// granted, since one record in all queues would hold up others in one for what it still awaits in another. Those that
/// have not been granted by the end of the scope are taken back.
class Core::Waits {
 public:
  struct Wait {
    std::shared_ptr<Waiter> waiter;
    WaitGraph::Place place;
  };

  Waits(Core& core, std::span<const Dep::Access> accesses, const OpInfo& about, bool limited) : core_(core) {
    std::vector<OpPtr> owners;
    std::vector<Dep::Op*> ops;
    for (const Dep::Access& access : accesses) {
      OpPtr& op = owners.emplace_back(OpRecord::create({&access, 1}));
      op->id = ++core_.last_wait_id_;
      op->info = about;
      op->limited = limited;
      op->body = std::make_shared<Waiter>();
      waits_.push_back({std::get<std::shared_ptr<Waiter>>(op->body), {core_.number, &var_of(access), op->id}});
      ops.push_back(op.get());
    }
    join(owners, ops);
  }

  ~Waits() {
    for (Wait& wait : waits_) {
      if (!wait.waiter->granted.is_set()) core_.withdraw(*wait.place.var, wait.place.op);
    }
  }
  Waits(const Waits&) = delete;
  Waits& operator=(const Waits&) = delete;

  auto begin() { return waits_.begin(); }
  auto end() { return waits_.end(); }

 private:
  void join(std::vector<OpPtr>& owners, const std::vector<Dep::Op*>& ops) {
    const auto ready = std::make_unique<bool[]>(ops.size());
    core_.pending_ += ops.size();
    if (!Dep::join_each(ops, {ready.get(), ops.size()})) {
      for (std::size_t i = 0; i < ops.size(); ++i) core_.one_less_pending();
      std::vector<Dep::Access> accesses;
      for (const OpPtr& op : owners) accesses.push_back(op->accesses().front());
      core_.refuse(owners.front()->info, accesses);
    }
    ReadyList list;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      static_cast<void>(owners[i].release());
      if (ready[i]) list.push(*ops[i]);
    }
    core_.release_all(list);
  }

  Core& core_;
  std::vector<Wait> waits_;
};

Running* Core::frame_of_mine() const {
  Running* frame = Running::innermost();
  while (frame != nullptr && frame->core != this) frame = frame->outer;
  return frame;
}

bool Core::wait(AccessList accesses, Deadline deadline, std::source_location from) {
  refuse_on_ordered_lane();
  const bool inside = frame_of_mine() != nullptr;
  ++(inside ? waits_in_ops_ : waits_);
  const OpInfo about{.name = "wait", .pushed_at = from, .lane = host_};
  Waits waits(*this, canonical(accesses, about), about, deadline.has_value());
  std::vector<FailurePtr> failures;
  for (auto& [waiter, place] : waits) {
    if (!waiter->granted.is_set() && !wait_long(*waiter, place, deadline)) return false;
    if (!wait_for_points(*waiter, deadline)) return false;
    failures.insert(failures.end(), waiter->failures.begin(), waiter->failures.end());
  }
  if (failures.empty()) return true;
  if (!inside) FailureLog::mark_reported(failures);  // an op that is told may keep it to itself
  throw OpError(std::move(failures));
}

bool Core::wait_long(Waiter& waiter, WaitGraph::Place place, Deadline deadline) {
  const SlotsFree slots;
  const Running* frames = Running::innermost();
  // A wait that has a limit ends, so it closes no ring.
  if (frames == nullptr || deadline) return waiter.granted.wait(deadline);
  const Entry entry(frames, place);
  if (waiter.granted.wait(std::chrono::steady_clock::now() + ring_patience)) return true;
  const std::string ring = WaitGraph::of_process().find_ring(frames);
  if (!ring.empty()) throw WaitCycleError(ring);
  return waiter.granted.wait(std::nullopt);
}

bool Core::wait_for_points(Waiter& waiter, Deadline deadline) {
  if (waiter.points.empty()) return true;
  const SlotsFree slots;
  for (const Awaited& awaited : waiter.points) {
    std::exception_ptr error;
    if (!wait_until_reached(awaited.mark.point, deadline, error)) return false;
    if (error && awaited.kind != AccessKind::overwrite) waiter.failures.push_back(lost(awaited.mark, error));
  }
  return true;
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
