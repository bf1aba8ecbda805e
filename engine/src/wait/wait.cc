// Waits for variables, for all ops and for lanes, from outside and from inside an op.
#include <algorithm>

#include "core/core.h"
#include "core/entry.h"
#include "diagnosis/engine_log.h"
#include "policy/slots_free.h"
#include "wait/look.h"
#include "wait/run_while_waiting.h"

namespace windrow {
namespace {

/// How long a wait inside an op lasts before its first search for a cycle, and how many ops that search inspects. So
/// short waits need no search.
constexpr std::chrono::milliseconds ring_patience{2};
constexpr std::size_t first_ring_looks = 1024;
/// The longest time between two searches of a wait, unless they take longer than this share of it.
constexpr std::chrono::seconds longest_ring_patience{1};
constexpr int share_of_searches = 20;

/// How often a waiting thread polls, yielding its core in between, before it sleeps.
constexpr int yielding_looks = 20;

/// The interval at which a waiting thread that keeps its slot looks for ops to run, when no other thread is left to run
/// ops. The interval is longer if searches take more than their share.
constexpr std::chrono::milliseconds looks_of_last_thread{1};

void refuse_where_others_wait() {
  for (const Running* frame = Running::innermost(); frame != nullptr; frame = frame->outer) {
    const OpInfo& info = frame->op->info();
    if (frame->in_piece) {
      throw MisuseError("wait inside a parallel loop of " + site(info) +
                        " would stop the threads that help in it; "
                        "wait before the loop, or behind it");
    }
    if (info.lane->ordered) {
      throw MisuseError("wait inside op '" + std::string(info.name) + "' on ordered lane '" + info.lane->host.name +
                        "' would stop its device; wait outside, or inside an op on a host lane");
    }
  }
}

void refuse_where_diverted(const Port& port) {
  if (port.busy == Port::Busy::capturing) throw MisuseError("a wait inside a capture, where nothing runs");
  if (port.busy == Port::Busy::refusing) throw MisuseError("a wait: " + std::string(port.refuses_because));
}

}  // namespace

/// The records of one call of wait: one for each variable, all entered in one atomic step. Each leaves its chain as
/// soon as it is granted: a single record in all chains would block the ops behind it in one chain while it waits in
/// another. A record that has not been granted at the end of the scope is left behind in its chain.
class WaitRecords {
 public:
  WaitRecords(Core& core, AccessList accesses, const OpInfo& about) : core_(core) {
    std::vector<Dep::Access> sorted;
    for (const Access& access : accesses) {
      core.front.check(access.var, about);
      sorted.push_back(in_order(Front::access(access.var, access.kind)));
    }
    sorted.resize(Dep::canonicalise(sorted));
    ReadyList ready;
    {
      const std::size_t most_points = core.back.has_ordered() ? core.lanes.count() : 0;
      const Entry entry(core);
      entry.port().left_behind.reserve(Port::most_left_behind);  // so that the destructor needs no memory
      waits_.reserve(sorted.size());
      for (const Dep::Access& access : sorted) {
        if (take_up(access, entry)) continue;
        waits_.push_back({&var_of(access), access.kind(), 0, std::make_shared<Waiter>(), 0});
        waits_.back().waiter->points.reserve(most_points);
      }
      enter(sorted, about, entry, ready);
    }
    core.back.release_all(ready);
  }

  ~WaitRecords() {
    std::vector<VariableWait>& left = core_.front.ports.mine().left_behind;
    for (VariableWait& wait : waits_) {
      if (wait.waiter->granted.is_set()) continue;
      if (left.size() == Port::most_left_behind) left.erase(left.begin());
      left.push_back(std::move(wait));
    }
  }
  WaitRecords(const WaitRecords&) = delete;
  WaitRecords& operator=(const WaitRecords&) = delete;

  auto begin() { return waits_.begin(); }
  auto end() { return waits_.end(); }

  /// Returns false if the deadline came first.
  bool wait_long(const VariableWait& wait, Deadline deadline);

