// The analysis of a recording: an order for its ops, places for its tensors, and an engine graph that runs them.
#pragma once

#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <unordered_map>
#include <vector>

#include "record/recorder.h"
#include "windrow/engine/graph.h"
#include "windrow/ops/internal/captured_work.h"
#include "windrow/ops/static.h"
#include "workspaces.h"

namespace windrow {

/// Neighbouring functions of a recording that issue the same work each time. The first call runs them, so that the
/// tensors get memory, which they keep as long as the recording. The second call captures the issued work, and later
/// calls issue the captured work.
class CapturedRun {
 public:
  /// Of functions [first, end).
  CapturedRun(std::size_t first, std::size_t end) : first_(first), end_(end) {}

  std::size_t first() const { return first_; }
  std::size_t end() const { return end_; }
  /// In an op of the lane. Calls of one run follow each other. `functions`: all of the recording.
  void run(OpContext& op, std::span<OpFunction> functions);

 private:
  const std::size_t first_, end_;
  bool has_memory_ = false;  // whether its tensors have memory
  bool refused_ = false;     // the lane could not capture
  KeptWorkspaces workspaces_;
  std::unique_ptr<CapturedWork> work_;  // which uses the workspaces
};

/// Shared by the functions of a replay's ops, so the buffers end after the last launch.
struct ReplayedOps {
  std::vector<RecordedOps::Item> items = {};
  std::optional<Buffer> turn = {};  ///< of size 0: its variable lets the ops of all launches run one at a time
  std::vector<OpFunction> functions = {};
  std::vector<CapturedRun> captured = {};  ///< ascending
};

/// Functions [first, end) of a recording as one op, with captured runs [first_run, end_run).
struct ReplayedGroup {
  std::shared_ptr<ReplayedOps> of;
  std::size_t first, end, first_run, end_run;

  void operator()(OpContext& op) const;
};
static_assert(sizeof(ReplayedGroup) <= OpFunction::inline_bytes);

/// A recording that is ready to be launched.
struct Replay {
  Graph graph = {};
  std::shared_ptr<const ReplayedOps> run = {};
  std::size_t ops = 0, accesses = 0, planned_bytes = 0, unshared_bytes = 0;
};

/// How often recordings hold a buffer.
using HeldBuffers = std::unordered_map<const Buffer*, long>;

/// Buffers that the body made and that only the recording holds get places in one block for each lane's memory. `held`
/// counts the holds of earlier recordings. Throws MisuseError if an op reads such a buffer that none has written, or
/// uses the old contents of a buffer from outside that only recordings hold; OutOfMemory.
Replay make_replay(Engine& engine, RecordedOps recording, const HeldBuffers& held, const StaticOptions& options,
                   std::source_location from);

}  // namespace windrow
