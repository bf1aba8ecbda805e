// A thread whose op waits runs, on the same stack, ready ops that the wait depends on. Such ops are "ahead" of the
// wait.
//
// Why this adds no deadlock. Let op X wait through a record W, which has no function. The thread runs an op Y above X
// only if W cannot be granted before Y has finished. So X cannot continue before Y has finished, on whichever thread Y
// runs, and sharing a stack makes no op wait for another. The same holds for all ops further down the stack. Y is such
// an op if
//   - Y joined a variable before W, and they conflict there (rules R1 and R2 of docs/protocol.md), or
//   - the wait graph has a path from W to Y of edges "cannot finish before" (wait_graph.h).
// Both conditions hold until Y has finished. Y was taken from the ready ops, so it has not begun.
//
// Why no wait is stuck if all threads wait. Go from a wait to ops that are ahead of it, and on through the waits of
// those that have begun. Without a cycle this leads to a ready op. If it belongs to the thread's own engine, the thread
// runs it. If it belongs to another engine, all of whose threads wait as well, the thread runs it in the place of one
// of them (GuestSlots).
//
// How many threads wait at the same time, if ops wait only for ops that they have pushed. A thread leaves its place to
// a spare thread only when the ops that its innermost op waits for run on other threads, or are among their ready ops.
// An op moves only to a thread whose stack is empty. Now go from a waiting thread to the thread that runs, at the
// bottom of its stack, an op that the first one waits for. No two threads lead to the same thread, each thread is at
// least one level deeper in the recursion than the one before, and the last thread runs. So there are as many such
// chains as workers, and no chain is longer than the depth of the recursion.
#pragma once

#include <chrono>
#include <optional>
#include <set>

#include "core/core.h"
#include "core/entry.h"
#include "record/ports.h"

namespace windrow {

/// Enters a thread's ops in the wait graph during its lifetime, while they wait. `wait` must outlive it.
class Waiting {
 public:
  Waiting(const Running* frames, const std::vector<OpKey>& wait) : frames_(frames), wait_(wait) {
    WaitGraph::of_process().enter(frames, wait);
  }
  ~Waiting() { WaitGraph::of_process().leave(frames_, wait_); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  const Running* const frames_;
  const std::vector<OpKey>& wait_;
};

/// Runs ops ahead of one call of wait, while the call awaits one of its records. `waits` holds all of its records.
class RunWhileWaiting {
 public:
  /// A wait with a deadline always ends, so it is not entered in the wait graph.
  RunWhileWaiting(Core& core, const std::vector<VariableWait>& waits, const VariableWait& awaited, Deadline deadline)
      : waits_(waits), awaited_(awaited), limited_(deadline.has_value()), frame_(Running::innermost()) {
    if (frame_ == nullptr) return;
    for (const VariableWait& wait : waits) keys_.push_back({core.number, wait.id});
  }

  /// Enters the wait in the wait graph until it ends, so that others see what it waits for.
  void enter() {
    if (frame_ != nullptr && !limited_ && !waiting_) waiting_.emplace(frame_, keys_);
  }

  /// Whether this thread may run ops of its innermost op's engine. It may not if ops of several engines wait on this
  /// thread, since each engine has its own slots.
  bool is_possible() const {
    return frame_ != nullptr && frame_->slots != nullptr && frame_->outer == Running::floor() && Stack::has_room();
  }
  /// Whether freeing this thread's slot would require one more thread, and there are many already.
  bool lacks_threads() const { return is_possible() && frame_->slots->lacks_threads(); }

  /// Runs ops that are found cheaply: ops among the newest of this thread that the wait directly depends on. Also runs
  /// ops without a function that it meets, such as retires: these wait for nothing, and would otherwise pile up.
  void run_near() {
    if (!is_possible()) return;
    const auto is_wanted = [this](OpRecord& op) { return op.body() == OpRecord::Body::none || is_ahead(op); };
    run(is_wanted, [this](const Wanted& wanted) { return frame_->slots->take_wanted(wanted); });
  }
  /// Runs all ready ops ahead of the wait, in all queues. Runs ops of other engines only after offer(), since otherwise
  /// the slot of the op below would be unused meanwhile. To find them, it inspects all pending ops.
  void run_any() {
    search_took_ = {};
    while (is_possible() && !is_granted()) {
      const auto began = std::chrono::steady_clock::now();
      const std::set<OpKey> ahead = WaitGraph::of_process().ahead_of(keys_);
      search_took_ = std::chrono::steady_clock::now() - began;
      if (ahead.empty()) return;
      if (!run_own(ahead) && !(offered_ && run_of_others(ahead))) return;
    }
  }
  /// From offer() to withdraw(), or to the end of the wait, other threads may run ops on the slot that this thread
  /// keeps. Call it only if is_possible().
  void offer() {
    if (!offered_) offered_.emplace(guest_slots());
  }
  void withdraw() { offered_.reset(); }
  /// How long the last search of run_any() took.
  std::chrono::nanoseconds search_took() const { return search_took_; }

