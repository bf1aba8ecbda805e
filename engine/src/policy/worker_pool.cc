#include "policy/worker_pool.h"

#include <limits>

namespace windrow {
namespace {

/// A thread from outside keeps fewer ready ops than this before it hands them over. Workers that have nothing else find
/// them before.
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
  // Plainly, where there were some the last time. Closely, from ring to ring, since each may never be empty; one's own
  // takes part then, for what urgent ops leave there.
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
      rouse();  // who looked meanwhile may have missed those that changed place
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
  rouse();  // who looked meanwhile found nothing
  return op;
}

OpRecord* WorkerPool::take_wanted_anywhere(const Wanted& wanted) {
  // One thread at a time, since while one looks the others find nothing.
  MutexLock lock(search_mutex_);
  ReadyRing& mine = worker().port->ready;
  // All that is ready comes to this thread's ring, where it can be looked at.
  for (Port* port = ports_.first(); port != nullptr; port = port->next) {
    if (&port->ready == &mine) continue;
    // Not for ever, though its owner may put as fast as this takes.
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
