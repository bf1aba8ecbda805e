#include "process/fork.h"

#include <pthread.h>

#include "core/core.h"
#include "process/immortal.h"

namespace windrow {
namespace {

/// The interval at which a forking thread checks whether engines have come to rest.
constexpr std::chrono::microseconds between_looks{100};

/// Calls f for these mutexes in the order in which they are locked.
void each_mutex_of_process(EachMutex f) {
  WaitGraph::of_process().each_mutex(f);
  each_mutex_of_names(f);
  each_mutex_of_page_guards(f);
}

}  // namespace

// ---- the gate ----

ForkGate::ForkGate() { Forks::of_process(); }

void ForkGate::pass() {
  refuse_unusable();
  if (Running::innermost() != nullptr) return;  // pending ops may wait for this op
  MutexLock lock(mutex_);
  while (shut_ > 0) opened_.wait(mutex_);
}

void ForkGate::refuse_unusable() const {
  if (!unusable()) return;
  throw MisuseError(
      "this engine was copied by fork() while ops were pending, and they do not run in the child; make a new engine "
      "there, or fork when nothing is pending");
}

// ---- the process ----

Forks& Forks::of_process() {
  static const bool told = [] {
    if (pthread_atfork(prepare, in_parent, in_child) != 0) throw std::bad_alloc();
    return true;
  }();
  static_cast<void>(told);
  return immortal<Forks>();
}

void Forks::add(Core& core) noexcept {
  MutexLock lock(mutex_);
  core.life.fork_gate.next_ = first_;
  first_ = &core;
  for (int i = 0; i < forking_; ++i) shut(core);
}

void Forks::remove(Core& core) noexcept {
  MutexLock lock(mutex_);
  Core** at = &first_;
  while (*at != &core) at = &(*at)->life.fork_gate.next_;
  *at = core.life.fork_gate.next_;
}

template <class F>
void Forks::for_each(F&& f) WINDROW_UNCHECKED_LOCKING {
  for (Core* core = first_; core != nullptr; core = core->life.fork_gate.next_) f(*core);
}

void Forks::prepare() noexcept WINDROW_UNCHECKED_LOCKING {
  Forks& all = of_process();
  const auto begun = Clock::now();
  const bool patient = Running::innermost() == nullptr;  // inside an op, the wait would be for the op itself
  all.mutex_.lock();
  if (patient) {
    ++all.forking_;
    all.for_each(shut);
  }
  while (true) {
    if (!patient || !all.worth_waiting(begun)) {
      all.stop();
      bool again = false;
      all.for_each(
          [&](Core& core) { again |= core.life.fork_gate.copied_ == Copied::unusable && has_time(core, begun); });
      if (!patient || !again) break;
      all.go_on();
    }
    all.mutex_.unlock();  // ops may make and end engines, and fork
    std::this_thread::sleep_for(between_looks);
    all.mutex_.lock();
  }
  if (patient) {
    --all.forking_;
    all.for_each(open);
  }
  each_mutex_of_callables(EachMutex::locking());
}

void Forks::in_parent() noexcept WINDROW_UNCHECKED_LOCKING {
  each_mutex_of_callables(EachMutex::unlocking());
  Forks& all = of_process();
  all.go_on();
  all.mutex_.unlock();
}

void Forks::in_child() noexcept WINDROW_UNCHECKED_LOCKING {
  each_mutex_of_callables(EachMutex::unlocking());
  Forks& all = of_process();
  all.for_each([&](Core& core) { all.begin_anew(core); });
  all.forking_ = 0;
  all.go_on();
  WaitGraph::of_process().forget_threads();
  all.mutex_.unlock();
}

bool Forks::has_time(const Core& core, Clock::time_point begun) {
  return !core.life.left_behind && Clock::now() - begun < core.options.fork_patience;
}

bool Forks::worth_waiting(Clock::time_point begun) noexcept {
  bool worth = false;
  for_each([&](Core& core) {
    ask_lanes(core);
    MutexLock lock(core.lanes.mutex);
    worth |= has_time(core, begun) && !at_rest(core);
  });
  return worth;
}

void Forks::stop() noexcept {
  constexpr EachMutex lock = EachMutex::locking();
  each_mutex_of_process(lock);
  for_each([&](Core& core) { each_mutex_before_ports(core, lock); });
  Ports::each_mutex_of_process(lock);
  for_each([](Core& core) {
    ForkGate& gate = core.life.fork_gate;
    gate.stopped_ = core.front.ports.try_stop();
    const bool whole = gate.stopped_ && at_rest(core) && !core.front.ports.on_own_thread() && !gate.unusable();
    gate.copied_ = whole ? Copied::whole : Copied::unusable;
  });
  for_each([&](Core& core) { each_mutex_after_ports(core, lock); });
}

void Forks::go_on() noexcept {
  constexpr EachMutex unlock = EachMutex::unlocking();
  for_each([&](Core& core) {
    each_mutex_after_ports(core, unlock);
    if (std::exchange(core.life.fork_gate.stopped_, false)) core.front.ports.go_on();
    each_mutex_before_ports(core, unlock);
  });
  Ports::each_mutex_of_process(unlock);
  each_mutex_of_process(unlock);
}

// ---- one engine ----

void Forks::shut(Core& core) {
  {
    MutexLock lock(core.life.fork_gate.mutex_);
    ++core.life.fork_gate.shut_;
  }
  MutexLock lock(core.lanes.mutex);
  for (LaneState& lane : core.lanes.all) lane.started.store(false, std::memory_order_release);
}

/// To be called with the gate's mutex held.
void Forks::open(Core& core) WINDROW_UNCHECKED_LOCKING {
  if (--core.life.fork_gate.shut_ == 0) core.life.fork_gate.opened_.notify_all();
}

void Forks::ask_lanes(Core& core) {
  const std::size_t lanes = core.back.has_ordered() ? core.lanes.count() : 0;
  for (std::size_t i = 0; i < lanes; ++i) {
    LaneState& lane = core.lanes.lane_at(i);
    const Point last = lane.last();
    if (!last || (lane.passage && lane.passage->serial == last.serial)) continue;
    lane.passage = std::make_shared<Passage>();
    lane.passage->serial = last.serial;
    last.lane->when_reached(last, [passage = lane.passage](const std::exception_ptr& error) {
      passage->state = error ? Passage::Outcome::failed : Passage::Outcome::passed;
    });
  }
}

bool Forks::has_passed(const LaneState& lane) {
  const Point last = lane.last();
  return !last ||
         (lane.passage && lane.passage->serial == last.serial && lane.passage->state == Passage::Outcome::passed);
}

/// To be called with the engine's `lanes.mutex` held.
bool Forks::at_rest(Core& core) WINDROW_UNCHECKED_LOCKING {
  if (core.front.ports.sums().pending != 0) return false;
  {
    MutexLock lock(core.launches.mutex);
    if (core.launches.first != nullptr) return false;
  }
  return std::all_of(core.lanes.all.begin(), core.lanes.all.end(), has_passed);
}

void Forks::each_mutex_before_ports(Core& core, EachMutex f) WINDROW_UNCHECKED_LOCKING {
  f(core.lanes.mutex);
  core.front.variables.each_mutex(f);
  f(core.front.declared_mutex);
  f(core.life.fork_gate.mutex_);
  core.back.policy->each_mutex(f);
  if (core.monitor.watchdog) core.monitor.watchdog->each_mutex(f);
}

void Forks::each_mutex_after_ports(Core& core, EachMutex f) WINDROW_UNCHECKED_LOCKING {
  core.front.sites.each_mutex(f);
  if (core.back.access_check) core.back.access_check->each_mutex(f);
  for (LaneState& lane : core.lanes.all) lane.each_mutex(f);
  core.back.failures.each_mutex(f);
  f(core.launches.mutex);
  core.pressure.by_ops.each_mutex(f);
  core.pressure.by_bytes.each_mutex(f);
  f(core.waits.idle_mutex);
  f(core.back.point_mutex);
  core.front.records.each_mutex(f);
  core.monitor.trace.each_mutex(f);
}

void Forks::begin_anew(Core& core) noexcept WINDROW_UNCHECKED_LOCKING {
  const Copied copied = core.life.fork_gate.copied_;
  core.life.fork_gate.shut_ = 0;
  core.life.fork_gate.opened_.forget_waiters();
  core.life.fork_gate.unusable_ = copied == Copied::unusable;
  core.front.ports.forget_threads();
  core.back.policy->forget_threads(copied);
  if (core.monitor.watchdog) core.monitor.watchdog->forget_thread();
  core.life.shutdown_mutex.forget_holder();
  core.waits.idle.forget_waiters();
  core.monitor.trace_path.clear();  // the parent writes that file
  for (LaneState& lane : core.lanes.all) {
    lane.started = false;
    if (!lane.ordered) continue;
    lost_lanes_.push_back(lane.ordered);
    lane.forget_device();
  }
  core.front.variables.for_each_in_child([](VarState& var) { var.residue_lock.unlock(); });
  if (copied == Copied::unusable) return;
  core.front.variables.for_each_in_child(drop_marks);  // all points have been passed
  core.waits.idle_waiters = 0;
  core.life.visitors = 0;
  core.link->forget_users();
  core.pressure.pending_bytes.forget_threads();
  core.pressure.by_ops.forget_threads();
  core.pressure.by_bytes.forget_threads();
  if (core.life.phase != Life::Phase::draining) return;
  core.life.phase = Life::Phase::running;  // the thread that drained does not exist
  core.back.detours &= ~unsigned{Back::by_end};
  core.life.left_behind = false;
}

}  // namespace windrow