 private:
  /// Reuses a record that this thread left behind, if it is equivalent to a new one. Returns whether there is such a
  /// record.
  bool take_up(const Dep::Access& access, const Entry& entry) {
    std::vector<VariableWait>& left = entry.port().left_behind;
    std::erase_if(left, [](const VariableWait& wait) { return wait.waiter->granted.is_set(); });
    const auto found = std::find_if(left.begin(), left.end(), [&](const VariableWait& wait) {
      return wait.var == &var_of(access) && wait.kind == access.kind() &&
             Dep::is_last(access.var(), wait.ticket, entry.joiners());
    });
    if (found == left.end()) return false;
    waits_.push_back(std::move(*found));
    left.erase(found);
    return true;
  }

  /// Makes and enters records for the waits that have none.
  void enter(std::span<const Dep::Access> accesses, const OpInfo& about, const Entry& entry, ReadyList& ready) {
    Port& port = entry.port();
    std::vector<OpRecord*> ops;
    std::vector<VariableWait*> of_op;
    ops.reserve(accesses.size());
    of_op.reserve(accesses.size());
    try {
      for (std::size_t i = 0; i < accesses.size(); ++i) {
        if (waits_[i].id != 0) continue;
        OpRecord* op = ops.emplace_back(core_.front.records.make(port.records, 1, sizeof waits_[i].waiter));
        Dep::place(*op, 1, [&](std::size_t) { return accesses[i]; });
        op->begin(about, 0, false);
        op->set_waiter(waits_[i].waiter);
        of_op.push_back(&waits_[i]);
      }
    } catch (...) {
      for (OpRecord* op : ops) core_.front.records.free(port.records, op);
      throw;
    }
    for (std::size_t i = 0; i < ops.size(); ++i) {
      of_op[i]->id = OpRecord::first_wait_id | ++core_.waits.last_id;
      ops[i]->set_id(of_op[i]->id);
    }
    Port::add(port.waits, ops.size());
    auto next = of_op.begin();
    const auto place = [&](OpRecord&, std::uint32_t ticket) { (*next++)->ticket = ticket; };
    core_.front.enter_each(ops, about, entry, ready, place, [&] {
      Port::add(port.waits, -ops.size());
      core_.waits.tell_if_idle();  // a thread in wait_all may have counted them
    });
  }

  Core& core_;
  std::vector<VariableWait> waits_;
};

bool Waits::wait(AccessList accesses, Deadline deadline, std::source_location from) {
  core_.life.refuse_unusable();
  refuse_where_others_wait();
  refuse_where_diverted(core_.front.ports.mine());
  LookWhileWaiting::look();
  const bool inside = core_.frame_of_mine() != nullptr;
  ++(inside ? calls_in_ops : calls);
  WaitRecords waits(core_, accesses, core_.front.info(core_.front.ports.mine(), {.name = "wait", .pushed_at = from}));
  std::vector<FailurePtr> failures, of_points;
  for (const VariableWait& wait : waits) {
    Waiter& waiter = *wait.waiter;
    const auto wait_for_it = [&](Deadline until) { return waits.wait_long(wait, until); };
    if (!waiter.granted.is_set() && !wait_and_look(deadline, wait_for_it)) return false;
    const auto wait_for_these = [&](Deadline until) {
      of_points.clear();
      return wait_for_points(waiter, until, of_points);
    };
    if (!wait_and_look(deadline, wait_for_these)) return false;
    failures.insert(failures.end(), of_points.begin(), of_points.end());
    if (waiter.failure) failures.push_back(waiter.failure);
  }
  if (failures.empty()) return true;
  const OpError error(std::move(failures), core_.link);
  if (!inside) FailureLog::mark_reported(error.failures());  // an op may catch the error and report it to nobody
  throw error;
}

namespace {

/// Searches for a cycle at growing intervals, each time among more ops. So searches always take a small share of a
/// wait's time. For a wait without a limit inside an op, which is entered in the wait graph.
class RingWatch {
 public:
  using Clock = std::chrono::steady_clock;

