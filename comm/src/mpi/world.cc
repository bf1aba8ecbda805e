#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <functional>
#include <future>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "ending.h"
#include "mpi/group.h"
#include "mpi/watch.h"
#include "windrow/comm/mpi.h"

namespace windrow {
namespace {

using comm::ExchangePtr;
using comm::MpiGroupState;
using Clock = std::chrono::steady_clock;

/// How long the thread sleeps when no call is under way; then it answers the questions of other members.
constexpr auto idle = std::chrono::milliseconds(10);

const MpiOptions& checked(const MpiOptions& options) {
  comm::require_positive("MpiWorld", "patience", options.patience);
  comm::require_positive("MpiWorld", "tell_after", options.tell_after);
  comm::require_positive("MpiWorld", "answer", options.answer);
  return options;
}

}  // namespace

/// The thread that calls MPI, and what other threads ask it to do. If a call of MPI does not return, all groups break,
/// and the thread is left where it is.
class MpiWorld::Impl : public std::enable_shared_from_this<MpiWorld::Impl> {
 public:
  explicit Impl(MpiOptions options)
      : options_(checked(options)),
        watch_(comm::mpi_calls(), {options.patience, options.tell_after}, [this](const std::string& why) {
          give_up(why);
          return std::shared_ptr<void>(shared_from_this());
        }) {}

  void start() {
    auto result = started_.get_future();
    std::thread([self = shared_from_this()] {
      try {
        self->watch_.run([&] { self->run(); });
      } catch (const comm::MpiWatch::GivenUp&) {
        self->keep_groups();
      }
      self->end_tasks({.why = "MPI has ended"});
    }).detach();
    const Failure failure = result.get();
    if (failure.misuse) throw MisuseError(failure.why);
    if (!failure.why.empty()) throw CommError(failure.why);
  }

