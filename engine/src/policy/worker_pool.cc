#include "policy/worker_pool.h"

#include <exception>
#include <utility>

#include "core/asymmetric_fence.h"
#include "diagnosis/engine_log.h"

namespace windrow {
namespace {

/// Every so many takes the order is turned round: what has low priority, or waits in others' rings, comes first.
constexpr unsigned aging_takes = 32;

/// Looks around that often with growing pauses, first only at what was handed over; then that often giving the core
/// away in between.
constexpr int plain_searches = 6, spinning_searches = 16, yielding_searches = 48;
constexpr int longest_pause = 64;

/// A thread from outside keeps fewer ready ops than this before it hands them over. Workers that have nothing else find
/// them before.
constexpr std::uint64_t most_kept = 8, most_kept_in_bulk = 64;

void pause(int times) {
  for (int i = 0; i < times; ++i) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
}

}  // namespace

constinit thread_local WorkerPool::Current WorkerPool::current_;

WorkerPool::WorkerPool(PolicyContext of)
    : max_spares_(of.options.max_spare_threads),
      on_thread_start_(of.options.on_thread_start),
      run_(std::move(of.run)),
      out_of_work_(std::move(of.out_of_work)),
      ports_(of.ports),
      loops_(of.options.workers) {
  most_awake_ = of.options.workers;
}

void WorkerPool::start(LaneState&) {
  MutexLock lock(mutex_);
  if (stopping_ || threads() > 0) return;
  if (!spawn()) throw Error("cannot start a thread for policy pool");
}

void WorkerPool::put_urgent(OpRecord& op) noexcept {
  MutexLock lock(priority_mutex_);
  urgent_.put(op);
  ++urgent_count_;
}

void WorkerPool::put_background(OpRecord& op) noexcept {
  MutexLock lock(priority_mutex_);
  background_.put(op);
  ++background_count_;
}

void WorkerPool::add(OpRecord& op) noexcept {
  if (op.priority != 0) {
    op.priority > 0 ? put_urgent(op) : put_background(op);
    return rouse();
  }
  Port* const port = ports_.mine_if_any();
  if (port == nullptr || !port->ready.put(op)) [[unlikely]] {
    put_urgent(op);
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

void WorkerPool::end_row() { current_.worker->takes |= aging_takes - 1; }

void WorkerPool::rouse() {
  // Whoever is about to sleep, or to wait inside an op, says so and looks behind the heavy half: it sees the op, or we
  // see that there is one less.
  AsymmetricFence::light();
  if (awake_.load(std::memory_order_relaxed) >= most_awake_) return;
  // Read by a write, so that of this thread and one that stops searching the later one sees what the earlier one did.
  if (searching_.fetch_add(0, std::memory_order_acq_rel) > 0) return;
  if (awake_.load(std::memory_order_seq_cst) < most_awake_) wake_or_spawn();
}

void WorkerPool::wake_or_spawn() {
  MutexLock lock(mutex_);
  if (searching_ > 0 || awake_ >= most_awake_ || stopping_) return;
  if (asleep_ > wakes_) {
    ++wakes_;
    ++searching_;
    ++awake_;
    woken_.notify_one();
  } else {
    spawn();  // or not: with fewer threads the pool still makes progress
  }
}

bool WorkerPool::spawn() {
  if (threads() >= most_awake_ + max_spares_) return false;
  ++searching_;
  ++awake_;
  try {
    threads_.reserve(threads_.size() + 1);
    threads_.push_back(ports_.start_thread([this] { serve(); }));
    return true;
  } catch (const std::exception&) {
    --searching_;
    --awake_;
    return false;
  }
}

void WorkerPool::serve() {
  try {
    if (on_thread_start_) on_thread_start_();
  } catch (const std::exception& e) {
    engine_log().error("windrow: on_thread_start threw, the thread goes on: {}", e.what());
  } catch (...) {
    engine_log().error("windrow: on_thread_start threw, the thread goes on");
  }
  Worker worker{.port = &ports_.mine(), .from = &ports_.mine(), .from_closely = &ports_.mine()};
  current_ = {this, &worker};
  for (OpRecord* op = search(worker); op != nullptr;) {
    run_(*op, *this);
    const Rest rest = awake_.load(std::memory_order_relaxed) > most_awake_ ? retire() : Rest::none;
    if (rest == Rest::ended) break;
    if (rest == Rest::none) {
      op = take(worker);
      if (op != nullptr) continue;
      searching_.fetch_add(1, std::memory_order_seq_cst);
    }
    op = search(worker);
  }
  current_ = {};
}

OpRecord* WorkerPool::take(Worker& worker) {
  const bool turned = ++worker.takes % aging_takes == 0;
  if (urgent_count_.load(std::memory_order_relaxed) > 0 && !turned) {
    if (OpRecord* op = take_urgent()) return op;
  }
  if (turned) return take_turned<ReadyRing::Look::close>(worker);
  if (OpRecord* op = worker.port->ready.take()) return op;
  return take_from_rings<ReadyRing::Look::plain>(worker);
}

template <ReadyRing::Look look>
OpRecord* WorkerPool::take_turned(Worker& worker) {
  // By turns, since what has low priority and what has none may both be without end.
  if (background_count_.load(std::memory_order_relaxed) > 0 && ++worker.turns % 2 == 0) {
    if (OpRecord* op = take_background()) return op;
  }
  return take_from_rings<look>(worker);
}

template <ReadyRing::Look look>
OpRecord* WorkerPool::take_from_rings(Worker& worker) {
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
  if (OpRecord* op = worker.port->ready.take()) return op;
  if (urgent_count_.load(std::memory_order_seq_cst) > 0) {
    if (OpRecord* op = take_urgent()) return op;
  }
  if (background_count_.load(std::memory_order_seq_cst) > 0) return take_background();
  return nullptr;
}

OpRecord* WorkerPool::take_urgent() {
  MutexLock lock(priority_mutex_);
  if (!urgent_.has_next()) return nullptr;
  --urgent_count_;
  return &urgent_.take();
}

OpRecord* WorkerPool::take_background() {
  MutexLock lock(priority_mutex_);
  if (!background_.has_next()) return nullptr;
  --background_count_;
  return &background_.take();
}

bool WorkerPool::work_in_sight() const {
  if (urgent_count_.load(std::memory_order_seq_cst) > 0 || background_count_.load(std::memory_order_seq_cst) > 0) {
    return true;
  }
  for (Port* port = ports_.first(); port != nullptr; port = port->next) {
    if (!port->ready.empty<ReadyRing::Look::close>()) return true;
  }
  return false;
}

OpRecord* WorkerPool::search(Worker& worker) {
  out_of_work_();
  for (int look = 0;; ++look) {
    OpRecord* op = urgent_count_.load(std::memory_order_relaxed) > 0 ? take_urgent() : nullptr;
    if (op == nullptr) {
      op = look < plain_searches ? take_turned<ReadyRing::Look::plain>(worker)
                                 : take_turned<ReadyRing::Look::close>(worker);
    }
    if (op != nullptr) {
      stop_searching();
      return op;
    }
    if (loops_.want_help()) {
      help();
      look = plain_searches;  // a close look, or an op that its pusher keeps would send the thread back here for ever
    }
    if (look < spinning_searches) {
      pause(std::min(1 << std::min(look, 20), longest_pause));
    } else if (look < spinning_searches + yielding_searches) {
      std::this_thread::yield();
    } else {
      if (sleep() == Rest::ended) return nullptr;
      look = plain_searches;
    }
  }
}

void WorkerPool::stop_searching() {
  if (searching_.fetch_sub(1, std::memory_order_seq_cst) == 1 && awake_ < most_awake_ && worth_waking()) rouse();
}

void WorkerPool::help() noexcept {
  stop_searching();
  loops_.help({this, [](const void* pool) { return static_cast<const WorkerPool*>(pool)->wants_helper_back(); }});
  searching_.fetch_add(1, std::memory_order_seq_cst);
}

void WorkerPool::run_loop(const Running& op, const PieceLoop& loop) {
  loops_.run(op, loop, [this] { rouse(); });
}

WorkerPool::Rest WorkerPool::sleep() {
  MutexLock lock(mutex_);
  // In this order: who sees that nobody searches sees one less awake.
  awake_.fetch_sub(1, std::memory_order_seq_cst);
  searching_.fetch_sub(1, std::memory_order_seq_cst);
  AsymmetricFence::heavy();  // see rouse()
  if (!worth_waking()) return wait_for_wake();
  ++awake_;
  ++searching_;
  return Rest::woken;
}

WorkerPool::Rest WorkerPool::retire() {
  out_of_work_();  // this thread may have finished the last op
  MutexLock lock(mutex_);
  if (awake_ <= most_awake_) return Rest::none;
  awake_.fetch_sub(1, std::memory_order_seq_cst);
  return wait_for_wake();
}

WorkerPool::Rest WorkerPool::wait_for_wake() {
  ++asleep_;
  while (wakes_ == 0 && !stopping_) woken_.wait(mutex_);
  --asleep_;
  if (wakes_ == 0) return Rest::ended;
  --wakes_;
  return Rest::woken;
}

void WorkerPool::stop() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
    woken_.notify_all();
  }
  for (std::thread& thread : threads) thread.join();
}

void WorkerPool::each_mutex(EachMutex f) {
  f(search_mutex_);
  f(mutex_);
  f(priority_mutex_);
  loops_.each_mutex(f);
}

void WorkerPool::forget_threads(Copied copied) noexcept {
  forget(threads_);
  woken_.forget_waiters();
  asleep_ = wakes_ = blocked_ = 0;
  searching_ = awake_ = 0;
  if (copied == Copied::whole) return;
  // A thread that comes back from its op finds more important ops than the next of its graph, and too many awake.
  constexpr int too_many = 1 << 30;
  stopping_ = true;
  awake_ = urgent_count_ = too_many;
}

std::uint64_t WorkerPool::ready() const {
  std::uint64_t sum = static_cast<std::uint64_t>(urgent_count_ + background_count_);
  for (Port* port = ports_.first(); port != nullptr; port = port->next) sum += port->ready.size();
  return sum;
}

int WorkerPool::spares() const {
  MutexLock lock(mutex_);
  return std::max(0, threads() - most_awake_);
}

}  // namespace windrow
