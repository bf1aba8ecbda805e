// Per-thread state of an engine. Without ports, all threads would write the same cache line.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "policy/ready_ring.h"
#include "process/fork.h"
#include "record/record_pool.h"
#include "record/turnstile.h"
#include "trace/log.h"
#include "windrow/engine/internal/denormals.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

class Capture;
class GraphLaunch;

/// A wait for one variable. If it times out, its record stays in the variable's chain and blocks no other op. The next
/// wait for the variable reuses the record unless something has joined behind it, so that polling adds no records.
struct VariableWait {
  const VarState* var;
  AccessKind kind;
  std::uint32_t ticket;
  std::shared_ptr<Waiter> waiter;
  OpId id;
};

/// The key that distinguishes descriptions of ops.
struct SiteKey {
  std::uint64_t pushed_at = 0;  ///< the bits of a std::source_location, which is a pointer
  const char* name = nullptr;
  std::uint64_t lane = 0;
  bool run_always = false;

  SiteKey() = default;
  explicit SiteKey(const PushOptions& how)
      : pushed_at(std::bit_cast<std::uint64_t>(how.pushed_at)),
        name(how.name.text().data()),
        lane(std::bit_cast<std::uint64_t>(how.lane)),
        run_always(how.run_always) {}

  friend auto operator<=>(const SiteKey&, const SiteKey&) = default;
  /// Good enough to distinguish the push sites of one loop of a program.
  std::size_t hash() const { return pushed_at >> 3 ^ reinterpret_cast<std::uintptr_t>(name) >> 2; }
};
struct CachedSite {
  SiteKey key{};
  const OpInfo* info = nullptr;
};

/// The state of one thread. A port outlives its thread, and then serves the next thread that comes.
struct alignas(64) Port {
  /// The port's thread is inside while it makes and enters a record. Another thread may close the turnstile.
  Turnstile entry;
  /// What the port's thread is doing. Only that thread reads it.
  enum class Busy : std::uint8_t { no, entering, capturing, refusing };
  Busy busy = Busy::no;
  Capture* capture = nullptr;    ///< while the thread captures
  GraphLaunch* ended = nullptr;  ///< launches that ended on the thread; released once the op there has left
  /// The base of the ids of the thread's ops. It is 0 for the first thread that has pushed, and for each
  /// 65,535th later one.
  OpId first_id = unnumbered;
  static constexpr OpId unnumbered = ~OpId{0};

  // Written by the port's thread alone.
  std::atomic<std::uint64_t> pushed{0};      ///< ops that have joined
  std::atomic<std::uint64_t> waits{0};       ///< waits that have joined
  std::atomic<std::uint64_t> waits_left{0};  ///< waits that have finished
  std::atomic<std::uint64_t> left{0};        ///< ops and waits that have finished

  RecordPool::Cache records;
  /// The descriptions of ops that were looked up last, indexed by the hash of their keys.
  std::array<CachedSite, 64> sites{};

  Dep::Var* last_var = nullptr;  ///< of the last op with a single access; kept while no other thread enters records

  int pushes_to_look = 1;       ///< the number of pushes until the thread looks how many ops are pending
  std::uint64_t allowance = 0;  ///< the thread may push up to this many pending ops, since holding it back did not help
  bool completes_ops = false;   ///< whether this foreign thread has completed ops that others wait for

  static constexpr std::size_t most_left_behind = 16;
  std::vector<VariableWait> left_behind;  ///< waits that timed out; their memory is reserved before a wait is entered

  PoolRing* ring = nullptr;               ///< ring of the ops that the thread has made ready; belongs to a pool
  const char* refuses_because = nullptr;  ///< while the thread is in a PushRefusal

  /// Whether pushes of the thread do not enter the chains.
  bool diverted() const { return busy >= Busy::capturing; }

  TracePort trace;

  Port* next = nullptr;  ///< fixed
  bool taken = true;     ///< whether a thread uses the port; guarded by Ports::mutex_

  /// To be called in a forked child if the thread does not exist there. At the fork it may have been anywhere outside a
  /// push.
  void forget_thread() noexcept;

