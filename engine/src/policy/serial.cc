// Policy serial: ops run on the threads that push, one at a time, by priority and then in the order of the pushes.
// The policy's own threads run only ops that become ready while no thread pushes.
#include <exception>
#include <utility>

#include "policy/priority_queue.h"
#include "policy/running_policy.h"
#include "windrow/engine/internal/engine_use.h"

namespace windrow {
namespace {

/// Invariants, under mutex_:
///   1. active_ counts ops that run and do not wait inside. It exceeds 1 only by ops whose wait has ended.
///   2. If an op may be taken, a thread is awake to take it, or will look again before it sleeps.
///   3. Own threads take no op while a caller, a thread that pushes, is about to take one.
class Serial final : public RunningPolicy, public Slots {
 public:
  explicit Serial(PolicyContext of) : of_(std::move(of)) {}
  ~Serial() override { stop(); }

  void start(LaneState& lane) override {
    if (lane.ordered) expect_callbacks();
  }
  void expect_callbacks() override {
    if (stands_by_.load(std::memory_order_relaxed)) return;
    MutexLock lock(mutex_);
    if (threads_.empty() && !stopping_ && !spawn()) throw Error("cannot start a thread for policy serial");
    stands_by_.store(true, std::memory_order_relaxed);
  }

  void add(OpRecord& op) noexcept override {
    MutexLock lock(mutex_);
    queue_.put(op);
    rouse();
  }
  void before_push() override {
    MutexLock lock(mutex_);
    ++callers_;
  }
  void after_push(Patience patience) override {
    std::shared_ptr<void> held;  // of EngineOptions::on_held; ends after the lock, which it must not be under
    bool is_held = false;
    std::exception_ptr seen;  // by a look elsewhere
    MutexLock lock(mutex_);
    while (!slot_free() && patience == Patience::wait_for_turn && !unusable_ && !seen) {
      if (!std::exchange(is_held, true) && of_.options.on_held) {
        lock.unlock();
        held = of_.options.on_held();
        lock.lock();
        continue;
      }
      if (!LookWhileWaiting::looks()) {
        changed_.wait(mutex_);
      } else if (!changed_.wait_until(mutex_, std::chrono::steady_clock::now() + LookWhileWaiting::interval)) {
        lock.unlock();
        try {
          LookWhileWaiting::look();
        } catch (...) {
          seen = std::current_exception();
        }
        lock.lock();
      }
    }
    while (slot_free() && !queue_.empty()) {
      --callers_;
      take_and_run();
      ++callers_;
    }
    --callers_;
    rouse();
    if (seen) std::rethrow_exception(seen);
  }

  void stop() override {
    std::vector<std::thread> threads;
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      threads.swap(threads_);
      changed_.notify_all();
    }
    for (std::thread& thread : threads) thread.join();
  }

  void block() override {
    MutexLock lock(mutex_);
    const bool own = of_.ports.on_own_thread();
    --active_;
    blocked_own_ += own;
    if (own_threads() == blocked_own_ && (own || !queue_.empty()) && !spawn()) {
      ++active_;
      blocked_own_ -= own;
      throw Error("a wait inside an op would leave policy serial without a thread: " + std::to_string(own_threads()) +
                  " wait already, max_spare_threads = " + std::to_string(of_.options.max_spare_threads));
    }
    changed_.notify_all();  // the turn is free
    rouse();
  }
  void let_others_in() override {
    const auto until = std::chrono::steady_clock::now() + longest_courtesy;
    MutexLock lock(mutex_);
    while (may_take() && std::chrono::steady_clock::now() < until) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
  }
  void unblock(Patience patience) override {
    MutexLock lock(mutex_);
    if (patience == Patience::wait_for_turn) {
      ++callers_;
      while (!slot_free()) changed_.wait(mutex_);
      --callers_;
    }
    ++active_;
    blocked_own_ -= of_.ports.on_own_thread();
  }
  bool may_unblock_other() const override { return false; }
  void unblock_other() override {}
  OpRecord* take_wanted(const Wanted& wanted) override { return take_wanted(wanted, PriorityQueue::Search::near); }
  OpRecord* take_wanted_anywhere(const Wanted& wanted) override {
    return take_wanted(wanted, PriorityQueue::Search::all);
  }
  bool lacks_threads() const override {
    MutexLock lock(mutex_);
    return idle_ == 0 && own_threads() >= few_spares;
  }

