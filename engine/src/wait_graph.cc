#include "wait_graph.h"

#include <algorithm>
#include <unordered_map>

#include "core.h"
#include "immortal.h"

namespace windrow {
namespace {

constexpr std::size_t nobody = static_cast<std::size_t>(-1);

/// All ops that had not finished when they were looked at, and for each variable their places in the order of joins.
class Snapshot {
 public:
  struct Queued {
    std::size_t op;
    std::uint32_t ticket, within;
    bool exclusive;
  };

  explicit Snapshot(const std::set<Core*>& engines) {
    for (Core* engine : engines) {
      for (PendingOp& op : engine->pending_ops()) ops.push_back(std::move(op));
    }
    for (std::size_t i = 0; i < ops.size(); ++i) {
      index_.emplace(ops[i].key, i);
      for (const PendingOp::Place& place : ops[i].places)
        queues_[place.var].push_back({i, place.ticket, place.within, place.exclusive});
    }
    for (auto& [var, queue] : queues_) {
      // Tickets wrap; those at one variable at one time are close together.
      std::sort(queue.begin(), queue.end(), [](const Queued& a, const Queued& b) {
        return a.ticket == b.ticket ? a.within < b.within : static_cast<std::int32_t>(a.ticket - b.ticket) < 0;
      });
    }
  }

  std::size_t find(const OpKey& key) const {
    const auto found = index_.find(key);
    return found == index_.end() ? nobody : found->second;
  }

  /// Appends the ops that must finish before this one: at each of its variables all that joined earlier, or for a read
  /// all up to the last exclusive access before it. Waits among them wait for nothing else, so they are left out.
  void append_ahead(std::size_t op, std::vector<std::size_t>& ahead) const {
    for (const PendingOp::Place& place : ops[op].places) {
      const std::size_t old = ahead.size();
      std::size_t end = old;  // behind the last one that counts for a read
      for (const Queued& queued : queues_.at(place.var)) {
        if (queued.op == op) break;
        if (!ops[queued.op].is_wait) ahead.push_back(queued.op);
        if (queued.exclusive) end = ahead.size();
      }
      if (!place.exclusive) ahead.resize(end);
    }
  }

  std::vector<PendingOp> ops;

 private:
  std::map<OpKey, std::size_t> index_;
  std::unordered_map<VarState*, std::vector<Queued>> queues_;
};

std::string label(const PendingOp& op) {
  return "op '" + std::string(op.info->name) + "' (" + op.info->pushed_at.file_name() + ":" +
         std::to_string(op.info->pushed_at.line()) + ")";
}

/// One op of a walk, and which op of the walk cannot finish before it.
struct Step {
  std::size_t op;
  std::size_t waited_for_by;
};

std::string describe(const Snapshot& seen, const std::vector<Step>& walk) {
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

std::string WaitGraph::find_ring(const Running* frames) const {
  MutexLock lock(mutex_);  // no engine ends meanwhile
  const Snapshot seen(engines_);
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
