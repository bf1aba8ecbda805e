#include "windrow/comm/mpi.h"

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "mpi_group.h"

namespace windrow {
namespace {

using comm::Exchange;
using comm::MpiGroupState;
using Clock = std::chrono::steady_clock;

/// How long the thread sleeps when no call is under way; then it answers the questions of other members.
constexpr auto idle = std::chrono::milliseconds(10);

}  // namespace

/// The thread that calls MPI, and what other threads ask it to do.
class MpiWorld::Impl : public std::enable_shared_from_this<MpiWorld::Impl> {
 public:
  explicit Impl(MpiOptions options) : options_(options), calls_(comm::mpi_calls()) {}

  void start() {
    std::promise<void> started;
    auto result = started.get_future();
    thread_ = std::thread([this, &started] { run(started); });
    try {
      result.get();
    } catch (...) {
      thread_.join();
      throw;
    }
  }

  /// Waits for the end of all calls, `patience` at most.
  void stop() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  using Task = std::function<void(bool alive)>;
  /// Has the thread call the task; `alive` is false if MPI has ended.
  void post(Task task) {
    {
      std::lock_guard lock(mutex_);
      if (!ended_) {
        tasks_.push_back(std::move(task));
        task = nullptr;
      }
    }
    if (task) return task(false);
    if (asleep_.load(std::memory_order_relaxed)) changed_.notify_one();
  }

  /// Makes a group, at all processes at the same time. Called by the thread.
  MpiGroupState* make_group() {
    groups_.push_back(std::make_unique<MpiGroupState>(calls_, world_, options_));
    return groups_.back().get();
  }

  const MpiOptions& options() const { return options_; }
  int rank = 0, size = 1;

 private:
  void run(std::promise<void>& started) {
    try {
      if (const int error = calls_.init(&world_); error == comm::already_started) {
        throw MisuseError("MpiWorld: MPI was started before in this process; expected that it is the first to do so");
      } else if (error != 0) {
        throw CommError("MPI_Init_thread failed: " + comm::mpi_text(calls_, error));
      }
      if (const int error = calls_.rank(world_, &rank, &size); error != 0) {
        throw CommError("MPI_Comm_rank failed: " + comm::mpi_text(calls_, error));
      }
    } catch (...) {
      started.set_exception(std::current_exception());
      return;
    }
    started.set_value();
    std::optional<Clock::time_point> deadline;
    int quiet = 0;
    for (;;) {
      bool changed = do_tasks(), busy = false, broken = false;
      for (const auto& group : groups_) {
        changed |= group->progress();
        busy |= group->busy();
        broken |= group->broken();
      }
      quiet = changed ? 0 : quiet + 1;
      std::unique_lock lock(mutex_);
      if (!tasks_.empty()) continue;
      if (stopping_) {
        if (!deadline) deadline = Clock::now() + options_.patience;
        if (!busy || Clock::now() >= *deadline) {
          ended_ = true;
          lock.unlock();
          return end(broken || busy);
        }
      }
      if (busy && quiet < 2000) {
        lock.unlock();
        if (quiet > 100) std::this_thread::yield();
        continue;
      }
      asleep_.store(true, std::memory_order_relaxed);
      // A call under way may take as long as the slowest member computes: so this core is left to the workers.
      changed_.wait_for(lock, busy ? std::chrono::microseconds(50) : idle,
                        [&] { return !tasks_.empty() || (stopping_ && !deadline); });
      asleep_.store(false, std::memory_order_relaxed);
    }
  }

  bool do_tasks() {
    std::vector<Task> tasks;
    {
      std::lock_guard lock(mutex_);
      tasks.swap(tasks_);
    }
    for (const Task& task : tasks) task(true);
    return !tasks.empty();
  }

  void end(bool badly) {
    for (const auto& group : groups_) {
      if (badly && !group->broken()) group->break_up({.why = "MPI has ended"});
      group->end();
    }
    if (!badly) calls_.finalize();
    // Buffers of calls that MPI has not finished stay.
    if (badly) static_cast<void>(new auto(std::move(groups_)));
  }

  const MpiOptions options_;
  const comm::MpiCalls& calls_;
  comm::MpiGroup* world_ = nullptr;                     // of the thread
  std::vector<std::unique_ptr<MpiGroupState>> groups_;  // of the thread
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Task> tasks_;  // guarded by the mutex, as are the following
  bool stopping_ = false, ended_ = false;
  std::atomic<bool> asleep_{false};
  std::thread thread_;
};

namespace {

class MpiMember final : public comm::Member {
 public:
  using Thread = std::shared_ptr<MpiWorld::Impl>;

  MpiMember(Thread thread, MpiGroupState* group)
      : thread_(std::move(thread)), group_(group), rank_(group->rank()), size_(group->size()) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void take(Exchange part) override {
    // A std::function copies.
    const auto held = std::make_shared<Exchange>(std::move(part));
    thread_->post([group = group_, held](bool alive) {
      if (alive) return group->take(std::move(*held));
      held->done(std::make_exception_ptr(CommError(held->call.describe() + ": MPI has ended")));
    });
  }
  std::vector<std::int64_t> exchange(std::span<const std::int64_t> numbers) override {
    const auto result = std::make_shared<std::promise<std::vector<std::int64_t>>>();
    auto future = result->get_future();
    thread_->post([group = group_, result, numbers = std::vector(numbers.begin(), numbers.end())](bool alive) {
      if (alive) return group->exchange(numbers, std::move(*result));
      result->set_exception(std::make_exception_ptr(CommError("exchange: MPI has ended")));
    });
    return future.get();
  }
  void abort(const std::string& why) override {
    thread_->post([group = group_, why](bool alive) {
      if (alive) group->break_up({.why = why, .aborted = true});
    });
  }
  void leave() override {
    thread_->post([group = group_, calls = numbered()](bool alive) {
      if (alive) group->leave(calls);
    });
  }

 private:
  const Thread thread_;
  MpiGroupState* const group_;  // lives as long as the thread
  const int rank_, size_;
};

}  // namespace

MpiWorld::MpiWorld(MpiOptions options) : impl_(std::make_shared<Impl>(options)) { impl_->start(); }
MpiWorld::~MpiWorld() { impl_->stop(); }
int MpiWorld::rank() const { return impl_->rank; }
int MpiWorld::size() const { return impl_->size; }

Communicator MpiWorld::group(const Device& device) {
  std::promise<MpiGroupState*> made;
  auto group = made.get_future();
  impl_->post([&](bool) {
    try {
      made.set_value(impl_->make_group());
    } catch (...) {
      made.set_exception(std::current_exception());
    }
  });
  return {device, std::make_shared<MpiMember>(impl_, group.get())};
}

bool MpiWorld::under_mpirun() {
  // Open MPI; MPICH and others by PMI or PMIx.
  for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

}  // namespace windrow