  /// Waits for the end of all calls, and of the thread, about `patience` for each.
  void stop() {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return tasks_ended_; });
  }

  /// `ended` says why MPI is called no more, if it is not.
  using Task = Function<void(const comm::Breakage& ended)>;
  /// Has the thread call the task.
  void post(Task task) {
    comm::Breakage ended;
    {
      const std::lock_guard lock(mutex_);
      ended = ended_;
      if (!ended) tasks_.push_back(std::move(task));
    }
    if (ended) return task(ended);
    if (asleep_.load(std::memory_order_relaxed)) changed_.notify_all();
  }

  /// A group, or why there is none. The caller makes the exception: no thread destroys one that another one reads.
  struct GroupOrFailure {
    std::shared_ptr<MpiGroupState> group = nullptr;
    std::string why = {};
  };
  using Made = std::shared_ptr<std::promise<GroupOrFailure>>;
  /// Makes a group, at all processes at the same time. Called by the thread.
  void make_group(const Made& made, std::chrono::nanoseconds patience) {
    making_ = made;
    try {
      MpiOptions options = options_;
      options.patience = patience;
      groups_.push_back(std::make_shared<MpiGroupState>(watch_.calls(), world_, options));
      made->set_value({.group = groups_.back()});
    } catch (const std::exception& error) {
      made->set_value({.why = error.what()});
    }
    making_ = nullptr;
  }

  /// Announcements of different sizes would be calls of MPI that do not fit each other.
  void require_equal_options(const Communicator& group) {
    if (options_compared_.exchange(true)) return;
    const auto all = group.exchange(std::vector{static_cast<std::int64_t>(options_.eager_bytes)});
    const auto other = std::ranges::find_if(all, [&](std::int64_t bytes) { return bytes != all.front(); });
    if (other == all.end()) return;
    throw CommError("MpiWorld: rank 0 has eager_bytes = " + std::to_string(all.front()) + ", but rank " +
                    std::to_string(other - all.begin()) + " has " + std::to_string(*other) +
                    "; expected one number at all members");
  }

  std::chrono::nanoseconds patience() const { return options_.patience; }

  int rank = 0, size = 1;
  /// A member has made a call whose operands may not be there yet; and they are.
  void await_call() { ++awaited_; }
  void call_came() { --awaited_; }

 private:
  void run() {
    const comm::MpiCalls& mpi = watch_.calls();
    try {
      if (const int error = mpi.init(options_.communicator, &world_); error == comm::already_started) {
        throw MisuseError(
            "MpiWorld: MPI was started before in this process, and has ended or has less than MPI_THREAD_MULTIPLE; "
            "expected that MpiWorld is the first to start it, or that level");
      } else if (error == comm::not_started) {
        throw MisuseError(
            "MpiWorld: a communicator of an MPI library that is not started; expected one of the library that "
            "windrow_mpi.so uses");
      } else if (error == comm::no_threads) {
        throw CommError("MpiWorld: MPI provides MPI_THREAD_SINGLE; expected a library with MPI_THREAD_FUNNELED");
      } else if (error != 0) {
        throw CommError("MPI_Init_thread failed: " + comm::mpi_text(error));
      }
      if (const int error = mpi.rank(world_, &rank, &size); error != 0) {
        throw CommError("MPI_Comm_rank failed: " + comm::mpi_text(error));
      }
    } catch (const std::exception& error) {
      is_started_ = true;
      return started_.set_value({error.what(), dynamic_cast<const MisuseError*>(&error) != nullptr});
    }
    is_started_ = true;
    started_.set_value({});
    std::optional<Clock::time_point> stopped;
    int quiet = 0;
    for (;;) {
      bool changed = do_tasks(), busy = false, broken = false, unmatched = false;
      for (const auto& group : groups_) {
        changed |= group->progress();
        busy |= group->busy();
        broken |= group->broken();
        unmatched |= group->unmatched();
      }
      std::erase_if(groups_, [](const auto& group) { return group->released(); });
      quiet = changed ? 0 : quiet + 1;
      std::unique_lock lock(mutex_);
      if (!tasks_.empty()) continue;
      if (stopping_) {
        if (!stopped) stopped = Clock::now();
        const bool awaits = busy || (!broken && awaited_ > 0);
        if (!awaits || Clock::now() - *stopped >= options_.patience) {
          lock.unlock();
          return end(broken || unmatched || awaits);
        }
      }
      if (busy && quiet < 2000) {
        lock.unlock();
        // At once, not after many checks: the thread that waits for this core may be the one that this thread waits
        // for.
        if (quiet > 0) std::this_thread::yield();
        continue;
      }
      asleep_.store(true, std::memory_order_relaxed);
      // A call under way may take as long as the slowest member computes: so this core is left to the workers.
      changed_.wait_for(lock, busy ? std::chrono::microseconds(50) : idle,
                        [&] { return !tasks_.empty() || (stopping_ && !stopped); });
      asleep_.store(false, std::memory_order_relaxed);
    }
  }

  /// Takes one task at a time: if it does not return, give_up() ends the others.
  bool do_tasks() {
    std::unique_lock lock(mutex_);
    const std::size_t count = tasks_.size();  // later ones wait, so that groups make progress
    for (std::size_t i = 0; i < count; ++i) {
      Task task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task({});
      task = nullptr;
      lock.lock();
    }
    return count > 0;
  }

  void end(bool badly) {
    for (const auto& group : groups_) {
      if (badly && !group->broken()) group->break_up({.why = "MPI has ended"}, MpiGroupState::each_member);
      group->end();
    }
    if (!badly) watch_.calls().finalize(world_);
    if (badly) keep_groups();
  }

  /// MPI may still use the buffers of calls that have not ended, as long as the process lives.
  void keep_groups() {
    static std::mutex mutex;
    static auto* const kept = new std::vector<std::shared_ptr<MpiGroupState>>();
    const std::lock_guard lock(mutex);
    for (auto& group : groups_) kept->push_back(std::move(group));
    groups_.clear();
  }

  /// Called by the watching thread, while the other thread is in a call of MPI.
  void give_up(const std::string& why) {
    if (!is_started_) {
      const int known = MpiWorld::started().rank;  // MPI has not set the rank yet
      started_.set_value({(known < 0 ? "" : "rank " + std::to_string(known) + ": ") + "MpiWorld: " + why +
                          "; another process may be dead, stopped or cut off"});
    }
    const std::string text = "rank " + std::to_string(rank) + ": " + why;
    if (making_) making_->set_value({.why = "MpiWorld: " + text});
    const comm::Breakage broken{.why = text};
    for (const auto& group : groups_) group->stop_with(broken);
    end_tasks(broken);
  }

  /// Ends the tasks that wait for the thread, and those that come later.
  void end_tasks(const comm::Breakage& why) {
    std::deque<Task> tasks;
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return;
      ended_ = why;
      tasks.swap(tasks_);
    }
    for (Task& task : tasks) task(why);
    tasks.clear();
    const std::lock_guard lock(mutex_);
    tasks_ended_ = true;
    changed_.notify_all();
  }

  const MpiOptions options_;
  // Used by the thread, and by give_up():
  /// start() makes the exception from it, as with GroupOrFailure. Empty: there is none.
  struct Failure {
    std::string why = {};
    bool misuse = false;
  };
  std::promise<Failure> started_;
  bool is_started_ = false;
  Made making_;
  comm::MpiGroup* world_ = nullptr;
  std::vector<std::shared_ptr<MpiGroupState>> groups_;  // of which MPI has resources

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;  // guarded by the mutex, as are the following
  bool stopping_ = false;
  comm::Breakage ended_;      // why MPI is called no more
  bool tasks_ended_ = false;  // all earlier tasks were told that MPI has ended
  std::atomic<bool> asleep_{false};
  std::atomic<bool> options_compared_{false};  // by the first group
  std::atomic<std::int64_t> awaited_{0};       // calls that members have made, but not handed in
  comm::MpiWatch watch_;                       // the last member: it uses the others
};

