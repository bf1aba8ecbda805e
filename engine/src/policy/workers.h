// Threads that run ready ops, a limited number at a time.
//
// A thread without work polls at growing intervals, so that pushing threads can get ahead of it; then it yields its
// core between polls; then it sleeps. Only one thread polls for long: waking one takes 50 to 150 microseconds on a
// virtual machine. Polls end by time and not by number: if another program uses the core, a single yield may take
// milliseconds, and a thread that sleeps gets its core back sooner than one that yields. A thread that makes an op
// ready wakes another one only if none is searching. A searching thread that finds work, and sees more, wakes the next.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/asymmetric_fence.h"
#include "core/ports.h"
#include "policy/running_policy.h"
#include "policy/slots.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

/// Base of the class `Ops`, which knows the ready ops. `Worker` is the state that each thread keeps for taking ops; it
/// is constructed from Ops and the thread's Port. Ops has the following members. Any thread may call them at any time,
/// with its own Worker:
///
///   OpRecord* next(Worker&)               the next op of a thread that has just run one; null if none is found soon
///   OpRecord* look_around(Worker&, bool)  the same for a searching thread; true: look closely, at all ready ops
///   bool work_in_sight() const            whether there is a ready op. Called behind a fence: see rouse()
///   bool all_may_wait                     whether others run the ready ops while the ops of all these threads wait
///
/// Invariant: if an op is ready and a slot is free, a thread is awake to take the op, or will look again before it
/// sleeps.
template <class Ops, class Worker>
class Workers : public Slots {
 public:
  /// At most `slots` ops run at a time; `name` is for messages.
  Workers(const RunningPolicy& policy, const PolicyContext& of, PolicyCounts& counts, int slots, std::string name);
  ~Workers() override = default;  // Ops calls stop() in its own destructor

  /// Ensures that there is a thread. Throws Error if none can be started.
  void start() WINDROW_EXCLUDES(mutex_);
  /// Joins the threads. Called when no op is ready any more. May be called twice.
  void stop() WINDROW_EXCLUDES(mutex_);
  /// Called after an op was made ready: ensures that a thread looks for it.
  void rouse();

  /// Whether the calling thread is a worker of `policy`.
  static bool on_thread_of(const RunningPolicy& policy) { return current_.policy == &policy; }
  int spares() const WINDROW_EXCLUDES(mutex_);

  void block() override;
  void let_others_in() override;
  void unblock(Patience) override { unblock_other(); }
  bool may_unblock_other() const override { return true; }
  void unblock_other() override;
  bool lacks_threads() const override;
  void run_loop(const Running& op, const PieceLoop& loop) override;

  // ---- fork; see RunningPolicy ----
  void each_mutex(EachMutex f);
  void forget_threads(Copied copied) noexcept WINDROW_UNCHECKED_LOCKING;

 protected:
  /// The Worker of the calling thread, which must be one of these threads.
  static Worker& worker() { return *current_.worker; }

 private:
  struct Current {
    const RunningPolicy* policy = nullptr;
    Worker* worker = nullptr;
  };
  static inline constinit thread_local Current current_{};

  enum class Rest {
    none,
    woken,  ///< the thread is awake again, and counted as searching
    ended,  ///< the threads end
  };

  using Clock = std::chrono::steady_clock;
  /// The looks of a search: the first `spinning_searches` at growing intervals, of which the first `plain_searches` do
  /// not look closely; then with a yield in between, for `patience`, or `lone_patience` if no other thread searches.
  /// For `crowded_for` after a yield of `long_yield`, threads that find nothing sleep at once.
  static constexpr int plain_searches = 6, spinning_searches = 16;
  static constexpr std::chrono::microseconds patience{25}, lone_patience{500}, long_yield{250}, crowded_for{5000};

  Ops& ops() { return static_cast<Ops&>(*this); }
  const Ops& ops() const { return static_cast<const Ops&>(*this); }

