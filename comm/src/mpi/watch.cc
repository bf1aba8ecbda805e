#include "mpi/watch.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>

#include "ending.h"

namespace windrow::comm {

struct MpiWatch::State {
  const MpiCalls& mpi;
  const std::chrono::nanoseconds patience;
  const GiveUp give_up;
  std::mutex lock = {};
  bool given_up = false;  // guarded by the lock
  // Of the thread that calls MPI: the function that it is in, or null; and how many it has called.
  std::atomic<const char*> inside{nullptr};
  std::atomic<std::uint64_t> called{0};
  std::mutex ending_lock = {};
  std::condition_variable changed = {};
  bool ending = false;  // guarded by ending_lock

  /// The watching thread.
  void watch();
};

namespace {

thread_local MpiWatch::State* state_of_this_thread = nullptr;

/// One call of MPI, which is made outside the lock.
class Outside {
 public:
  explicit Outside(const char* function) : state_(*state_of_this_thread) {
    state_.called.fetch_add(1, std::memory_order_relaxed);
    state_.inside.store(function, std::memory_order_release);
    state_.lock.unlock();
  }
  ~Outside() noexcept(false) {
    state_.lock.lock();
    state_.inside.store(nullptr, std::memory_order_relaxed);
    if (state_.given_up) throw MpiWatch::GivenUp();
  }
  Outside(const Outside&) = delete;
  Outside& operator=(const Outside&) = delete;

  const MpiCalls& mpi() const { return state_.mpi; }

 private:
  MpiWatch::State& state_;
};

template <auto Function>
constexpr const char* name_of = "";
template <>
constexpr const char* name_of<&MpiCalls::init> = "MPI_Init_thread";
template <>
constexpr const char* name_of<&MpiCalls::finalize> = "MPI_Finalize";
template <>
constexpr const char* name_of<&MpiCalls::rank> = "MPI_Comm_rank";
template <>
constexpr const char* name_of<&MpiCalls::duplicate> = "MPI_Comm_dup";
template <>
constexpr const char* name_of<&MpiCalls::release> = "MPI_Comm_free";
template <>
constexpr const char* name_of<&MpiCalls::all_reduce> = "MPI_Iallreduce";
template <>
constexpr const char* name_of<&MpiCalls::reduce> = "MPI_Ireduce";
template <>
constexpr const char* name_of<&MpiCalls::broadcast> = "MPI_Ibcast";
template <>
constexpr const char* name_of<&MpiCalls::all_gather> = "MPI_Iallgather";
template <>
constexpr const char* name_of<&MpiCalls::reduce_scatter> = "MPI_Ireduce_scatter_block";
template <>
constexpr const char* name_of<&MpiCalls::all_to_all> = "MPI_Ialltoall";
template <>
constexpr const char* name_of<&MpiCalls::send> = "MPI_Isend";
template <>
constexpr const char* name_of<&MpiCalls::receive> = "MPI_Irecv";
template <>
constexpr const char* name_of<&MpiCalls::test> = "MPI_Test";
template <>
constexpr const char* name_of<&MpiCalls::cancel> = "MPI_Cancel";

template <auto Function, class... A>
int outside(A... arguments) {
  const Outside call(name_of<Function>);
  return (call.mpi().*Function)(arguments...);
}
template <auto Function, class... A>
void watch_call(int (*&to)(A...)) {
  to = outside<Function, A...>;
}

void text(int error, char* text, std::size_t size) {
  const Outside call("MPI_Error_string");
  call.mpi().text(error, text, size);
}

MpiCalls watched_calls() {
  MpiCalls calls{};
  calls.version = MpiCalls::current_version;
  calls.text = text;
  watch_call<&MpiCalls::init>(calls.init);
  watch_call<&MpiCalls::finalize>(calls.finalize);
  watch_call<&MpiCalls::rank>(calls.rank);
  watch_call<&MpiCalls::duplicate>(calls.duplicate);
  watch_call<&MpiCalls::release>(calls.release);
  watch_call<&MpiCalls::all_reduce>(calls.all_reduce);
  watch_call<&MpiCalls::reduce>(calls.reduce);
  watch_call<&MpiCalls::broadcast>(calls.broadcast);
  watch_call<&MpiCalls::all_gather>(calls.all_gather);
  watch_call<&MpiCalls::reduce_scatter>(calls.reduce_scatter);
  watch_call<&MpiCalls::all_to_all>(calls.all_to_all);
  watch_call<&MpiCalls::send>(calls.send);
  watch_call<&MpiCalls::receive>(calls.receive);
  watch_call<&MpiCalls::test>(calls.test);
  watch_call<&MpiCalls::cancel>(calls.cancel);
  return calls;
}

}  // namespace

MpiWatch::MpiWatch(const MpiCalls& mpi, std::chrono::nanoseconds patience, GiveUp give_up)
    : state_(new State{.mpi = mpi, .patience = patience, .give_up = std::move(give_up)}) {
  std::thread([state = state_] { state->watch(); }).detach();
}

// Does not wait for the thread, which may be the one that destroys this. It gives up only while MPI is called.
MpiWatch::~MpiWatch() {
  {
    const std::lock_guard lock(state_->ending_lock);
    state_->ending = true;
  }
  state_->changed.notify_one();
}

void MpiWatch::run(const std::function<void()>& body) {
  state_of_this_thread = state_.get();
  const std::lock_guard lock(state_->lock);
  body();
}

const MpiCalls& MpiWatch::calls() {
  static const MpiCalls watched = watched_calls();
  return watched;
}

void MpiWatch::State::watch() {
  using Clock = std::chrono::steady_clock;
  std::shared_ptr<void> kept;  // to the end of this thread, outside the lock
  std::uint64_t seen = 0;
  auto since = Clock::now();
  std::unique_lock at_end(ending_lock);
  while (!changed.wait_for(at_end, patience / 4, [this] { return ending; })) {
    const char* const function = inside.load(std::memory_order_acquire);
    const std::uint64_t now = called.load(std::memory_order_relaxed);
    if (function == nullptr || now != seen) {
      seen = now;
      since = Clock::now();
      continue;
    }
    if (Clock::now() - since < patience) continue;
    const std::lock_guard guard(lock);
    if (inside.load(std::memory_order_relaxed) == nullptr || called.load(std::memory_order_relaxed) != seen) continue;
    given_up = true;
    kept = give_up(std::string(function) + " has not returned for " + seconds(patience));
    return;
  }
}

}  // namespace windrow::comm
