#include "wait/wait_graph.h"

#include "core/core.h"
#include "diagnosis/pending_queues.h"
#include "process/immortal.h"

namespace windrow {
namespace {

constexpr std::size_t nobody = PendingQueues::nobody;

PendingQueues look_at(const std::set<Core*>& engines) {
  std::vector<PendingOp> ops;
  for (Core* engine : engines) {
    for (PendingOp& op : engine->pending_ops()) ops.push_back(std::move(op));
  }
  return PendingQueues(std::move(ops));
}

std::string label(const PendingOp& op) {
  return "op '" + std::string(op.info->name) + "' (" + op.info->pushed_at.file_name() + ":" +
         std::to_string(op.info->pushed_at.line()) + ")";
}

/// One op of a walk, and the index in the walk of an op that cannot finish before it.
struct Step {
  std::size_t op;
  std::size_t waited_for_by;
};

std::string describe(const PendingQueues& seen, const std::vector<Step>& walk) {
  std::vector<std::size_t> ring;
  for (std::size_t i = walk.size() - 1; i != nobody; i = walk[i].waited_for_by) ring.push_back(walk[i].op);
  std::string text = "a wait that cannot end: ";
  for (std::size_t i = ring.size(); i-- > 0;) {
    text += label(seen.ops[ring[i]]);
    if (i > 0) text += i + 1 == ring.size() ? " waits for " : ", which waits for ";
  }
  return text;
}

}  // namespace

WaitGraph& WaitGraph::of_process() { return immortal<WaitGraph>(); }

void WaitGraph::add_engine(Core& engine) {
  MutexLock lock(mutex_);
  engines_.insert(&engine);
}

void WaitGraph::remove_engine(Core& engine) {
  MutexLock lock(mutex_);
  engines_.erase(&engine);
}

void WaitGraph::enter(const Running* frames, const std::vector<OpKey>& wait) try {
  MutexLock lock(mutex_);
  for (const Running* frame = frames; frame != Running::floor(); frame = frame->outer) {
    for (const OpKey& record : wait) waits_.emplace(OpKey{frame->core->number, frame->op->id()}, record);
  }
} catch (...) {
  leave(frames);
  throw;
}

void WaitGraph::leave(const Running* frames) {
  MutexLock lock(mutex_);
  for (; frames != Running::floor(); frames = frames->outer) waits_.erase({frames->core->number, frames->op->id()});
}

void WaitGraph::forget_threads() {
  MutexLock lock(mutex_);
  waits_.clear();
  std::erase_if(engines_, [](const Core* engine) { return engine->torn(); });
}

std::vector<OpKey> WaitGraph::wait_of(OpKey op) const {
  MutexLock lock(mutex_);
  std::vector<OpKey> records;
  const auto [first, last] = waits_.equal_range(op);
  for (auto each = first; each != last; ++each) records.push_back(each->second);
  return records;
}

std::string WaitGraph::find_ring(const Running* frames) const {
  MutexLock lock(mutex_);  // no engine ends meanwhile
  const PendingQueues seen = look_at(engines_);
  std::vector<Step> walk;
  std::set<std::size_t> mine, known;
  for (; frames != Running::floor(); frames = frames->outer) {
    const std::size_t op = seen.find({frames->core->number, frames->op->id()});
    if (op == nobody) continue;
    walk.push_back({op, nobody});
    mine.insert(op);
  }
  std::vector<std::size_t> ahead;
  for (std::size_t next = 0; next < walk.size(); ++next) {
    ahead.clear();
    append_ahead(seen, walk[next].op, ahead);
    for (const std::size_t op : ahead) {
      const bool closes = mine.contains(op);
      if (!closes && !known.insert(op).second) continue;
      walk.push_back({op, next});
      if (closes) return describe(seen, walk);
    }
  }
  return {};
}

void WaitGraph::append_ahead(const PendingQueues& seen, std::size_t op, std::vector<std::size_t>& ahead) const {
  seen.append_ahead(op, ahead);
  const auto [first, last] = waits_.equal_range(seen.ops[op].key);
  for (auto each = first; each != last; ++each) {
    const std::size_t record = seen.find(each->second);
    if (record != nobody) seen.append_ahead(record, ahead);
  }
}

std::set<OpId> WaitGraph::ahead_of(const std::vector<OpKey>& wait, const Core& engine) const {
  MutexLock lock(mutex_);  // no engine ends meanwhile
  const PendingQueues seen = look_at(engines_);
  std::set<OpId> ids;
  std::vector<std::size_t> walk;
  for (const OpKey& record : wait) {
    const std::size_t begin = seen.find(record);
    if (begin != nobody) walk.push_back(begin);
  }
  std::vector<bool> known(seen.ops.size());
  std::vector<std::size_t> ahead;
  for (std::size_t next = 0; next < walk.size(); ++next) {
    ahead.clear();
    append_ahead(seen, walk[next], ahead);
    for (const std::size_t op : ahead) {
      if (known[op]) continue;
      known[op] = true;
      walk.push_back(op);
      if (seen.ops[op].key.engine == engine.number) ids.insert(seen.ops[op].key.id);
    }
  }
  return ids;
}

}  // namespace windrow
