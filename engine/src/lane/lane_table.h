// The lanes of one engine, and the captures that they keep for devices.
#pragma once

#include <deque>
#include <memory>

#include "lane/lanes.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

struct CapturedOp;
struct Port;

class Lanes {
 public:
  explicit Lanes(Core& core);
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  LaneId add_lane(std::shared_ptr<Lane> lane, const LaneOptions& how) WINDROW_EXCLUDES(mutex);
  LaneId add_lane(HostLane lane) WINDROW_EXCLUDES(mutex);
  LaneState& lane(LaneId id);
  LaneState& lane_at(std::size_t index) WINDROW_EXCLUDES(mutex);
  std::size_t count() WINDROW_EXCLUDES(mutex);
  void remove_lane(LaneId id);
  /// Lets ops be pushed to the lane. Throws if it was removed, or if no thread starts.
  void start(LaneState& lane);
  void resume(LaneState& lane) noexcept;    ///< called when the lane has room for ops that wait there
  void end_kept(LaneState& lane) noexcept;  ///< called when the lane has reached points of kept captures

  OpRecord& make_keeper(Port& port);
  /// Keeps captures that a device may still use. The engine's op `keeper` destroys them when the lane's point is
  /// reached.
  void keep(OpRecord& keeper, Captures&& captures, LaneState& lane, Point point, Port& port) noexcept;
  /// Runs such ops. Returns the next op of this thread, or null.
  OpRecord* end_captures(OpRecord& first, Slots* slots) noexcept;
  void keep_captures(CapturedOp& op) noexcept;  ///< called when an op of an ordered lane ends with its graph

  Mutex mutex;
  std::deque<LaneState> all WINDROW_GUARDED_BY(mutex);
  LaneState* const host;  ///< the host lane

 private:
  Core& core_;
  OpInfo captures_;  // fixed
};

}  // namespace windrow
