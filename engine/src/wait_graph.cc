#include "wait_graph.h"

#include <mutex>
#include <set>

#include "core.h"
#include "immortal.h"

namespace windrow {
namespace {

/// What remains known of an op that may finish at any time.
struct Seen {
  OpKey key;
  std::string_view name;
  std::source_location pushed_at;
  std::size_t waited_for_by;  // index of the op that cannot finish before it
  std::vector<VarState*> vars;
};

constexpr std::size_t nobody = static_cast<std::size_t>(-1);

std::string label(const Seen& op) {
  return "op '" + std::string(op.name) + "' (" + op.pushed_at.file_name() + ":" + std::to_string(op.pushed_at.line()) +
         ")";
}

const OpRecord& record_of(const Dep::Access& access) { return static_cast<const OpRecord&>(*access.op); }

/// Appends the ops that must finish before the one that stands at this place: all ahead of it, or for a reader all up
/// to the last exclusive access ahead. Waits among them wait for nothing else, so they are left out, and so is what
/// stands behind one that has a limit only.
void append_ahead(VarState& var, OpId place, std::size_t waited_for_by, std::vector<Seen>& found) {
  const std::size_t old = found.size();
  std::size_t end = old;  // behind the last one that counts for a reader
  std::lock_guard lock(var.lock);
  // Ops in a queue are alive, and what is read of them fixed, as long as its lock bit is held.
  for (Dep::Access* access = var.head; access != nullptr; access = access->next) {
    const OpRecord& op = record_of(*access);
    if (op.id == place) {
      if (!access->exclusive()) found.resize(end);
      return;
    }
    if (op.is_wait()) {
      if (access->exclusive() && !op.limited) end = found.size();
      continue;
    }
    Seen& seen =
        found.emplace_back(Seen{{var.owner->number, op.id}, op.info.name, op.info.pushed_at, waited_for_by, {}});
    for (const Dep::Access& other : access->op->accesses()) {
      if (other.var != &var) seen.vars.push_back(&var_of(other));
    }
    if (access->exclusive()) end = found.size();
  }
  found.resize(old);  // it has left the queue
}

std::string describe(const std::vector<Seen>& ops, std::size_t last) {
  std::vector<std::size_t> ring{last};
  for (std::size_t i = ops[last].waited_for_by; i != nobody; i = ops[i].waited_for_by) ring.push_back(i);
  std::string text = "a wait that cannot end: ";
  for (std::size_t i = ring.size(); i-- > 0;) {
    text += label(ops[ring[i]]);
    if (i > 0) text += i + 1 == ring.size() ? " waits for " : ", which waits for ";
  }
  return text;
}

}  // namespace

WaitGraph& WaitGraph::of_process() { return immortal<WaitGraph>(); }

void WaitGraph::add_engine(std::uint32_t engine) {
  MutexLock lock(mutex_);
  engines_.insert(engine);
}

void WaitGraph::remove_engine(std::uint32_t engine) {
  MutexLock lock(mutex_);
  engines_.erase(engine);
}

void WaitGraph::enter(const Running* frames, Place place) {
  MutexLock lock(mutex_);
  for (; frames != nullptr; frames = frames->outer) {
    waits_.insert_or_assign({frames->core->number, frames->op->id}, place);
  }
}

void WaitGraph::leave(const Running* frames) {
  MutexLock lock(mutex_);
  for (; frames != nullptr; frames = frames->outer) waits_.erase({frames->core->number, frames->op->id});
}

std::string WaitGraph::find_ring(const Running* frames) const {
  std::vector<Seen> ops;
  std::set<OpKey> mine, known;
  for (; frames != nullptr; frames = frames->outer) {
    const OpInfo& info = frames->op->info;
    ops.push_back({{frames->core->number, frames->op->id}, info.name, info.pushed_at, nobody, {}});
    mine.insert(ops.back().key);
  }
  std::vector<Seen> ahead;
  MutexLock lock(mutex_);  // no engine ends meanwhile
  for (std::size_t next = 0; next < ops.size(); ++next) {
    const OpKey key = ops[next].key;
    std::vector<Place> places;
    for (VarState* var : ops[next].vars) places.push_back({key.engine, var, key.id});
    const auto wait = waits_.find(key);
    if (wait != waits_.end()) places.push_back(wait->second);
    ahead.clear();
    for (const Place& place : places) {
      if (engines_.contains(place.engine)) append_ahead(*place.var, place.op, next, ahead);
    }
    for (Seen& op : ahead) {
      const bool closes = mine.contains(op.key);
      if (!closes && !known.insert(op.key).second) continue;
      ops.push_back(std::move(op));
      if (closes) return describe(ops, ops.size() - 1);
    }
  }
  return {};
}

}  // namespace windrow