  /// When the next search is due.
  Clock::time_point next() const { return next_; }
  /// Throws WaitCycleError if a search is due and finds a cycle.
  void look() {
    const Clock::time_point began = Clock::now();
    if (began < next_) return;
    const WaitGraph::Ring ring = WaitGraph::of_process().find_ring(Running::innermost(), looks_);
    if (!ring.text.empty()) throw WaitCycleError(ring.text);
    if (!ring.whole) looks_ *= 2;
    const Clock::time_point now = Clock::now();
    patience_ =
        std::max(std::min<Clock::duration>(2 * patience_, longest_ring_patience), share_of_searches * (now - began));
    next_ = now + patience_;
  }

 private:
  Clock::duration patience_ = ring_patience;
  Clock::time_point next_ = Clock::now() + ring_patience;
  std::size_t looks_ = first_ring_looks;
};

/// Waits after the ops of this thread have freed their slots for other threads.
bool wait_beside_others(Waiter& waiter, Deadline deadline, const SlotsFree& slots, RingWatch& rings) {
  // A wait with a time limit ends, so it cannot be part of a cycle.
  if (Running::innermost() == nullptr || deadline) {
    if (waiter.granted.wait(deadline)) return true;
    slots.let_others_in();
    return waiter.granted.is_set();
  }
  while (!waiter.granted.wait(rings.next())) rings.look();
  return true;
}

/// Waits for a short time when no other thread is left to run ops, and no ready op is ahead of the wait. So the wait
/// depends either on waiting threads whose ops are ahead of it, or on no thread of the engine.
bool wait_as_last(Waiter& waiter, std::chrono::nanoseconds search_took, Deadline deadline, RingWatch& rings) {
  const auto next_look = std::chrono::steady_clock::now() +
                         std::max<std::chrono::nanoseconds>(looks_of_last_thread, share_of_searches * search_took);
  if (waiter.granted.wait(deadline ? std::min(*deadline, next_look) : std::min(rings.next(), next_look))) return true;
  if (!deadline) rings.look();
  return false;
}

}  // namespace

bool WaitRecords::wait_long(const VariableWait& wait, Deadline deadline) {
  Waiter& waiter = *wait.waiter;
  core_.front.ports.hand_over();
  RunWhileWaiting others(core_, waits_, wait, deadline);
  if (!deadline) others.run_near();
  for (int look = 0; look < yielding_looks && !has_passed(deadline); ++look) {
    if (waiter.granted.is_set()) return true;
    std::this_thread::yield();
  }
  others.enter();
  if (!deadline && others.lacks_threads()) others.run_any();
  using IfNobodyIsLeft = SlotsFree::IfNobodyIsLeft;
  RingWatch rings;
  do {
    if (waiter.granted.is_set()) return true;
    {
      const SlotsFree slots(waiter, others.is_possible() ? IfNobodyIsLeft::keep_them : IfNobodyIsLeft::refuse);
      if (!slots.kept()) {
        others.withdraw();
        return wait_beside_others(waiter, deadline, slots, rings);
      }
    }
    others.offer();
    others.run_any();
    if (wait_as_last(waiter, others.search_took(), deadline, rings)) return true;
  } while (!has_passed(deadline));
  return waiter.granted.is_set();
}

bool Waits::wait_for_points(const Waiter& waiter, Deadline deadline, std::vector<FailurePtr>& failures) {
  if (waiter.points.empty()) return true;
  const SlotsFree slots(SlotsFree::IfNobodyIsLeft::keep_them);  // a lane does not need threads of the engine
  for (const Awaited& awaited : waiter.points) {
    std::exception_ptr error;
    if (!wait_until_reached(awaited.mark.point, deadline, error)) return false;
    if (error && awaited.if_failed == IfFailed::fail) failures.push_back(core_.back.lost(*awaited.mark.info, error));
  }
  return true;
}

bool Waits::wait_all(Deadline deadline) {
  core_.life.refuse_unusable();
  refuse_where_others_wait();
  refuse_where_diverted(core_.front.ports.mine());
  if (const Running* frame = core_.frame_of_mine()) {
    throw MisuseError("wait_all inside op '" + std::string(frame->op->info().name) +
                      "' would wait for that op itself; wait for variables instead");
  }
  ++calls;
  std::vector<FailurePtr> failures;
  {
    const SlotsFree slots;
    const auto wait_for_all = [&](Deadline until) {
      failures.clear();
      return wait_until_idle(until) && wait_until_lanes_reached(until, failures);
    };
    if (!wait_and_look(deadline, wait_for_all)) return false;
  }
  core_.front.take_dropped();  // and destroys them
  for (FailurePtr& root : core_.back.failures.to_report()) {
    if (std::find(failures.begin(), failures.end(), root) == failures.end()) failures.push_back(std::move(root));
  }
  if (failures.empty()) {
    core_.back.failures.reported({});
    return true;
  }
  const OpError error(std::move(failures), core_.link);
  core_.back.failures.reported(error.failures());  // only from here on is it certain that the caller gets the error
  throw error;
}

bool Waits::wait_until_idle(Deadline deadline) {
  core_.front.ports.hand_over();
  for (int look = 0; look < yielding_looks; ++look) {
    if (core_.front.ports.sums().pending == 0) return true;
    std::this_thread::yield();
  }
  MutexLock lock(idle_mutex);
  idle_waiters.fetch_add(1);
  bool in_time = true;
  while (core_.front.ports.sums().pending != 0 && in_time) {
    if (!deadline) {
      idle.wait(idle_mutex);
    } else {
      in_time = idle.wait_until(idle_mutex, *deadline);
    }
  }
  idle_waiters.fetch_sub(1);
  return in_time || core_.front.ports.sums().pending == 0;
}

void Waits::tell_if_idle() {
  // A read-modify-write: if another thread begins to wait, the later of the two sees what the earlier one did.
  if (idle_waiters.fetch_add(0) == 0 || core_.front.ports.sums().pending != 0) return;
  MutexLock lock(idle_mutex);
  idle.notify_all();
}

void Waits::end_wait(OpRecord& op, ReadyList& ready) noexcept {
  const std::shared_ptr<Waiter> waiter = op.waiter();
  waiter->failure = core_.back.first_poison(op);
  if (core_.back.has_ordered()) {
    // The waiting thread awaits the points: a record that stayed in the chain meanwhile would keep other ops from being
    // issued.
    for_each_mark(op, [&](const Mark& mark, IfFailed if_failed) { waiter->points.push_back({mark, if_failed}); });
  }
  op.end_body();
  if (core_.monitor.trace.on())
    core_.monitor.trace.record(core_.front.ports.mine(), op, {.kind = TraceRecord::Kind::wait});
  op.set_id(0);
  core_.front.leave(op, ready);
  if (Slots* const slots = waiter->left.exchange(nullptr)) slots->unblock_other();
  waiter->granted.set();
  Port& port = core_.front.ports.mine();
  Port::add(port.waits_left, 1);
  core_.back.one_less_pending(port);
}

bool Waits::wait_until_lanes_reached(Deadline deadline, std::vector<FailurePtr>& failures) {
  const std::size_t count = core_.lanes.count();
  for (std::size_t i = 0; i < count; ++i) {
    LaneState* const lane = &core_.lanes.lane_at(i);
    const Point last = lane->last();
    std::exception_ptr error;
    if (last && !wait_until_reached(last, deadline, error)) return false;
    if (error) failures.push_back(lane->failure(core_.back.failures, error));
  }
  return true;
}

namespace {

struct Arrival {
  Signal reached;
  std::exception_ptr error;  // written before `reached`
};

}  // namespace

void Waits::reach(Point point) noexcept {
  Arrival arrival;
  // The callback captures one pointer, for which std::function needs no memory.
  point.lane->when_reached(point, [&arrival](std::exception_ptr e) {
    arrival.error = std::move(e);
    arrival.reached.set();
  });
  while (!arrival.reached.wait(std::chrono::steady_clock::now() + shutdown_notice)) {
    engine_log().warn("windrow: still waits for lane '{}'", point.lane->name());
  }
}

bool Waits::wait_until_reached(Point point, Deadline deadline, std::exception_ptr& error) {
  const auto arrival = std::make_shared<Arrival>();  // shared, since the callback may come after the deadline
  point.lane->when_reached(point, [arrival](std::exception_ptr e) {
    arrival->error = std::move(e);
    arrival->reached.set();
  });
  if (!arrival->reached.wait(deadline)) return false;
  error = arrival->error;
  return true;
}

}  // namespace windrow
