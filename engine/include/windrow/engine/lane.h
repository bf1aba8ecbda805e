// Lanes and points: all that the engine knows of devices.
//
// An op runs on a lane. On a host lane its effects are there when its function returns (or its OnComplete is called).
// On an ordered lane, such as a CUDA stream, the function only issues work, and the effects are there once the lane has
// passed a point. The engine releases successors
//   - on the same ordered lane as soon as the op is issued,
//   - on another ordered lane as soon as it is issued, after telling that lane to wait for the point,
//   - on a host lane when the point is reached.
// So no host thread blocks for a device, with one exception: policy serial ends each op before the next begins, also on
// an ordered lane, so that a device can be debugged like the host. There a push returns when the op's point is reached.
// (An async op ends when its OnComplete was called, whatever the policy.)
#pragma once

#include <compare>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <string_view>

namespace windrow {

class Lane;

/// A moment on an ordered lane. A value. `serial` counts the lane's points from 1 and never repeats: it is the
/// generation that keeps a reused device event from satisfying an old wait.
struct Point {
  Lane* lane = nullptr;
  std::uint64_t serial = 0;

  explicit operator bool() const { return lane != nullptr; }
  friend bool operator==(const Point&, const Point&) = default;
};

/// What the failure of an awaited point means to the work behind it. Only work that uses what the failed work was to
/// write fails with it; work that overwrites it, or that overwrites what the failed work read, needs the order alone.
enum class IfFailed : std::uint8_t { fail, go_on };

/// An ordered lane, implemented by a device room, and added to one engine only. That engine calls record() and wait()
/// from one thread at a time, in issue order; the other members from any thread.
///
/// Failure: a lane that fails at some point is failed from there on, and reports the same exception_ptr for each later
/// point. A lane that waits for a failed point with IfFailed::fail fails too. None of the members throws.
class Lane {
 public:
  virtual ~Lane() = default;
  virtual std::string_view name() const = 0;
  /// Ops of lanes with the same number share a device.
  virtual int device() const = 0;

  /// The point after all work issued so far.
  virtual Point record() noexcept = 0;
  /// Whether the point, which record() has returned, is reached; with the failure of the lane or without. Cheap, and
  /// blocks for nothing.
  virtual bool reached(Point point) const noexcept = 0;
  /// Whether wait() works for points of this other lane. Where it does not, the engine waits for the point on the host.
  virtual bool can_wait_for(const Lane& other) const noexcept = 0;
  /// Work issued from now on starts after the point. Does not block the caller.
  virtual void wait(Point point, IfFailed if_failed) noexcept = 0;

  using Reached = std::function<void(std::exception_ptr)>;
  /// Calls back once, when the point is reached, with the failure if there was one: at once on this thread if the point
  /// is already reached, else later on a thread of the lane. The callback does not throw and does not block.
  virtual void when_reached(Point point, Reached callback) noexcept = 0;
};

/// Names a lane of one engine; the default one is the host's, of any engine. A value, made by Engine::add_lane.
struct LaneId {
  std::uint32_t engine = 0;
  std::uint32_t index = 0;
  friend auto operator<=>(const LaneId&, const LaneId&) = default;
};

inline constexpr LaneId host_lane{};

/// An unordered lane of host threads with a purpose of its own, such as copies of one device.
struct HostLane {
  std::string name = {};
  int device = 0;
  /// Threads that serve it, used by policy per_device; the other policies share theirs.
  int threads = 1;
};

}  // namespace windrow
