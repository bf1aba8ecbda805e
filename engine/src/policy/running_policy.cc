#include "policy/running_policy.h"

#include <atomic>
#include <limits>
#include <random>
#include <utility>

#include "diagnosis/engine_log.h"
#include "policy/thread_pool.h"
#include "process/exit.h"
#include "record/running.h"

namespace windrow {
namespace {

/// The policies with one pool for all lanes, and the policy `per_device` with a pool for each lane. With `per_device`
/// the host lane has a second pool, of one thread that runs only urgent ops.
class ThreadPools : public RunningPolicy {
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
  /// Null after the last pool.
  ThreadPool* pool_at(std::size_t index) WINDROW_EXCLUDES(mutex_);

 protected:
  const PolicyContext of_;
  mutable Mutex mutex_;

 private:
  std::deque<ThreadPool> pools_ WINDROW_GUARDED_BY(mutex_);  // never shrinks
};

void ThreadPools::start(LaneState& lane) {
  MutexLock lock(mutex_);
  if (lane.pool == nullptr) lane.pool = &pool_for(lane);
  lane.pool->start();
}

ThreadPool& ThreadPools::pool_for(const LaneState& lane) {
  const bool for_all = of_.options.policy != Policy::per_device;
  if (for_all && !pools_.empty()) return pools_.front();
  if (for_all) {
    return pools_.emplace_back(
        *this, of_, ThreadPoolOptions{of_.options.workers, "policy " + std::string(to_string(of_.options.policy))});
  }
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

/// The policy `chaos`: a pool that orders ops by random priorities, drawn from a seed.
class Chaos final : public ThreadPools {
 public:
  explicit Chaos(PolicyContext of) : ThreadPools(with_pauses(std::move(of))), random_(of_.options.chaos_seed) {}

  void add(OpRecord& op) noexcept override {
    op.priority = draw();
    ThreadPools::add(op);
  }

 private:
  /// Pauses make ops overlap that otherwise would not, and let more ops become ready. A short program needs frequent
  /// pauses to reveal its errors. In a long one, rare pauses are numerous enough, and each costs as much as fifty ops.
  static PolicyContext with_pauses(PolicyContext of) {
    of.run = [run = std::move(of.run), runs = std::make_shared<std::atomic<unsigned>>(0)](OpRecord& op, Slots& slots) {
      constexpr int first_runs = 64, one_pause_in_first = 4, one_pause_in = 64, longest_pause_us = 50;
      const int one_in = runs->fetch_add(1) < first_runs ? one_pause_in_first : one_pause_in;
      if (op.priority % one_in == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(op.priority / one_in % longest_pause_us));
      run(op, slots);
    };
    return of;
  }
  int draw() WINDROW_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return std::uniform_int_distribution(1, std::numeric_limits<int>::max())(random_);
  }

  std::mt19937_64 random_ WINDROW_GUARDED_BY(mutex_);
};

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
      return make_serial(std::move(of));
    case Policy::pool:
    case Policy::per_device:
      return std::make_unique<ThreadPools>(std::move(of));
    case Policy::chaos:
      return std::make_unique<Chaos>(std::move(of));
  }
  throw MisuseError("EngineOptions.policy is no Policy");
}

}  // namespace windrow
