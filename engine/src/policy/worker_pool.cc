#include "policy/worker_pool.h"

#include <limits>

namespace windrow {
namespace {

/// A thread that is not a worker keeps fewer ready ops than this before it hands them over. Idle workers find them
/// earlier.
constexpr std::uint64_t most_kept = 8, most_kept_in_bulk = 64;

}  // namespace

void WorkerPool::add(OpRecord& op) noexcept {
  if (op.priority != 0) {
    by_priority_.put(op);
    return rouse();
  }
  Port* const port = ports_.mine_if_any();
  if (port == nullptr || !port->ready.put(op)) [[unlikely]] {
    by_priority_.put(op);
    return rouse();
  }
  if (port->ready.kept() >= (port->bulk_scopes > 0 ? most_kept_in_bulk : on_worker() ? 1 : most_kept)) {
    port->ready.hand_over();
  }
  rouse();
}

void WorkerPool::hand_over() noexcept {
  Port* const port = ports_.mine_if_any();
  if (port != nullptr && port->ready.kept() > 0) port->ready.hand_over();
}

OpRecord* WorkerPool::next(RingWorker& worker) {
  return by_priority_.take(worker.takes, [&](bool turned) {
    if (turned) return take_from_rings<ReadyRing::Look::close>(worker);
    if (OpRecord* const op = worker.port->ready.take()) return op;
    return take_from_rings<ReadyRing::Look::plain>(worker);
  });
}

OpRecord* WorkerPool::look_around(RingWorker& worker, bool closely) {
  if (policy_counts_.urgent.load(std::memory_order_relaxed) > 0) {
    if (OpRecord* const op = by_priority_.take_urgent()) return op;
  }
  return by_priority_.take_turned(worker.takes, [&](bool) {
    return closely ? take_from_rings<ReadyRing::Look::close>(worker) : take_from_rings<ReadyRing::Look::plain>(worker);
  });
}

template <ReadyRing::Look look>
OpRecord* WorkerPool::take_from_rings(RingWorker& worker) {
  const auto behind = [this](const Port* port) { return port->next != nullptr ? port->next : ports_.first(); };
  // A plain look starts with the ring that last had ops. A close look starts with the ring behind the last one, since a
  // ring may never become empty; it includes the thread's own ring, where ops stay while urgent ops run.
  Port*& last = look == ReadyRing::Look::plain ? worker.from : worker.from_closely;
  Port* const begin = look == ReadyRing::Look::plain ? last : behind(last);
  Port* port = begin;
  do {
    if (port == worker.port) {
      if (look == ReadyRing::Look::close) {
        if (OpRecord* const op = port->ready.take()) {
          last = port;
          return op;
        }
      }
    } else if (!port->ready.empty<look>()) {
      OpRecord* const op = port->ready.take_some<look>(worker.port->ready);
      rouse();  // a thread that looked meanwhile may have missed the ops that moved
      if (op != nullptr) {
        worker.from = last = port;
        return op;
      }
    }
    port = behind(port);
  } while (port != begin);
  return worker.port->ready.take();
}

OpRecord* WorkerPool::take_wanted(const Wanted& wanted) {
  if (policy_counts_.urgent.load(std::memory_order_relaxed) > 0) return nullptr;
  ReadyRing& ring = worker().port->ready;
  if (ring.empty<ReadyRing::Look::close>()) return nullptr;
  OpRecord* const op = ring.take_newest(wanted, most_looks);
  rouse();  // a thread that looked meanwhile found nothing
  return op;
}

OpRecord* WorkerPool::take_wanted_anywhere(const Wanted& wanted) {
  // One thread at a time: while one thread looks, others would find nothing.
  MutexLock lock(search_mutex_);
  ReadyRing& mine = ports_.mine().ready;
  // Move all ready ops to this thread's ring, where they can be inspected.
  for (Port* port = ports_.first(); port != nullptr; port = port->next) {
    if (&port->ready == &mine) continue;
    // Limited to the present size: the owner may put as fast as this thread takes.
    for (std::uint64_t left = port->ready.size(); left > 0; --left) {
      OpRecord* const op = port->ready.take_some<ReadyRing::Look::close>(mine);
      if (op == nullptr) break;
      if (!mine.put(*op)) by_priority_.put(*op);
    }
  }
  OpRecord* op = mine.take_newest(wanted, std::numeric_limits<std::uint64_t>::max());
  if (op == nullptr) op = by_priority_.take_wanted(wanted);
  rouse();
  return op;
}

bool WorkerPool::work_in_sight() const {
  if (by_priority_.any()) return true;
  for (Port* port = ports_.first(); port != nullptr; port = port->next) {
    if (!port->ready.empty<ReadyRing::Look::close>()) return true;
  }
  return false;
}

std::uint64_t WorkerPool::ready() const {
  std::uint64_t sum = by_priority_.size();
  for (Port* port = ports_.first(); port != nullptr; port = port->next) sum += port->ready.size();
  return sum;
}

void WorkerPool::each_mutex(EachMutex f) {
  f(search_mutex_);
  Workers::each_mutex(f);
  by_priority_.each_mutex(f);
}

}  // namespace windrow