namespace {

class MpiMember final : public comm::Member {
 public:
  using Thread = std::shared_ptr<MpiWorld::Impl>;

  MpiMember(Thread thread, std::shared_ptr<MpiGroupState> group)
      : thread_(std::move(thread)), group_(std::move(group)), rank_(group_->rank()), size_(group_->size()) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Index most_elements(comm::CallKind) const override { return std::numeric_limits<int>::max(); }

  std::uint64_t number(comm::CallKind kind, int peer) override {
    thread_->await_call();
    return Member::number(kind, peer);
  }
  void not_made(comm::CallKind kind, int peer) noexcept override {
    Member::not_made(kind, peer);
    thread_->call_came();
  }
  void take(ExchangePtr part) override {
    // The group is not released before all numbered calls have come.
    thread_->post([group = group_.get(), part = std::move(part)](const comm::Breakage& ended) mutable {
      if (!ended) return group->take(std::move(part));
      part->fail(ended);
    });
    thread_->call_came();
  }
  void break_up(const comm::Breakage& why) override {
    thread_->post([group = group_, why](const comm::Breakage& ended) {
      if (!ended) group->break_up(why, group->rank());
    });
  }
  void on_break(Heard heard) override {
    thread_->post([group = group_, heard = std::move(heard)](const comm::Breakage& ended) {
      if (!ended) return group->on_break(heard);
      heard(ended);
    });
  }
  void leave() override {
    thread_->post([group = group_, calls = numbered()](const comm::Breakage& ended) {
      if (!ended) group->leave(calls);
    });
  }

 private:
  const Thread thread_;
  const std::shared_ptr<MpiGroupState> group_;
  const int rank_, size_;
};

}  // namespace

MpiWorld::MpiWorld(MpiOptions options) : impl_(std::make_shared<Impl>(options)) { impl_->start(); }
MpiWorld::~MpiWorld() { impl_->stop(); }
int MpiWorld::rank() const { return impl_->rank; }
int MpiWorld::size() const { return impl_->size; }

Communicator MpiWorld::group(const Device& device) { return group(device, impl_->patience()); }

Communicator MpiWorld::group(const Device& device, std::chrono::nanoseconds patience) {
  comm::require_positive("MpiWorld::group", "patience", patience);
  const auto made = std::make_shared<std::promise<Impl::GroupOrFailure>>();
  impl_->post([impl = impl_.get(), made, patience](const comm::Breakage& ended) {
    if (!ended) return impl->make_group(made, patience);
    made->set_value({.why = "MpiWorld: " + ended.why});
  });
  const Impl::GroupOrFailure result = made->get_future().get();
  if (result.group == nullptr) throw CommError(result.why);
  Communicator group(device, std::make_shared<MpiMember>(impl_, result.group));
  impl_->require_equal_options(group);
  return group;
}

bool MpiWorld::under_mpirun() {
  // Open MPI; MPICH and others by PMI or PMIx.
  for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

MpiWorld::Started MpiWorld::started() {
  // Open MPI, MPICH and others by PMI, Slurm. Slurm sets the last ones for the processes of srun, and not for its
  // scripts.
  constexpr std::array<const char*, 3> names[] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
      {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
      {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"}};
  const auto number = [](const char* name) {
    const char* const text = std::getenv(name);
    return text == nullptr ? -1 : std::atoi(text);
  };
  for (const auto& [rank, size, on_node] : names) {
    const Started started{number(rank), number(size), std::max(number(on_node), 0)};
    if (started.rank >= 0 && started.size > started.rank) return started;
  }
  return {};
}

}  // namespace windrow
