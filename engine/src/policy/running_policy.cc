#include "policy/running_policy.h"

#include <atomic>
#include <utility>

#include "diagnosis/engine_log.h"
#include "policy/queue_workers.h"
#include "policy/thread_pool.h"
#include "process/exit.h"
#include "record/running.h"

namespace windrow {
namespace {

QueueWorkersOptions queue_options(const PolicyContext& of, std::string name, int slots) {
  return {.name = std::move(name),
          .slots = slots,
          .max_spares = of.options.max_spare_threads,
          .on_thread_start = of.options.on_thread_start,
          .ports = &of.ports};
}

class Serial final : public RunningPolicy {
 public:
  explicit Serial(const PolicyContext& of) : workers_(only_queue(of), std::make_unique<PriorityQueue>(), of.run) {}

  void start(LaneState& lane) override {
    if (lane.ordered) expect_callbacks();
  }
  void expect_callbacks() override {
    if (stands_by_.load(std::memory_order_relaxed)) return;
    workers_.start();
    stands_by_.store(true, std::memory_order_relaxed);
  }
  void add(OpRecord& op) noexcept override { workers_.add(op); }
  void before_push() override { workers_.announce(); }
  void after_push(Slots::Patience patience) override { workers_.help(patience); }
  void stop() override { workers_.stop(); }
  OpRecord* take_wanted_anywhere(const Wanted& wanted) override { return workers_.take_wanted_anywhere(wanted); }
  int spares() const override { return workers_.spares(); }
  std::uint64_t ready() const override { return workers_.ready(); }
  void each_mutex(EachMutex f) override { workers_.each_mutex(f); }
  void forget_threads(Copied copied) noexcept override {
    workers_.forget_threads(copied);
    stands_by_ = false;
  }

 private:
  static QueueWorkersOptions only_queue(const PolicyContext& of) {
    QueueWorkersOptions result = queue_options(of, "serial", 1);
    result.callers_run = true;
    return result;
  }

  QueueWorkers workers_;
  std::atomic<bool> stands_by_{false};  // the policy's thread was started; only saves calls of workers_.start()
};

class Chaos final : public RunningPolicy {
 public:
  explicit Chaos(const PolicyContext& of)
      : workers_(queue_options(of, "chaos", of.options.workers), std::make_unique<ChaosQueue>(of.options.chaos_seed),
                 of.run) {}

  void start(LaneState&) override { workers_.start(); }
  void add(OpRecord& op) noexcept override { workers_.add(op); }
  void stop() override { workers_.stop(); }
  OpRecord* take_wanted_anywhere(const Wanted& wanted) override { return workers_.take_wanted_anywhere(wanted); }
  int spares() const override { return workers_.spares(); }
  std::uint64_t ready() const override { return workers_.ready(); }
  void each_mutex(EachMutex f) override { workers_.each_mutex(f); }
  void forget_threads(Copied copied) noexcept override { workers_.forget_threads(copied); }

 private:
  QueueWorkers workers_;
};

/// The policy `pool`, with one pool for all lanes, and the policy `per_device`, with a pool for each lane and, for the
/// host lane, one more of one thread that only runs urgent ops.
class ThreadPools final : public RunningPolicy {
 public:
  explicit ThreadPools(PolicyContext of) : of_(std::move(of)) {}

  void start(LaneState& lane) override WINDROW_EXCLUDES(mutex_);
  void add(OpRecord& op) noexcept override { op.info().lane->pool->add(op); }
  void stop() override;
  bool on_worker() const override { return ThreadPool::on_thread_of(*this); }
  OpRecord* take_wanted_anywhere(const Wanted& wanted) override;
  int spares() const override WINDROW_EXCLUDES(mutex_);
  std::uint64_t ready() const override WINDROW_EXCLUDES(mutex_);
  void each_mutex(EachMutex f) override WINDROW_UNCHECKED_LOCKING;
  void forget_threads(Copied copied) noexcept override WINDROW_UNCHECKED_LOCKING;

