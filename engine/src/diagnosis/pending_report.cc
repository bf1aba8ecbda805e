#include "diagnosis/pending_report.h"

#include <algorithm>

#include "lane/lanes.h"

namespace windrow {
namespace {

std::string called(const VarState& var) {
  const std::string name = name_of(var);
  return name.empty() ? "a variable without a name" : "variable '" + name + "'";
}

}  // namespace

PendingReport::PendingReport(std::vector<PendingOp> seen) : queues_(std::move(seen)), blocks_(queues_.ops.size()) {
  for (const auto& [var, queue] : queues_.queues) {
    const auto has_turn = std::find_if(queue.begin(), queue.end(), [&](const auto& at) {
      return at.place.commutes && queues_.ops[at.op].stage != OpRecord::Stage::queued;
    });
    std::size_t holder = PendingQueues::nobody;  // the first op in the queue, excluding waits, which hold nothing
    bool commuting = false, closed = false;      // whether ops at the head commute; whether no further op can share
    for (const auto& at : queue) {
      const auto& [op, place] = at;
      const bool granted =
          holder == PendingQueues::nobody || (!closed && !place.exclusive && place.commutes == commuting);
      const bool waits_for_turn = granted && place.commutes && has_turn != queue.end() && has_turn->op != op;
      if ((!granted || waits_for_turn) && blocks_[op].var == nullptr)
        blocks_[op] = {var, granted ? has_turn->op : holder};
      if (queues_.ops[op].is_wait) continue;
      if (holder == PendingQueues::nobody) {
        holder = op;
        commuting = place.commutes;
        closed = place.exclusive;
      }
      closed |= !granted;
    }
  }
}

std::string PendingReport::text(std::size_t most) const {
  std::vector<std::size_t> ops;
  for (std::size_t i = 0; i < queues_.ops.size(); ++i) {
    if (!queues_.ops[i].is_wait) ops.push_back(i);
  }
  if (ops.empty()) return "no op is pending";
  std::sort(ops.begin(), ops.end(), [&](std::size_t a, std::size_t b) {
    const auto rank = [&](std::size_t i) { return std::pair(blocks_[i].var != nullptr, queues_.ops[i].key); };
    return rank(a) < rank(b);
  });
  std::string text = std::to_string(ops.size()) + (ops.size() == 1 ? " op is pending:" : " ops are pending:");
  for (std::size_t i = 0; i < std::min(most, ops.size()); ++i) {
    text += "\n  " + site(*queues_.ops[ops[i]].info) + " " + state(ops[i], Depth::with_holders);
  }
  if (ops.size() > most) text += "\n  and " + std::to_string(ops.size() - most) + " more";
  return text;
}

std::string PendingReport::state(std::size_t op, Depth depth) const {
  const PendingOp& seen = queues_.ops[op];
  switch (seen.stage) {
    case OpRecord::Stage::runs:
      return "runs";
    case OpRecord::Stage::has_returned:
      return "has returned, and its OnComplete was not called";
    case OpRecord::Stage::at_points:
      return "waits for a lane to reach a point";
    case OpRecord::Stage::waits_inside:
      return waits_inside(op, depth);
    case OpRecord::Stage::queued:
      break;
  }
  if (blocks_[op].var != nullptr) return waits_for(blocks_[op], depth);
  if (seen.info->lane->ordered) return "is ready and waits for its turn on lane '" + seen.info->lane->host.name + "'";
  return "is ready, and no worker has taken it up";
}

std::string PendingReport::waits_for(const Obstacle& block, Depth depth) const {
  std::string text = "waits for " + called(*block.var);
  if (depth == Depth::alone) return text;
  return text + ", held by " + site(*queues_.ops[block.holder].info) + ", which " + state(block.holder, Depth::alone);
}

std::string PendingReport::waits_inside(std::size_t op, Depth depth) const {
  for (const OpKey& wait : WaitGraph::of_process().wait_of(queues_.ops[op].key)) {
    const std::size_t record = queues_.find(wait);
    if (record == PendingQueues::nobody || blocks_[record].var == nullptr) continue;
    const std::source_location& from = queues_.ops[record].info->pushed_at;
    return "waits inside (at " + std::string(from.file_name()) + ":" + std::to_string(from.line()) + "): it " +
           waits_for(blocks_[record], depth);
  }
  return "waits inside";
}

}  // namespace windrow
