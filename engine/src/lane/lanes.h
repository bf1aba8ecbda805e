// The lanes of one engine, and how ops take turns on an ordered lane.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "policy/priority_queue.h"
#include "process/fork.h"
#include "record/failure.h"
#include "record/op.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

class ThreadPool;

/// One lane. An ordered lane issues one op at a time: the running policy holds at most one of its ops, and its other
/// ready ops wait here. They also wait here while `max_in_flight` points are not reached.
class LaneState {
 public:
  LaneState(Core& of, LaneId index, HostLane description) : core(&of), id(index), host(std::move(description)) {}
  LaneState(Core& of, LaneId index, std::shared_ptr<Lane> lane, const LaneOptions& options)
      : core(&of),
        id(index),
        host{std::string(lane->name()), lane->device(), 1},
        ordered(std::move(lane)),
        max_in_flight(options.max_in_flight) {}

  Core* const core;
  const LaneId id;
  const HostLane host;                    ///< name, device and threads; used for ordered lanes, too
  const std::shared_ptr<Lane> ordered;    ///< empty for a host lane
  const std::uint64_t max_in_flight = 0;  ///< of an ordered lane

  std::atomic<bool> started{false};  ///< whether ops may be pushed: the running policy knows the lane
  std::atomic<bool> removed{false};  ///< whether further pushes are refused
  /// Whether the lane issues nothing any more: an op that was pushed while the lane was being removed fails.
  std::atomic<bool> closed{false};
  ThreadPool* pool = nullptr;  ///< the pool that runs its ops, if the policy has pools; written before `started`

  /// Whether the ready op may go to the policy now; otherwise the lane keeps it, until release() returns it or `resume`
  /// gives it to the policy.
  bool admit(OpRecord& op) WINDROW_EXCLUDES(mutex_);
  /// Records a point after the work that the current op issued. Called while that op holds the lane.
  Point record() WINDROW_EXCLUDES(mutex_);
  /// The current op releases the lane. Returns the next op to run, if any. `room`: whether to wait for a point if too
  /// many are not reached.
  enum class Room { wait_for, ignore };
  OpRecord* release(Room room = Room::wait_for) WINDROW_EXCLUDES(mutex_);
  /// Keeps an op of the engine itself until its recorded point is reached. Then core->end_kept() is called, for several
  /// ops at a time.
  void keep(OpRecord& op) noexcept WINDROW_EXCLUDES(mutex_);
  /// Returns the kept ops whose points are reached, linked by Kept::next; null if there are none.
  OpRecord* take_kept() noexcept WINDROW_EXCLUDES(mutex_);
  /// Closes the lane unless an op holds it. Returns whether it is closed.
  bool close_if_idle() WINDROW_EXCLUDES(mutex_);
  /// The error of later pushes and ops.
  MisuseError removed_error() const;
  /// The last recorded point, empty if there is none.
  Point last() const WINDROW_EXCLUDES(mutex_);
  /// For an ordered lane: the numbers of points reached and recorded.
  struct Reached {
    std::uint64_t reached = 0, recorded = 0;
  };
  Reached reached() const WINDROW_EXCLUDES(mutex_);
  /// The root of all failures that the lane's failure causes; made at the first call.
  FailurePtr failure(FailureLog& log, const std::exception_ptr& error) WINDROW_EXCLUDES(mutex_);

  // ---- fork; see fork.h ----
  void each_mutex(EachMutex f) { f(mutex_); }
  /// Called in a forked child while the mutex is held: the lane takes no more ops.
  void forget_device() WINDROW_UNCHECKED_LOCKING {
    lost = true;
    last_ = {};
  }
  std::shared_ptr<Passage> passage;  ///< guarded by the mutex of Forks
  bool lost = false;                 ///< written before the child has a second thread

 private:
  /// Whether few enough points are open to issue another op.
  bool has_room() WINDROW_REQUIRES(mutex_);
  /// The point that ops without room wait for. Half of the points are reached then, so that one callback serves several
  /// ops.
  Point point_of_room() const WINDROW_REQUIRES(mutex_) { return {last_.lane, last_.serial - max_in_flight / 2}; }
  /// Resumes the waiting ops after that point. Until then the lane counts as taken.
  void resume_behind(Point point) WINDROW_EXCLUDES(mutex_);
  void end_kept_behind(std::uint64_t serial) noexcept WINDROW_EXCLUDES(mutex_);

  mutable Mutex mutex_;
  PriorityQueue waiting_ WINDROW_GUARDED_BY(mutex_);
  bool taken_ WINDROW_GUARDED_BY(mutex_) = false;
  Point last_ WINDROW_GUARDED_BY(mutex_);
  std::uint64_t known_reached_ WINDROW_GUARDED_BY(mutex_) = 0;  // a serial
  FailurePtr failure_ WINDROW_GUARDED_BY(mutex_);
  // Kept ops, roughly in the order of their points; only one point at a time has a callback.
  OpRecord* first_kept_ WINDROW_GUARDED_BY(mutex_) = nullptr;
  OpRecord* last_kept_ WINDROW_GUARDED_BY(mutex_) = nullptr;
  bool asks_for_kept_ WINDROW_GUARDED_BY(mutex_) = false;
};

/// The points that an access must come after, by index: the last writer's point and, for a writing access, also the
/// readers' points. No points are added meanwhile, since the op holds the access; another reading op may remove the
/// writer's point.
std::size_t marks_before(const Dep::Access& access);
std::optional<Mark> mark_before(const Dep::Access& access, std::size_t index);

/// Calls `f(mark, if_failed)` for each of these points. An op fails only with the writer of the data that it uses.
/// Needs no memory; no lock is held while `f` runs.
template <class F>
void for_each_mark(OpRecord& op, F&& f) {
  for (Dep::Access& access : op.touches()) {
    for (std::size_t i = 0; i < marks_before(access); ++i) {
      const bool uses = i == 0 && access.kind() != AccessKind::overwrite;
      if (const std::optional<Mark> mark = mark_before(access, i)) f(*mark, uses ? IfFailed::fail : IfFailed::go_on);
    }
  }
}

/// Reserves memory in the op's variables for the mark that it will leave, so that leaving it cannot fail.
void reserve_marks(OpRecord& op, std::size_t lanes);

/// Whether a granted op is a host op, and no ordered lane has left a mark that it must respect.
bool is_apart_from_lanes(OpRecord& op);

/// Called for an op that was issued on an ordered lane: leaves its mark in the memory that reserve_marks() reserved.
/// The variable's residue_lock must be held.
void leave_mark(VarState& var, AccessKind kind, const Mark& mark) noexcept;

/// Forgets all marks. The variable's residue_lock must be held, or nobody else may have access.
void drop_marks(VarState& var);

/// Called for a host op that has waited for the marks before it: removes the marks that are no longer needed. The
/// variable's residue_lock must be held.
void clear_marks(VarState& var, AccessKind kind);

}  // namespace windrow
