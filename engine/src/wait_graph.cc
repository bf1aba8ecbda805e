#include "wait_graph.h"

#include "core.h"
#include "immortal.h"
#include "pending_queues.h"

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

/// One op of a walk, and which op of the walk cannot finish before it.
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

void WaitGraph::enter(const Running* frames, OpKey wait) try {
  MutexLock lock(mutex_);
  for (const Running* frame = frames; frame != nullptr; frame = frame->outer) {
    waits_.insert_or_assign({frame->core->number, frame->op->id()}, wait);
  }
} catch (...) {
  leave(frames);
  throw;
}

void WaitGraph::leave(const Running* frames) {
  MutexLock lock(mutex_);
  for (; frames != nullptr; frames = frames->outer) waits_.erase({frames->core->number, frames->op->id()});
}

void WaitGraph::forget_threads() {
  MutexLock lock(mutex_);
  waits_.clear();
  std::erase_if(engines_, [](const Core* engine) { return engine->torn(); });
}

std::optional<OpKey> WaitGraph::wait_of(OpKey op) const {
  MutexLock lock(mutex_);
  const auto found = waits_.find(op);
  return found == waits_.end() ? std::nullopt : std::optional(found->second);
}

std::string WaitGraph::find_ring(const Running* frames) const {
  MutexLock lock(mutex_);  // no engine ends meanwhile
  const PendingQueues seen = look_at(engines_);
  std::vector<Step> walk;
  std::set<std::size_t> mine, known;
  for (; frames != nullptr; frames = frames->outer) {
    const std::size_t op = seen.find({frames->core->number, frames->op->id()});
    if (op == nobody) continue;
    walk.push_back({op, nobody});
    mine.insert(op);
  }
  std::vector<std::size_t> ahead;
  for (std::size_t next = 0; next < walk.size(); ++next) {
    ahead.clear();
    seen.append_ahead(walk[next].op, ahead);
    const auto wait = waits_.find(seen.ops[walk[next].op].key);
    if (wait != waits_.end()) {
      const std::size_t record = seen.find(wait->second);
      if (record != nobody) seen.append_ahead(record, ahead);
    }
    for (const std::size_t op : ahead) {
      const bool closes = mine.contains(op);
      if (!closes && !known.insert(op).second) continue;
      walk.push_back({op, next});
      if (closes) return describe(seen, walk);
    }
  }
  return {};
}

}  // namespace windrow