  static void add(std::atomic<std::uint64_t>& counter, std::uint64_t more) {
    counter.store(counter.load(std::memory_order_relaxed) + more, std::memory_order_release);
  }
};

/// A scope in which pushes of the port's thread always enter the chains, even in a capture or a refusal.
class BypassCapture {
 public:
  explicit BypassCapture(Port& port) : port_(port), before_(std::exchange(port.busy, Port::Busy::no)) {}
  ~BypassCapture() { port_.busy = before_; }
  BypassCapture(const BypassCapture&) = delete;
  BypassCapture& operator=(const BypassCapture&) = delete;

 private:
  Port& port_;
  const Port::Busy before_;
};

/// All ports of one engine. Members may be called by any thread.
class Ports {
 public:
  /// `engine` is the engine's number; its threads begin with the mode.
  explicit Ports(std::uint32_t engine, Denormals denormals = Denormals::keep);
  ~Ports();

  /// The calling thread's port. Makes it if there is none.
  Port& mine() {
    const Last& last = last_;
    return last.engine == engine_ ? *last.port : find();
  }
  /// As mine(), but null if the port would have to be made and there is no memory.
  Port* mine_if_any() noexcept {
    const Last& last = last_;
    return last.engine == engine_ ? last.port : find_if_any();
  }

  /// Publishes ops that the calling thread has made ready but kept, to publish them together with later ones. Called
  /// when the thread has made ready all its ops, or is about to wait.
  void hand_over() noexcept {
    const Port* const port = mine_if_any();
    if (port != nullptr && port->ring != nullptr && port->ring->kept() > 0) port->ring->hand_over();
  }

  /// Starts a thread. Its port is taken before it begins, so that it needs no memory to get one. Throws what
  /// std::thread throws, or std::bad_alloc.
  template <class Serve>
  std::thread start_thread(Serve serve) {
    Port& port = take_one();
    try {
      return std::thread([this, &port, serve] {
        adopt(port);
        DenormalsScope::set(denormals_);
        serve();
      });
    } catch (...) {
      give_back(port);
      throw;
    }
  }

  /// The first port of the list of all ports, which `next` links.
  Port* first() const { return first_.load(std::memory_order_acquire); }

  /// Keeps all threads from making and entering records during its lifetime.
  class WINDROW_SCOPED Stopped {
   public:
    explicit Stopped(Ports& ports) WINDROW_ACQUIRE(ports.mutex_) WINDROW_UNCHECKED_LOCKING : ports_(ports) {
      ports_.try_stop(std::numeric_limits<int>::max());
    }
    ~Stopped() WINDROW_RELEASE() WINDROW_UNCHECKED_LOCKING { ports_.go_on(); }
    Stopped(const Stopped&) = delete;
    Stopped& operator=(const Stopped&) = delete;

   private:
    Ports& ports_;
  };

  struct Sums {
    std::uint64_t pushed = 0, left = 0, pending = 0, waits = 0;
  };
  /// If `pending` is 0, nothing was pending at some moment during the call.
  Sums sums() const;

  // ---- fork; see fork.h ----
  static void each_mutex_of_process(EachMutex f);
  /// As Stopped, until go_on(). If a thread has not left a push after this many looks, reopens all ports and returns
  /// false. A thousand looks take about 50 ms.
  bool try_stop(int looks = 1000);
  void go_on();
  void forget_threads() noexcept;
  /// Whether the calling thread was started by this engine.
  bool on_own_thread() const;

 private:
  struct OfThread;
  struct Last {
    std::uint32_t engine = 0;
    Port* port = nullptr;
  };
  static constinit thread_local Last last_;

  static OfThread& of_this_thread();
  Port& find();
  Port* find_if_any() noexcept;
  Port& take_one() WINDROW_EXCLUDES(mutex_);
  /// Makes the port the calling thread's, which must not have one of any engine yet.
  void adopt(Port& port) noexcept;
  void give_back(Port& port) WINDROW_EXCLUDES(mutex_);

  const std::uint32_t engine_;
  const Denormals denormals_;
  std::atomic<Port*> first_{nullptr};
  Mutex mutex_;
  std::deque<Port> all_ WINDROW_GUARDED_BY(mutex_);
};

}  // namespace windrow