  void serve();
  /// Searches until it finds an op; null when the threads end. The thread is counted as searching meanwhile.
  OpRecord* search(Worker& worker);
  static void pause(int looks);
  bool is_patient(Clock::time_point yielding_since, Clock::time_point now) const {
    if (now < crowded_until_.load(std::memory_order_relaxed)) return false;
    return now - yielding_since < (searching_.load(std::memory_order_relaxed) == 1 ? lone_patience : patience);
  }
  void yield(Clock::time_point now) {
    std::this_thread::yield();
    const Clock::time_point back = Clock::now();
    if (back - now >= long_yield) crowded_until_.store(back + crowded_for, std::memory_order_relaxed);
  }
  /// The searching thread has found something to do.
  void stop_searching();
  /// Whether a thread that is asleep would find something to do.
  bool worth_waking() const { return loops_.want_help() || ops().work_in_sight(); }
  bool too_many_awake() const { return counts_.awake.load(std::memory_order_relaxed) > counts_.most_awake; }
  /// The searching thread helps in a loop until there is work for it elsewhere; then it continues to search.
  void help() noexcept;
  bool wants_helper_back() const { return counts_.want_thread_back() || ops().work_in_sight(); }
  void wake_or_spawn() WINDROW_EXCLUDES(mutex_);
  bool spawn() WINDROW_REQUIRES(mutex_);
  /// The searching thread falls asleep, unless there is work in sight.
  Rest sleep() WINDROW_EXCLUDES(mutex_);
  /// The thread, which has run an op, falls asleep if more threads are awake than there are slots.
  Rest retire() WINDROW_EXCLUDES(mutex_);
  Rest wait_for_wake() WINDROW_REQUIRES(mutex_);
  int threads() const WINDROW_REQUIRES(mutex_) { return static_cast<int>(threads_.size()); }

  PolicyCounts& counts_;
  const RunningPolicy& policy_;
  const std::string name_;
  const int max_spares_;
  const std::function<void()> on_thread_start_;
  const RunOp run_;
  const std::function<void()> out_of_work_;
  Ports& ports_;
  Loops loops_;

  alignas(64) std::atomic<int> searching_{0};  // the number of awake threads that search
  std::atomic<bool> stopping_{false};
  std::atomic<Clock::time_point> crowded_until_{Clock::time_point{}};

  mutable Mutex mutex_;
  CondVar woken_;
  std::vector<std::thread> threads_ WINDROW_GUARDED_BY(mutex_);
  int asleep_ WINDROW_GUARDED_BY(mutex_) = 0;
  int wakes_ WINDROW_GUARDED_BY(mutex_) = 0;  // wake-ups that no sleeper has consumed yet
  int blocked_ WINDROW_GUARDED_BY(mutex_) = 0;
};

template <class Ops, class Worker>
Workers<Ops, Worker>::Workers(const RunningPolicy& policy, const PolicyContext& of, PolicyCounts& counts, int slots,
                              std::string name)
    : counts_(counts),
      policy_(policy),
      name_(std::move(name)),
      max_spares_(of.options.max_spare_threads),
      on_thread_start_(of.options.on_thread_start),
      run_(of.run),
      out_of_work_(of.out_of_work),
      ports_(of.ports),
      loops_(slots) {
  counts_.most_awake = slots;
}

template <class Ops, class Worker>
void Workers<Ops, Worker>::start() {
  MutexLock lock(mutex_);
  if (stopping_ || threads() > 0) return;
  if (!spawn()) throw Error("cannot start a thread for " + name_);
}