  int spares() const override {
    MutexLock lock(mutex_);
    return own_threads();
  }
  std::uint64_t ready() const override {
    MutexLock lock(mutex_);
    return queue_.size();
  }

  void each_mutex(EachMutex f) override { f(mutex_); }
  void forget_threads(Copied copied) noexcept override WINDROW_UNCHECKED_LOCKING {
    forget(threads_);
    changed_.forget_waiters();
    active_ = idle_ = blocked_own_ = callers_ = 0;
    stands_by_ = false;
    unusable_ = copied == Copied::unusable;
    if (unusable_) stopping_ = true;
  }

 private:
  bool slot_free() const WINDROW_REQUIRES(mutex_) { return !unusable_ && active_ < 1; }
  bool may_take() const WINDROW_REQUIRES(mutex_) { return !queue_.empty() && slot_free() && callers_ == 0; }
  int own_threads() const WINDROW_REQUIRES(mutex_) { return static_cast<int>(threads_.size()); }

  OpRecord* take_wanted(const Wanted& wanted, PriorityQueue::Search search) WINDROW_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return unusable_ ? nullptr : queue_.take_wanted(wanted, search);
  }

  void serve() WINDROW_EXCLUDES(mutex_) {
    call_start_hook(of_.options.on_thread_start);
    MutexLock lock(mutex_);
    while (true) {
      if (may_take()) {
        take_and_run();
      } else if (stopping_) {
        return;
      } else {
        ++idle_;
        changed_.wait(mutex_);
        --idle_;
      }
    }
  }
  void take_and_run() WINDROW_REQUIRES(mutex_) {
    ++active_;
    OpRecord& op = queue_.take();
    mutex_.unlock();
    of_.run(op, *this);
    mutex_.lock();
    --active_;
    changed_.notify_all();
  }
  /// Wakes or starts a thread if an op may be taken.
  void rouse() WINDROW_REQUIRES(mutex_) {
    if (!may_take() || own_threads() - blocked_own_ > idle_) return;  // otherwise one is awake and will look
    if (idle_ == 0) {
      spawn();
    } else {
      changed_.notify_all();  // callers sleep on changed_, too
    }
  }
  /// False if the limit is reached or the system refuses.
  bool spawn() WINDROW_REQUIRES(mutex_) {
    if (own_threads() > of_.options.max_spare_threads) return false;
    try {
      threads_.reserve(threads_.size() + 1);
      threads_.push_back(of_.ports.start_thread([this] { serve(); }));
      return true;
    } catch (const std::exception&) {
      return false;  // fewer threads still make progress; block() and expect_callbacks() ensure that
    }
  }

  const PolicyContext of_;
  std::atomic<bool> stands_by_{false};  // a thread was started; only avoids taking the lock

  mutable Mutex mutex_;
  CondVar changed_;  // an op may be taken, the turn is free, or stopping_
  PriorityQueue queue_ WINDROW_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ WINDROW_GUARDED_BY(mutex_);
  int active_ WINDROW_GUARDED_BY(mutex_) = 0;
  int idle_ WINDROW_GUARDED_BY(mutex_) = 0;         // own threads asleep
  int blocked_own_ WINDROW_GUARDED_BY(mutex_) = 0;  // own threads whose op waits inside
  int callers_ WINDROW_GUARDED_BY(mutex_) = 0;      // between before_push() and after_push(), while they run no op
  bool stopping_ WINDROW_GUARDED_BY(mutex_) = false;
  bool unusable_ WINDROW_GUARDED_BY(mutex_) = false;  // no op is taken any more, and no thread waits for a turn
};

}  // namespace

std::unique_ptr<RunningPolicy> make_serial(PolicyContext of) { return std::make_unique<Serial>(std::move(of)); }

}  // namespace windrow
