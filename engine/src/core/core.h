// One engine: its parts, each with its own state, and the path of an op through them. Start here.
//
//   front ──> joins the chains ──> back: release ──> policy ──> back: run ──> leaves the chains ──> back: release ...
//
//   front.h              makes and enters records
//   back.h               runs ops
//   lane/lane_table.h    lanes
//   graph/launches.h     what launches of graphs do on the way
//   wait/waits.h         waits
//   life.h               shutdown and exit
//   diagnosis/monitor.h  traces and reports
//   back_pressure.h      what holds pushing threads back
//
// engine.cc is the public interface on top.
#pragma once

#include <memory>

#include "core/back.h"
#include "core/back_pressure.h"
#include "core/front.h"
#include "core/life.h"
#include "diagnosis/monitor.h"
#include "graph/capture.h"
#include "graph/launches.h"
#include "lane/lane_table.h"
#include "wait/waits.h"

namespace windrow {

class Core {
 public:
  explicit Core(EngineOptions options);
  /// The engine must have been shut down.
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  EngineStats stats() const;
  std::uint64_t failures() const { return back.failed + back.skipped + back.cancelled; }
  /// The innermost op of this engine that runs on the calling thread; null if there is none.
  Running* frame_of_mine() const;

  const EngineOptions options;
  /// Unique among all engines that the process ever had.
  const std::uint32_t number;
  const bool callers_run = options.policy == Policy::serial;                 ///< ops run on the threads that push
  const std::shared_ptr<CoreLink> link = std::make_shared<CoreLink>(*this);  ///< for users that outlive the engine

  Life life{*this};
  Lanes lanes{*this};
  BackPressure pressure{*this};
  Launches launches{*this};
  Waits waits{*this};
  Front front{*this};
  Monitor monitor{*this};
  Back back{*this};  ///< last: its threads use all of the above
};

}  // namespace windrow