template <class Ops, class Worker>
void Workers<Ops, Worker>::rouse() {
  // A thread that is about to sleep, or to wait inside an op, lowers `awake`, passes the heavy half of the fence, and
  // looks for ready ops. So either it sees the op, or this thread sees the lowered count.
  AsymmetricFence::light();
  if (counts_.awake.load(std::memory_order_relaxed) >= counts_.most_awake) return;
  // A read by a write: of this thread and one that stops searching, the later one sees what the earlier one did.
  if (searching_.fetch_add(0, std::memory_order_acq_rel) > 0) return;
  if (counts_.awake.load(std::memory_order_seq_cst) < counts_.most_awake) wake_or_spawn();
}

template <class Ops, class Worker>
void Workers<Ops, Worker>::wake_or_spawn() {
  MutexLock lock(mutex_);
  if (searching_ > 0 || counts_.awake >= counts_.most_awake || stopping_) return;
  if (asleep_ > wakes_) {
    ++wakes_;
    ++searching_;
    ++counts_.awake;
    woken_.notify_one();
  } else {
    spawn();  // may fail: fewer threads still make progress
  }
}

template <class Ops, class Worker>
bool Workers<Ops, Worker>::spawn() {
  if (threads() >= counts_.most_awake + max_spares_) return false;
  ++searching_;
  ++counts_.awake;
  try {
    threads_.reserve(threads_.size() + 1);
    threads_.push_back(ports_.start_thread([this] { serve(); }));
    return true;
  } catch (const std::exception&) {
    --searching_;
    --counts_.awake;
    return false;
  }
}

template <class Ops, class Worker>
void Workers<Ops, Worker>::serve() {
  call_start_hook(on_thread_start_);
  Worker worker(ops(), ports_.mine());
  current_ = {&policy_, &worker};
  for (OpRecord* op = search(worker); op != nullptr;) {
    run_(*op, *this);
    const Rest rest = too_many_awake() ? retire() : Rest::none;
    if (rest == Rest::ended) break;
    if (rest == Rest::none) {
      op = ops().next(worker);
      if (op != nullptr) continue;
      searching_.fetch_add(1, std::memory_order_seq_cst);
    }
    op = search(worker);
  }
  current_ = {};
}

template <class Ops, class Worker>
OpRecord* Workers<Ops, Worker>::search(Worker& worker) {
  out_of_work_();
  Clock::time_point yielding_since;
  for (int looks = 0;; ++looks) {
    if (OpRecord* const op = ops().look_around(worker, looks >= plain_searches)) {
      stop_searching();
      return op;
    }
    if (loops_.want_help()) {
      help();
      // Look closely from now on: plain looks would miss an op that its pusher keeps, and the thread would come back
      // here for ever.
      looks = plain_searches;
    }
    if (looks < spinning_searches) {
      pause(looks);
      continue;
    }
    const Clock::time_point now = Clock::now();
    if (looks == spinning_searches) yielding_since = now;
    if (is_patient(yielding_since, now)) {
      yield(now);
    } else {
      if (sleep() == Rest::ended) return nullptr;
      looks = plain_searches;
    }
  }
}

template <class Ops, class Worker>
void Workers<Ops, Worker>::pause(int looks) {
  constexpr int longest_pause = 64;
  for (int left = std::min(1 << std::min(looks, 20), longest_pause); left > 0; --left) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
}

template <class Ops, class Worker>
void Workers<Ops, Worker>::stop_searching() {
  if (searching_.fetch_sub(1, std::memory_order_seq_cst) == 1 && counts_.awake < counts_.most_awake && worth_waking()) {
    rouse();
  }
}

template <class Ops, class Worker>
void Workers<Ops, Worker>::help() noexcept {
  stop_searching();
  loops_.help({this, [](const void* of) { return static_cast<const Workers*>(of)->wants_helper_back(); }});
  searching_.fetch_add(1, std::memory_order_seq_cst);
}

template <class Ops, class Worker>
void Workers<Ops, Worker>::run_loop(const Running& op, const PieceLoop& loop) {
  loops_.run(op, loop, [this] { rouse(); });
}