 private:
  ThreadPool& pool_for(const LaneState& lane) WINDROW_REQUIRES(mutex_);
  /// Null behind the last one.
  ThreadPool* pool_at(std::size_t index) WINDROW_EXCLUDES(mutex_);

  const PolicyContext of_;
  mutable Mutex mutex_;
  std::deque<ThreadPool> pools_ WINDROW_GUARDED_BY(mutex_);  // never shrinks
};

void ThreadPools::start(LaneState& lane) {
  MutexLock lock(mutex_);
  if (lane.pool == nullptr) lane.pool = &pool_for(lane);
  lane.pool->start();
}

ThreadPool& ThreadPools::pool_for(const LaneState& lane) {
  const bool for_all = of_.options.policy == Policy::pool;
  if (for_all && !pools_.empty()) return pools_.front();
  if (for_all) return pools_.emplace_back(*this, of_, ThreadPoolOptions{of_.options.workers, "policy pool"});
  ThreadPool& pool =
      pools_.emplace_back(*this, of_, ThreadPoolOptions{lane.host.threads, "lane '" + lane.host.name + "'", &lane});
  if (lane.id == host_lane) {
    pools_.emplace_back(
        *this, of_,
        ThreadPoolOptions{.threads = 1, .name = "the thread for urgent ops", .lane = &lane, .helps = &pool});
  }
  return pool;
}

ThreadPool* ThreadPools::pool_at(std::size_t index) {
  MutexLock lock(mutex_);
  return index < pools_.size() ? &pools_[index] : nullptr;
}

void ThreadPools::stop() {
  for (std::size_t i = 0; ThreadPool* const pool = pool_at(i); ++i) pool->stop();  // joins: holds no lock
}

OpRecord* ThreadPools::take_wanted_anywhere(const Wanted& wanted) {
  for (std::size_t i = 0; ThreadPool* const pool = pool_at(i); ++i) {
    if (OpRecord* const op = pool->take_wanted_anywhere(wanted)) return op;
  }
  return nullptr;
}

int ThreadPools::spares() const {
  MutexLock lock(mutex_);
  int sum = 0;
  for (const ThreadPool& pool : pools_) sum += pool.spares();
  return sum;
}

std::uint64_t ThreadPools::ready() const {
  MutexLock lock(mutex_);
  std::uint64_t sum = 0;
  for (const ThreadPool& pool : pools_) sum += pool.ready();
  return sum;
}

void ThreadPools::each_mutex(EachMutex f) {
  f(mutex_, [&]() WINDROW_UNCHECKED_LOCKING {
    for (ThreadPool& pool : pools_) pool.each_mutex(f);
  });
}

void ThreadPools::forget_threads(Copied copied) noexcept {
  for (ThreadPool& pool : pools_) pool.forget_threads(copied);
}

constinit thread_local bool started_without_hook = false;

}  // namespace

bool Lane::thread_is_free() noexcept { return started_without_hook && Running::innermost() == nullptr; }

void call_start_hook(const std::function<void()>& on_thread_start) noexcept {
  watch_exit_of_this_thread();
  started_without_hook = !on_thread_start;
  try {
    if (on_thread_start) on_thread_start();
  } catch (const std::exception& e) {
    engine_log().error("windrow: on_thread_start threw, the thread goes on: {}", e.what());
  } catch (...) {
    engine_log().error("windrow: on_thread_start threw, the thread goes on");
  }
}

std::unique_ptr<RunningPolicy> make_policy(PolicyContext of) {
  switch (of.options.policy) {
    case Policy::serial:
      return std::make_unique<Serial>(of);
    case Policy::pool:
    case Policy::per_device:
      return std::make_unique<ThreadPools>(std::move(of));
    case Policy::chaos:
      return std::make_unique<Chaos>(of);
  }
  throw MisuseError("EngineOptions.policy is no Policy");
}

}  // namespace windrow
