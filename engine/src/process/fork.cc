#include "process/fork.h"

#include <pthread.h>

#include "core/core.h"
#include "process/immortal.h"

namespace windrow {
namespace {

/// The interval at which a thread that waits for engines to come to rest looks at them.
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
  refuse_torn();
  if (Running::innermost() != nullptr) return;  // pending ops may wait for this op
  MutexLock lock(mutex_);
  while (shut_ > 0) opened_.wait(mutex_);
}

void ForkGate::refuse_torn() const {
  if (!torn()) return;
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
  core.fork_gate_.next_ = first_;
  first_ = &core;
  for (int i = 0; i < forking_; ++i) shut(core);
}

void Forks::remove(Core& core) noexcept {
  MutexLock lock(mutex_);
  Core** at = &first_;
  while (*at != &core) at = &(*at)->fork_gate_.next_;
  *at = core.fork_gate_.next_;
}

template <class F>
void Forks::for_each(F&& f) WINDROW_UNCHECKED_LOCKING {
  for (Core* core = first_; core != nullptr; core = core->fork_gate_.next_) f(*core);
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
      all.for_each([&](Core& core) { again |= core.fork_gate_.copied_ == Copied::torn && has_time(core, begun); });
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
  return !core.left_ && Clock::now() - begun < core.options.fork_patience;
}

bool Forks::worth_waiting(Clock::time_point begun) noexcept {
  bool worth = false;
  for_each([&](Core& core) {
    ask_lanes(core);
    MutexLock lock(core.table_mutex_);
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
    ForkGate& gate = core.fork_gate_;
    gate.stopped_ = core.ports_.try_stop();
    const bool whole = gate.stopped_ && at_rest(core) && !core.ports_.on_own_thread() && !gate.torn();
    gate.copied_ = whole ? Copied::whole : Copied::torn;
  });
  for_each([&](Core& core) { each_mutex_after_ports(core, lock); });
}

void Forks::go_on() noexcept {
  constexpr EachMutex unlock = EachMutex::unlocking();
  for_each([&](Core& core) {
    each_mutex_after_ports(core, unlock);
    if (std::exchange(core.fork_gate_.stopped_, false)) core.ports_.go_on();
    each_mutex_before_ports(core, unlock);
  });
  Ports::each_mutex_of_process(unlock);
  each_mutex_of_process(unlock);
}

// ---- one engine ----

void Forks::shut(Core& core) {
  {
    MutexLock lock(core.fork_gate_.mutex_);
    ++core.fork_gate_.shut_;
  }
  MutexLock lock(core.table_mutex_);
  for (LaneState& lane : core.lanes_) lane.started.store(false, std::memory_order_release);
}

/// To be called with the gate's mutex held.
void Forks::open(Core& core) WINDROW_UNCHECKED_LOCKING {
  if (--core.fork_gate_.shut_ == 0) core.fork_gate_.opened_.notify_all();
}

void Forks::ask_lanes(Core& core) {
  const std::size_t lanes = core.has_ordered_ ? core.lanes() : 0;
  for (std::size_t i = 0; i < lanes; ++i) {
    LaneState& lane = core.lane_at(i);
    const Point last = lane.last();
    if (!last || (lane.passage && lane.passage->serial == last.serial)) continue;
    lane.passage = std::make_shared<Passage>();
    lane.passage->serial = last.serial;
    last.lane->when_reached(last, [passage = lane.passage](const std::exception_ptr& error) {
      passage->state = error ? Passage::State::failed : Passage::State::passed;
    });
  }
}

bool Forks::has_passed(const LaneState& lane) {
  const Point last = lane.last();
  return !last ||
         (lane.passage && lane.passage->serial == last.serial && lane.passage->state == Passage::State::passed);
}

/// To be called with the engine's `table_mutex_` held.
bool Forks::at_rest(Core& core) WINDROW_UNCHECKED_LOCKING {
  if (core.ports_.sums().pending != 0) return false;
  {
    MutexLock lock(core.launches_mutex_);
    if (core.launches_ != nullptr) return false;
  }
  return std::all_of(core.lanes_.begin(), core.lanes_.end(), has_passed);
}

void Forks::each_mutex_before_ports(Core& core, EachMutex f) WINDROW_UNCHECKED_LOCKING {
  f(core.table_mutex_);
  f(core.fork_gate_.mutex_);
  core.policy_->each_mutex(f);
  if (core.watchdog_) core.watchdog_->each_mutex(f);
}

void Forks::each_mutex_after_ports(Core& core, EachMutex f) WINDROW_UNCHECKED_LOCKING {
  core.sites_.each_mutex(f);
  if (core.access_check_) core.access_check_->each_mutex(f);
  for (LaneState& lane : core.lanes_) lane.each_mutex(f);
  core.failures_.each_mutex(f);
  f(core.launches_mutex_);
  core.held_back_.each_mutex(f);
  core.held_back_by_bytes_.each_mutex(f);
  f(core.idle_mutex_);
  f(core.point_mutex_);
  core.records_.each_mutex(f);
  core.trace_.each_mutex(f);
}

void Forks::begin_anew(Core& core) noexcept WINDROW_UNCHECKED_LOCKING {
  const Copied copied = core.fork_gate_.copied_;
  core.fork_gate_.shut_ = 0;
  core.fork_gate_.opened_.forget_waiters();
  core.fork_gate_.torn_ = copied == Copied::torn;
  core.ports_.forget_threads();
  core.policy_->forget_threads(copied);
  if (core.watchdog_) core.watchdog_->forget_thread();
  core.shutdown_mutex_.forget_holder();
  core.idle_.forget_waiters();
  core.trace_path_.clear();  // the parent writes that file
  for (LaneState& lane : core.lanes_) {
    lane.started = false;
    if (!lane.ordered) continue;
    lost_lanes_.push_back(lane.ordered);
    lane.forget_device();
  }
  for (VarState& var : core.vars_) var.residue_lock.unlock();
  if (copied == Copied::torn) return;
  for (VarState& var : core.vars_) drop_marks(var);  // all points have been passed
  core.idle_waiters_ = 0;
  core.visitors_ = 0;
  core.link_->forget_users();
  core.pending_bytes_.forget_threads();
  core.held_back_.forget_threads();
  core.held_back_by_bytes_.forget_threads();
  if (core.life_ != Core::Life::draining) return;
  core.life_ = Core::Life::running;  // the thread that drained does not exist
  core.detours_ &= ~unsigned{Core::by_end};
  core.left_ = false;
}

}  // namespace windrow