template <class Ops, class Worker>
auto Workers<Ops, Worker>::sleep() -> Rest {
  MutexLock lock(mutex_);
  // In this order, so that a thread that sees no searching thread also sees the lowered `awake`.
  counts_.awake.fetch_sub(1, std::memory_order_seq_cst);
  searching_.fetch_sub(1, std::memory_order_seq_cst);
  AsymmetricFence::heavy();  // see rouse()
  if (!worth_waking()) return wait_for_wake();
  ++counts_.awake;
  ++searching_;
  lock.unlock();
  std::this_thread::yield();  // another thread may need this core to finish what makes the work appear
  return Rest::woken;
}

template <class Ops, class Worker>
auto Workers<Ops, Worker>::retire() -> Rest {
  out_of_work_();  // this thread may have finished the last op
  MutexLock lock(mutex_);
  if (counts_.awake <= counts_.most_awake) return Rest::none;
  counts_.awake.fetch_sub(1, std::memory_order_seq_cst);
  return wait_for_wake();
}

template <class Ops, class Worker>
auto Workers<Ops, Worker>::wait_for_wake() -> Rest {
  ++asleep_;
  while (wakes_ == 0 && !stopping_) woken_.wait(mutex_);
  --asleep_;
  if (wakes_ == 0) return Rest::ended;
  --wakes_;
  return Rest::woken;
}

template <class Ops, class Worker>
void Workers<Ops, Worker>::stop() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
    woken_.notify_all();
  }
  for (std::thread& thread : threads) thread.join();
}

template <class Ops, class Worker>
void Workers<Ops, Worker>::block() {
  MutexLock lock(mutex_);
  ++blocked_;
  counts_.awake.fetch_sub(1, std::memory_order_seq_cst);
  if (!Ops::all_may_wait && threads() == blocked_ && !spawn()) {
    --blocked_;
    ++counts_.awake;
    throw Error("a wait inside an op would leave " + name_ + " without a thread: " + std::to_string(threads()) +
                " wait already, max_spare_threads = " + std::to_string(max_spares_));
  }
  lock.unlock();
  AsymmetricFence::heavy();  // see rouse()
  if (worth_waking()) rouse();
}

template <class Ops, class Worker>
void Workers<Ops, Worker>::let_others_in() {
  const auto until = std::chrono::steady_clock::now() + longest_courtesy;
  const auto slot_is_free = [&] { return counts_.awake.load() - searching_.load() < counts_.most_awake; };
  while (slot_is_free() && ops().work_in_sight() && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
  }
}

template <class Ops, class Worker>
void Workers<Ops, Worker>::unblock_other() {
  MutexLock lock(mutex_);
  --blocked_;
  ++counts_.awake;
}

template <class Ops, class Worker>
bool Workers<Ops, Worker>::lacks_threads() const {
  MutexLock lock(mutex_);
  return asleep_ <= wakes_ && threads() >= counts_.most_awake + few_spares;
}

template <class Ops, class Worker>
int Workers<Ops, Worker>::spares() const {
  MutexLock lock(mutex_);
  return std::max(0, threads() - counts_.most_awake);
}

template <class Ops, class Worker>
void Workers<Ops, Worker>::each_mutex(EachMutex f) {
  f(mutex_);
  loops_.each_mutex(f);
}

template <class Ops, class Worker>
void Workers<Ops, Worker>::forget_threads(Copied copied) noexcept {
  forget(threads_);
  woken_.forget_waiters();
  asleep_ = wakes_ = blocked_ = 0;
  searching_ = counts_.awake = 0;
  if (copied == Copied::whole) loops_.forget_threads();
  if (copied == Copied::whole) return;
  // With these counts, a thread that returns from its op leaves its graph, since urgent ops seem to be ready, and ends,
  // since too many threads seem to be awake.
  constexpr int too_many = 1 << 30;
  stopping_ = true;
  counts_.awake = counts_.urgent = too_many;
}

}  // namespace windrow