 private:
  /// Limits the stack that a thread uses for ops that it runs above others. Beyond the limit, other threads run them.
  class Stack {
   public:
    Stack() {
      if (bottom_ == nullptr) bottom_ = here();
    }
    ~Stack() {
      if (was_empty_) bottom_ = nullptr;
    }
    Stack(const Stack&) = delete;
    Stack& operator=(const Stack&) = delete;

    static bool has_room() {
      const std::ptrdiff_t used = bottom_ == nullptr ? 0 : bottom_ - here();
      return -most < used && used < most;
    }

   private:
    static constexpr std::ptrdiff_t most = 256 * 1024;
    [[gnu::always_inline]] static const char* here() { return static_cast<const char*>(__builtin_frame_address(0)); }

    static inline constinit thread_local const char* bottom_ = nullptr;
    const bool was_empty_ = bottom_ == nullptr;
  };

  /// During its lifetime the thread's ops wait, and the ops that the thread runs are above them on the stack.
  struct Below {
    const InsideWait inside_;
    const Running::Floor floor_;  // declared after the previous member, which uses the frames above the previous floor
    const Stack stack_;
  };

  template <class Take>
  bool run(const Wanted& wanted, const Take& take) {
    OpRecord* op = take(wanted);
    if (op == nullptr) return false;
    try {
      enter();
    } catch (...) {
      frame_->core->back.policy->add(*op);
      throw;
    }
    const Below below;
    const bool offered = offered_.has_value();
    withdraw();
    for (; op != nullptr; op = is_granted() || !Stack::has_room() ? nullptr : take(wanted)) {
      run(*op, wanted, *frame_->core, frame_->slots);
    }
    if (offered) offer();
    return true;
  }

  bool run_own(const std::set<OpKey>& ahead) {
    Core& core = *frame_->core;
    const auto is_wanted = [&](OpRecord& op) { return ahead.contains({core.number, op.id()}); };
    return run(is_wanted, [&](const Wanted& wanted) { return core.back.policy->take_wanted_anywhere(wanted); });
  }

  /// Runs an op of another engine all of whose threads wait. Excludes policy serial, whose ops run one at a time even
  /// when threads continue after their waits.
  bool run_of_others(const std::set<OpKey>& ahead) {
    enter();
    for (auto key = ahead.begin(); key != ahead.end(); key = ahead.upper_bound({key->engine, ~OpId{0}})) {
      if (key->engine == frame_->core->number) continue;
      OpRecord* op = nullptr;
      std::optional<Visit> visit;  // the engine may end as soon as the op has finished
      Core* other = nullptr;
      const auto is_wanted = [&](OpRecord& each) { return ahead.contains({key->engine, each.id()}); };
      WaitGraph::of_process().with_engine(key->engine, [&](Core& core) {
        core.front.ports.mine();
        if (core.callers_run || core.life.unusable() || !core.back.policy->guest_slots().take()) return;
        op = core.back.policy->take_wanted_anywhere(is_wanted);
        if (op == nullptr) return core.back.policy->guest_slots().give_back();
        visit.emplace(core);
        other = &core;
      });
      if (op == nullptr) continue;
      const Below below;
      run(*op, is_wanted, *other, &other->back.policy->guest_slots());
      other->back.policy->guest_slots().give_back();
      return true;
    }
    return false;
  }

  /// Runs the op, and then the successors that it makes ready, as long as they are also wanted.
  static void run(OpRecord& first, const Wanted& wanted, Core& core, Slots* slots) noexcept {
    OpsInARow row{.slots = slots, .goes_on = false, .port = core.front.ports.mine()};
    OpRecord* next = &first;
    do {
      next = core.back.run_one(*next, row);
    } while (next != nullptr && !slots->wants_thread_back() && wanted(*next));
    if (next != nullptr) core.back.policy->add(*next);
  }

  GuestSlots& guest_slots() const { return frame_->core->back.policy->guest_slots(); }
  bool is_granted() const { return awaited_.waiter->granted.is_set(); }

  /// Whether the wait directly depends on the op, which is ready and belongs to this thread.
  bool is_ahead(OpRecord& op) const {
    for (const Dep::Access& access : op.accesses()) {
      for (const VariableWait& wait : waits_) {
        if (wait.var != &var_of(access) || (wait.kind == AccessKind::read && !access.writes())) continue;
        // If the op joined in a later life of the variable, its ticket is meaningless. But then the wait was granted
        // before the op joined, which this thread sees.
        if (static_cast<std::int32_t>(access.ticket() - wait.ticket) < 0 && !wait.waiter->granted.is_set()) return true;
      }
    }
    return false;
  }

  const std::vector<VariableWait>& waits_;
  const VariableWait& awaited_;
  const bool limited_;
  Running* const frame_;
  std::vector<OpKey> keys_;
  std::optional<Waiting> waiting_;
  std::optional<GuestSlots::Offer> offered_;
  std::chrono::nanoseconds search_took_{0};
};

}  // namespace windrow
