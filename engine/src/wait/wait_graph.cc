#include "wait/wait_graph.h"

#include <algorithm>

#include "core/core.h"
#include "diagnosis/pending_queues.h"
#include "process/immortal.h"
#include "wait/ring_search.h"

namespace windrow {
namespace {

constexpr std::size_t nobody = PendingQueues::nobody;

PendingQueues look_at(const std::set<Core*>& engines) {
  std::vector<PendingOp> ops;
  for (Core* engine : engines) {
    for (PendingOp& op : engine->front.pending_ops()) ops.push_back(std::move(op));
  }
  return PendingQueues(std::move(ops));
}

template <class Map>
void erase_one(Map& map, const OpKey& key, const typename Map::mapped_type& value) noexcept {
  const auto [first, last] = map.equal_range(key);
  for (auto each = first; each != last; ++each) {
    if (each->second == value) return void(map.erase(each));
  }
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
    for (const OpKey& record : wait) {
      waits_.emplace(OpKey{frame->core->number, frame->op->id()}, record);
      waiters_.emplace(record, Blocked{frame->core, frame->op});
    }
  }
} catch (...) {
  leave(frames, wait);
  throw;
}

void WaitGraph::leave(const Running* frames, const std::vector<OpKey>& wait) noexcept {
  MutexLock lock(mutex_);
  for (; frames != Running::floor(); frames = frames->outer) {
    for (const OpKey& record : wait) {
      erase_one(waits_, {frames->core->number, frames->op->id()}, record);
      erase_one(waiters_, record, {frames->core, frames->op});
    }
  }
}

void WaitGraph::forget_threads() {
  MutexLock lock(mutex_);
  waits_.clear();
  waiters_.clear();
  std::erase_if(engines_, [](const Core* engine) { return engine->life.unusable(); });
}

std::vector<OpKey> WaitGraph::wait_of(OpKey op) const {
  MutexLock lock(mutex_);
  std::vector<OpKey> records;
  const auto [first, last] = waits_.equal_range(op);
  for (auto each = first; each != last; ++each) records.push_back(each->second);
  return records;
}

WaitGraph::Ring WaitGraph::find_ring(const Running* frames, std::size_t most) const {
  MutexLock lock(mutex_);  // no engine ends meanwhile
  return RingSearch(waiters_, most).find(frames);
}

void WaitGraph::append_ahead(const PendingQueues& seen, std::size_t op, std::vector<std::size_t>& ahead) const {
  seen.append_ahead(op, ahead);
  const auto [first, last] = waits_.equal_range(seen.ops[op].key);
  for (auto each = first; each != last; ++each) {
    const std::size_t record = seen.find(each->second);
    if (record != nobody) seen.append_ahead(record, ahead);
  }
}

std::set<OpKey> WaitGraph::ahead_of(const std::vector<OpKey>& wait) const {
  MutexLock lock(mutex_);  // no engine ends meanwhile
  if (std::ranges::none_of(engines_, [](const Core* engine) { return engine->back.policy->ready() > 0; })) return {};
  const PendingQueues seen = look_at(engines_);
  std::set<OpKey> keys;
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
      keys.insert(seen.ops[op].key);
    }
  }
  return keys;
}

std::vector<std::shared_ptr<CoreLink>> WaitGraph::links() const {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<CoreLink>> links;
  for (const Core* engine : engines_) links.push_back(engine->link);
  return links;
}

void WaitGraph::with_engine(std::uint32_t number, const std::function<void(Core&)>& f) const {
  MutexLock lock(mutex_);
  for (Core* const engine : engines_) {
    if (engine->number == number) return f(*engine);
  }
}

}  // namespace windrow
