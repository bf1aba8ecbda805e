#include "mpi/watch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>

#include "ending.h"
#include "windrow/comm/mpi.h"
#include "windrow/engine/error.h"
#include "windrow/engine/internal/engine_use.h"

namespace windrow::comm {

const MpiCalls& mpi_calls() {
  static const OpenedPlugIn opened = open_plug_in(mpi_plug_in);
  if (opened.table == nullptr) throw MisuseError(opened.error);
  return *static_cast<const MpiCalls*>(opened.table);
}

struct MpiWatch::Shared {
  const MpiCalls& mpi;
  const Times times;
  const GiveUp give_up;
  std::mutex lock = {};
  bool given_up = false;  // guarded by the lock
  // The MPI function in which the thread is, or null; and how many it has called.
  std::atomic<const char*> inside{nullptr};
  std::atomic<std::uint64_t> called{0};
  const char* last = "";  // of this thread alone
  std::mutex ending_lock = {};
  std::condition_variable changed = {};
  bool ending = false;  // guarded by ending_lock

  /// The watching thread.
  void watch();
};

namespace {

thread_local MpiWatch::Shared* state_of_this_thread = nullptr;

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
  MpiWatch::Shared& state_;
};

/// Calls a function of the table; `name` is its name in MPI.
template <auto Function>
int outside(const char* name, auto... arguments) {
  state_of_this_thread->last = name;
  const Outside call(name);
  return (call.mpi().*Function)(arguments...);
}

const char* mpi_name_of(CallKind kind) {
  constexpr const char* names[] = {
      "MPI_Iallreduce", "MPI_Ireduce", "MPI_Ibcast", "MPI_Iallgather", "MPI_Ireduce_scatter_block",
      "MPI_Ialltoall",  "MPI_Isend",   "MPI_Irecv"};
  return names[static_cast<std::size_t>(kind)];
}

constexpr MpiCalls watched = {
    .version = MpiCalls::current_version,
    .init = [](const void* communicator,
               MpiGroup** world) { return outside<&MpiCalls::init>("MPI_Init_thread", communicator, world); },
    .finalize = [](MpiGroup* world) { return outside<&MpiCalls::finalize>("MPI_Finalize", world); },
    .text = nullptr,  // see mpi_text()
    .rank = [](MpiGroup* g, int* rank, int* size) { return outside<&MpiCalls::rank>("MPI_Comm_rank", g, rank, size); },
    .duplicate = [](MpiGroup* g, MpiGroup** made) { return outside<&MpiCalls::duplicate>("MPI_Comm_dup", g, made); },
    .release = [](MpiGroup* g) { return outside<&MpiCalls::release>("MPI_Comm_free", g); },
    .begin = [](MpiGroup* g, const MpiTransfer* what,
                MpiRequest** r) { return outside<&MpiCalls::begin>(mpi_name_of(what->kind), g, what, r); },
    .test = [](MpiRequest** r, int* done) { return outside<&MpiCalls::test>("MPI_Test", r, done); },
    .cancel = [](MpiRequest** r) { return outside<&MpiCalls::cancel>("MPI_Cancel", r); },
};

}  // namespace

MpiWatch::MpiWatch(const MpiCalls& mpi, Times times, GiveUp give_up)
    : state_(new Shared{.mpi = mpi, .times = times, .give_up = std::move(give_up)}) {
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

const MpiCalls& MpiWatch::calls() { return watched; }

const char* MpiWatch::last_call() { return state_of_this_thread->last; }

std::string mpi_text(int error) {
  std::array<char, 512> text{};
  const Outside call("MPI_Error_string");
  call.mpi().text(error, text.data(), text.size());
  return text.data();
}

void MpiWatch::Shared::watch() {
  using Clock = std::chrono::steady_clock;
  std::shared_ptr<void> kept;  // to the end of this thread, outside the lock
  std::uint64_t seen = 0;
  auto since = Clock::now();
  auto tell_next = times.tell_after;
  std::unique_lock at_end(ending_lock);
  while (!changed.wait_for(at_end, std::min(times.patience, times.tell_after) / 4, [this] { return ending; })) {
    const char* const function = inside.load(std::memory_order_acquire);
    const std::uint64_t now = called.load(std::memory_order_relaxed);
    if (function == nullptr || now != seen) {
      seen = now;
      since = Clock::now();
      tell_next = times.tell_after;
      continue;
    }
    const std::chrono::nanoseconds waited = Clock::now() - since;
    if (waited < times.patience) {
      if (waited < tell_next) continue;
      tell_next *= 2;
      log_warning("rank " + std::to_string(MpiWorld::started().rank) + " waits " + seconds(whole_seconds(waited)) +
                  " in " + function + ", for other processes");
      continue;
    }
    const std::lock_guard guard(lock);
    if (inside.load(std::memory_order_relaxed) == nullptr || called.load(std::memory_order_relaxed) != seen) continue;
    given_up = true;
    kept = give_up(std::string(function) + " has not returned for " + seconds(times.patience));
    return;
  }
}

}  // namespace windrow::comm
