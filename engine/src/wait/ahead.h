// What a thread does whose op waits: it runs ops ahead of the wait, on its own stack, as long as some are ready.
//
// Why nothing waits for ever that would not without this: an op Y is run above an op X only if X waits for a record W,
// without a function, that cannot be granted before Y has finished. So X cannot go on before Y has finished, wherever Y
// runs, and no op comes to wait for another through sharing a stack. The same holds for all ops below on the stack.
// What makes Y such an op:
//   - Y has joined a variable before W, and they conflict there (rules R1 and R2 of docs/protocol.md); or
//   - the wait graph leads from W to Y by edges "cannot finish before" (wait_graph.h).
// Either is true for as long as Y has not finished, and Y, which was taken from among the ready ops, has not begun.
//
// How many threads wait at once, where ops wait for those alone that they have pushed: a thread leaves its place to a
// spare thread only when what its innermost op waits for runs on other threads, or is among their ready ops. Ops change
// threads only to one whose stack is empty. So follow from a thread that waits to that which runs, at the bottom of its
// stack, what it waits for: no two threads lead to the same one, each is at least a level deeper in the recursion, and
// the last one runs. There are as many such chains as workers, and none is longer than the recursion is deep.
#pragma once

#include <optional>
#include <set>

#include "core/core.h"
#include "core/ports.h"
#include "wait/inside_wait.h"

namespace windrow {

/// The entry in the wait graph of a thread's ops, while they wait.
class Waiting {
 public:
  Waiting(const Running* frames, const std::vector<OpKey>& wait) : frames_(frames) {
    WaitGraph::of_process().enter(frames, wait);
  }
  ~Waiting() { WaitGraph::of_process().leave(frames_); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  const Running* const frames_;
};

/// Of one call of wait, while it awaits one of its records, all of which are in `waits`.
class Core::Ahead {
 public:
  Ahead(Core& core, const std::vector<VariableWait>& waits, const VariableWait& awaited)
      : waits_(waits), awaited_(awaited), frame_(Running::innermost()) {
    if (frame_ == nullptr) return;
    for (const VariableWait& wait : waits) keys_.push_back({core.number, wait.id});
  }

  /// The records of the wait, to be left word of.
  const std::vector<OpKey>& keys() const { return keys_; }

  /// Whether this thread may run ops of its innermost op's engine. Not where ops of several engines wait on it, each of
  /// which has slots of its own.
  bool is_possible() const {
    return frame_ != nullptr && frame_->slots != nullptr && frame_->outer == Running::floor() && Stack::has_room();
  }
  /// Whether it costs a thread to leave this one's slot to others, and there are many.
  bool lacks_threads() const { return is_possible() && frame_->slots->lacks_threads(); }

  /// Runs what is easily found: ops that the wait depends on directly, among the newest of this thread. And those on
  /// the way that have no function, such as retires, which wait for nothing: so that they do not pile up.
  void run_near() {
    if (!is_possible()) return;
    const auto is_wanted = [this](OpRecord& op) { return op.body() == OpRecord::Body::none || is_ahead(op); };
    run(is_wanted, [this](const Wanted& wanted) { return frame_->slots->take_wanted(wanted); });
  }
  /// Runs all that is ready ahead of the wait, wherever it is; for that it looks at all that is pending.
  void run_any() {
    while (is_possible() && !awaited_.waiter->granted.is_set()) {
      const std::set<OpId> ahead = WaitGraph::of_process().ahead_of(keys_, *frame_->core);
      const auto is_wanted = [&ahead](OpRecord& op) { return ahead.contains(op.id()); };
      const auto take = [this](const Wanted& wanted) { return frame_->core->policy_->take_wanted_anywhere(wanted); };
      if (ahead.empty() || !run(is_wanted, take)) return;
    }
  }

 private:
  /// How much of a thread's stack the ops take that it runs above others. Beyond that they are left to other threads.
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

  /// While it lives, the thread's ops wait, and what it runs is above them.
  class Below {
   public:
    Below(const Running* frames, const std::vector<OpKey>& wait) : waiting_(frames, wait) {}

   private:
    const Waiting waiting_;
    const InsideWait inside_;
    const Running::Floor floor_;  // last: the others speak for the frames above the floor before
    const Stack stack_;
  };

  template <class Take>
  bool run(const Wanted& wanted, const Take& take) {
    OpRecord* op = take(wanted);
    if (op == nullptr) return false;
    std::optional<Below> below;
    try {
      below.emplace(frame_, keys_);
    } catch (...) {
      frame_->core->policy_->add(*op);
      throw;
    }
    for (; op != nullptr; op = is_granted() || !Stack::has_room() ? nullptr : take(wanted)) run(*op, wanted);
    return true;
  }

  /// The op, and what it makes ready if that is wanted too.
  void run(OpRecord& first, const Wanted& wanted) noexcept {
    Core& core = *frame_->core;
    Row row{.slots = frame_->slots, .goes_on = false, .port = core.ports_.mine()};
    OpRecord* next = &first;
    do {
      next = core.run_one(*next, row);
    } while (next != nullptr && !core.policy_->wants_thread_back() && wanted(*next));
    if (next != nullptr) core.policy_->add(*next);
  }

  bool is_granted() const { return awaited_.waiter->granted.is_set(); }

  /// Whether the op, which is ready and this thread's own, is one that the wait directly depends on.
  bool is_ahead(OpRecord& op) const {
    for (const Dep::Access& access : op.accesses()) {
      for (const VariableWait& wait : waits_) {
        if (wait.var != &var_of(access) || (wait.kind == AccessKind::read && !access.writes())) continue;
        // If it has joined in a later life of the variable, its ticket says nothing; but then the wait was granted
        // before that op joined, and is seen to be.
        if (static_cast<std::int32_t>(access.ticket() - wait.ticket) < 0 && !wait.waiter->granted.is_set()) return true;
      }
    }
    return false;
  }

  const std::vector<VariableWait>& waits_;
  const VariableWait& awaited_;
  Running* const frame_;
  std::vector<OpKey> keys_;
};

}  // namespace windrow
