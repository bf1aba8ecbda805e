// Waits for variables, for all ops and for lanes, from outside and from inside an op.
#pragma once

#include <atomic>
#include <exception>
#include <source_location>
#include <vector>

#include "record/op.h"
#include "wait/once_signal.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

class Core;

class Waits {
 public:
  explicit Waits(Core& core) : core_(core) {}
  Waits(const Waits&) = delete;
  Waits& operator=(const Waits&) = delete;

  /// Return false if the deadline passes first. wait() and wait_all() look elsewhere meanwhile: see LookWhileWaiting.
  bool wait(AccessList accesses, Deadline deadline, std::source_location from);
  bool wait_all(Deadline deadline);
  bool wait_until_idle(Deadline deadline);
  static bool wait_until_reached(Point point, Deadline deadline, std::exception_ptr& error);
  /// Waits until the point is reached, without a limit. Needs no memory.
  static void reach(Point point) noexcept;

  // ---- for the back ----
  /// Called when the record of a wait is granted.
  void end_wait(OpRecord& op, ReadyList& ready) noexcept;
  void tell_if_idle();

  std::atomic<std::uint64_t> calls{0}, calls_in_ops{0}, last_id{0};
  Mutex idle_mutex;
  CondVar idle;  ///< notified when possibly nothing is pending
  /// The number of threads that wait for `idle`. Accessed only by read-modify-write: when one thread begins to wait and
  /// another has finished an op, the later one sees what the earlier one did.
  std::atomic<int> idle_waiters{0};

 private:
  bool wait_for_points(const Waiter& waiter, Deadline deadline, std::vector<FailurePtr>& failures);
  bool wait_until_lanes_reached(Deadline deadline, std::vector<FailurePtr>& failures);

  Core& core_;
};

}  // namespace windrow
