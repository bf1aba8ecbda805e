#include "record/ports.h"

#include <pthread.h>

#include <algorithm>
#include <map>
#include <memory>
#include <type_traits>

#include "process/immortal.h"

namespace windrow {
namespace {

/// The ports of all living engines, so that a thread that ends can return the ports it has taken.
struct Alive {
  Mutex mutex;
  std::map<std::uint32_t, Ports*> ports WINDROW_GUARDED_BY(mutex);
};

Alive& alive() { return immortal<Alive>(); }

}  // namespace

/// The ports that one thread has taken. The destructor of a pthread key returns them. It runs after the destructors of
/// all thread-local objects, which may still use engines.
struct Ports::OfThread {
  struct Taken {
    std::uint32_t engine;
    Port* port;
  };
  Taken adopted{};                      ///< the port that an engine's own thread was started with; else engine 0
  std::vector<Taken>* taken = nullptr;  ///< null while there is none

  /// Ensures that the ports are returned when the thread ends. Needs no memory in a process with few keys. If it fails,
  /// the ports stay taken as long as their engine lives.
  void end_with_thread() noexcept {
    static const Key key;
    if (key.made) pthread_setspecific(key.value, this);
  }

 private:
  struct Key {
    pthread_key_t value{};
    const bool made = pthread_key_create(&value, &OfThread::end) == 0;
  };

  static void end(void* of_thread) {
    OfThread& mine = *static_cast<OfThread*>(of_thread);
    last_ = {};
    MutexLock lock(alive().mutex);
    give_back(std::exchange(mine.adopted, {}));
    const std::unique_ptr<std::vector<Taken>> taken(std::exchange(mine.taken, nullptr));
    if (!taken) return;
    for (const Taken& of : *taken) give_back(of);
  }
  static void give_back(const Taken& of) WINDROW_REQUIRES(alive().mutex) {
    const auto found = alive().ports.find(of.engine);
    if (found != alive().ports.end()) found->second->give_back(*of.port);
  }
};

constinit thread_local Ports::Last Ports::last_;

Ports::Ports(std::uint32_t engine, Denormals denormals) : engine_(engine), denormals_(denormals) {
  MutexLock lock(alive().mutex);
  alive().ports.emplace(engine, this);
}

Ports::~Ports() {
  MutexLock lock(alive().mutex);
  alive().ports.erase(engine_);
}

Port& Ports::find() {
  OfThread& mine = of_this_thread();
  if (mine.adopted.engine == engine_) {
    last_ = {engine_, mine.adopted.port};
    return *last_.port;
  }
  if (mine.taken == nullptr) {
    mine.taken = std::make_unique<std::vector<OfThread::Taken>>().release();
    mine.end_with_thread();
  }
  std::vector<OfThread::Taken>& taken = *mine.taken;
  auto known = std::find_if(taken.begin(), taken.end(), [&](const auto& t) { return t.engine == engine_; });
  if (known == taken.end()) {
    {
      MutexLock lock(alive().mutex);
      std::erase_if(taken, [](const auto& t) WINDROW_UNCHECKED_LOCKING { return !alive().ports.contains(t.engine); });
    }
    taken.reserve(taken.size() + 1);
    taken.push_back({engine_, &take_one()});
    known = taken.end() - 1;
  }
  last_ = {engine_, known->port};
  return *last_.port;
}

Ports::OfThread& Ports::of_this_thread() {
  static_assert(std::is_trivially_destructible_v<OfThread>);
  static constinit thread_local OfThread mine;
  return mine;
}

Port* Ports::find_if_any() noexcept {
  try {
    return &find();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void Ports::adopt(Port& port) noexcept {
  OfThread& mine = of_this_thread();
  mine.adopted = {engine_, &port};
  mine.end_with_thread();
  last_ = {engine_, &port};
}

Port& Ports::take_one() {
  MutexLock lock(mutex_);
  for (Port& port : all_) {
    if (std::exchange(port.taken, true)) continue;
    port.completes_ops = false;
    return port;
  }
  Port& port = all_.emplace_back();
  port.next = first_.load(std::memory_order_relaxed);
  first_.store(&port, std::memory_order_release);
  return port;
}

void Ports::give_back(Port& port) {
  MutexLock lock(mutex_);
  port.taken = false;
}

Ports::Sums Ports::sums() const {
  // Counts finished ops and waits first, so that everything pending at the moment between the two loops is counted.
  std::uint64_t waits_left = 0;
  Sums sums;
  for (Port* port = first(); port != nullptr; port = port->next) {
    waits_left += port->waits_left.load(std::memory_order_acquire);
    sums.left += port->left.load(std::memory_order_acquire);
  }
  for (Port* port = first(); port != nullptr; port = port->next) {
    sums.pushed += port->pushed.load(std::memory_order_acquire);
    sums.waits += port->waits.load(std::memory_order_acquire);
  }
  sums.pending = sums.pushed + sums.waits - sums.left;
  sums.waits = std::min(sums.waits - waits_left, sums.pending);  // clamped, since the counters were read one by one
  return sums;
}

void Port::forget_thread() noexcept {
  entry.forget_thread();
  busy = Busy::no;
  capture = nullptr;
  ended = nullptr;
  sites = {};
  pushes_to_look = 1;
  allowance = 0;
  completes_ops = false;
  refuses_because = nullptr;
  ::new (&left_behind) std::vector<VariableWait>;  // not destroyed: the thread may have been changing the old one
  trace = {};
  taken = false;
}

void Ports::each_mutex_of_process(EachMutex f) { f(alive().mutex); }

bool Ports::on_own_thread() const { return of_this_thread().adopted.engine == engine_; }

bool Ports::try_stop(int looks) WINDROW_UNCHECKED_LOCKING {
  mutex_.lock();  // so that no further port is made
  for (Port& port : all_) port.entry.close();
  AsymmetricFence::heavy();
  const auto is_outside = [&](const Port& port) { return port.entry.await_outside(looks); };
  if (std::all_of(all_.begin(), all_.end(), is_outside)) return true;
  go_on();
  return false;
}

void Ports::go_on() WINDROW_UNCHECKED_LOCKING {
  for (Port& port : all_) port.entry.open();
  mutex_.unlock();
}

void Ports::forget_threads() noexcept WINDROW_UNCHECKED_LOCKING {
  const auto is_mine = [&](const Port& port) {
    const OfThread& mine = of_this_thread();
    const auto same = [&](const OfThread::Taken& of) { return of.engine == engine_ && of.port == &port; };
    return same(mine.adopted) || (mine.taken != nullptr && std::any_of(mine.taken->begin(), mine.taken->end(), same));
  };
  for (Port& port : all_) {
    if (!is_mine(port)) port.forget_thread();
  }
}

}  // namespace windrow
