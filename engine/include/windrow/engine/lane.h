// Lanes and points: the engine's only abstraction of devices.
//
// An op runs on a lane. On a host lane, an op's effects are complete when its function returns (or its OnComplete is
// called). On an ordered lane, such as a CUDA stream, the function only issues work; the effects are complete when the
// lane reaches the op's point. The engine releases a successor
// - on the same ordered lane as soon as the op is issued,
// - on another ordered lane as soon as the op is issued, after telling that lane to wait for the point,
// - on a host lane when the point is reached.
// So no host thread blocks on a device. The exception is policy serial, which ends each op before the next begins, also
// on an ordered lane, so that a device can be debugged like the host: push returns when the op's point is reached. (An
// asynchronous op ends when its OnComplete is called, with every policy.)
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <chrono>
#include <compare>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace windrow {

class Lane;

/// A position in the queue of an ordered lane. A value. `serial` counts the lane's points from 1 and is never reused,
/// so a recycled device event cannot satisfy an old wait.
struct Point {
  Lane* lane = nullptr;
  std::uint64_t serial = 0;

  explicit operator bool() const { return lane != nullptr; }
  friend bool operator==(const Point&, const Point&) = default;
};

/// Work that a device did for a lane. A value.
struct DeviceWork {
  std::string name = {};
  std::chrono::steady_clock::time_point begin{}, end{};
};

/// Whether work that waits for a point fails if that point's work failed. `fail`: the later work uses what the failed
/// work was to write. `go_on`: it needs only the order, since it overwrites that value or what the failed work read.
enum class IfFailed : std::uint8_t { fail, go_on };

/// An ordered lane. A device room implements it; each lane is added to one engine only. The engine calls enter(),
/// wait(), record() and leave() from one thread at a time, in issue order, and the other members from any thread, also
/// from inside a callback. So a lane must not hold a lock that its members take while it calls a callback. No member
/// throws. An op of the lane may call record() and when_reached() as well.
///
/// Failure: once a lane has failed, it stays failed, and reports the same exception_ptr for each later point. A lane
/// that waits for a failed point with IfFailed::fail fails too.
class Lane {
 public:
  virtual ~Lane() = default;
  virtual std::string_view name() const = 0;
  /// Lanes with equal numbers share a device.
  virtual int device() const = 0;

  /// Begins a section in which the calling thread issues work: calls of wait(), the function of an op, record(). For
  /// example, makes the lane's device the current one of the thread. Sections of several lanes nest where an op's
  /// function pushes with policy serial.
  virtual void enter() noexcept {}
  /// Ends the section, on the same thread, and undoes what enter() did. Returns the error of the work issued in it, if
  /// one is already known, for example a kernel that could not be launched. The op fails with this error unless its
  /// function has thrown. Later ops of the lane are not affected.
  virtual std::exception_ptr leave() noexcept { return nullptr; }
  /// For enter(): whether nobody else relies on settings of the calling thread, such as its current device, so that
  /// leave() need not restore them. The thread was started by an engine without EngineOptions::on_thread_start, and is
  /// not inside an op.
  static bool thread_is_free() noexcept;

  /// Returns the point after all work issued so far.
  virtual Point record() noexcept = 0;
  /// Whether a point that record() returned is reached, successfully or by the failure of the lane. Cheap, and never
  /// blocks.
  virtual bool reached(Point point) const noexcept = 0;
  /// Whether wait() supports points of the other lane. If not, the engine waits for the point on the host.
  virtual bool can_wait_for(const Lane& other) const noexcept = 0;
  /// Makes work that is issued from now on start after the point. Does not block the caller.
  virtual void wait(Point point, IfFailed if_failed) noexcept = 0;

  using Reached = std::function<void(std::exception_ptr)>;
  /// Calls `callback` once, when the point is reached, with the failure or null: immediately on this thread if the
  /// point is already reached, otherwise later on a thread of the lane. The callback neither throws nor blocks.
  virtual void when_reached(Point point, Reached callback) noexcept = 0;

  /// Called after record() for a point for which someone will probably wait after further work has been issued. A lane
  /// that can only wait for all work issued so far may note the point now.
  virtual void anticipate(Point point [[maybe_unused]]) noexcept {}
  /// The same for the next recorded point. An op of the lane calls it while it issues work, if ops that are pushed
  /// later will wait for this work.
  virtual void anticipate_next() noexcept {}

  /// Called by one thread at a time when a trace of the engine starts: from now on the lane notes when its device does
  /// work, but no more than `most` times. A lane that cannot do so does nothing.
  virtual void start_trace(std::uint64_t most [[maybe_unused]]) noexcept {}
  /// Called when the trace stops.
  virtual void stop_trace() noexcept {}
  /// The finished work that was noted for the last trace, in any order.
  virtual std::vector<DeviceWork> traced() { return {}; }

  /// Called once by Engine::remove_lane: all recorded points are reached, and the engine issues nothing more. The lane
  /// may release its queue. The object lives on with the engine, and the other members still answer for old points.
  virtual void close() noexcept {}
};

/// How an engine uses an ordered lane. A value.
struct LaneOptions {
  /// The most ops that are issued before the points of the earlier ones are reached; at least 1. Ready ops beyond it
  /// wait, and count as pending, so EngineOptions::max_pending_ops holds back a thread that pushes faster than the
  /// device works.
  std::uint32_t max_in_flight = 1024;
};

/// Names a lane of one engine. A value, returned by Engine::add_lane. The default value names the host lane of any
/// engine.
struct LaneId {
  std::uint32_t engine = 0;
  std::uint32_t index = 0;
  friend auto operator<=>(const LaneId&, const LaneId&) = default;
};

inline constexpr LaneId host_lane{};

/// An unordered lane of host threads for a special purpose, such as copies to and from one device.
struct HostLane {
  std::string name = {};
  int device = 0;
  /// The number of threads of this lane with policy per_device; the other policies share their threads among lanes.
  int threads = 1;
};

}  // namespace windrow
