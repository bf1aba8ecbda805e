#include "diagnosis/pending_queues.h"

#include <algorithm>

namespace windrow {

PendingQueues::PendingQueues(std::vector<PendingOp> seen) : ops(std::move(seen)) {
  for (std::size_t i = 0; i < ops.size(); ++i) {
    index_.emplace(ops[i].key, i);
    for (const VarPlace& place : ops[i].places) queues[place.var].push_back({i, place});
  }
  for (auto& [var, queue] : queues) {
    std::sort(queue.begin(), queue.end(), [](const Queued& a, const Queued& b) { return a.place < b.place; });
  }
}

std::size_t PendingQueues::find(const OpKey& key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nobody : found->second;
}

void PendingQueues::append_ahead(std::size_t op, std::vector<std::size_t>& ahead) const {
  for (const VarPlace& place : ops[op].places) {
    const std::size_t old = ahead.size();
    std::size_t end = old;  // after the last op with which `op` cannot share the variable
    for (const Queued& queued : queues.at(place.var)) {
      if (queued.op == op) break;
      if (!ops[queued.op].is_wait) ahead.push_back(queued.op);
      if (queued.place.exclusive || queued.place.commutes != place.commutes) end = ahead.size();
    }
    if (!place.exclusive) ahead.resize(end);
    if (!place.commutes) continue;
    for (const Queued& queued : queues.at(place.var)) {
      const bool has_turn = queued.place.commutes && ops[queued.op].stage != OpRecord::Stage::queued;
      if (has_turn && queued.op != op) ahead.push_back(queued.op);
    }
  }
}

}  // namespace windrow
