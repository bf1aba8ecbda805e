// Each thread's own end of an engine: what would be one line that all threads write to is here one for each.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <deque>
#include <thread>
#include <vector>

#include "core/record_pool.h"
#include "core/turnstile.h"
#include "policy/ready_ring.h"
#include "process/fork.h"
#include "trace/log.h"
#include "windrow/engine/mutex.h"

namespace windrow {

class Capture;
struct EndedPart;

/// A wait for one variable. When it is given up, its record stays in the variable's chain, where it holds up nobody; as
/// long as nothing joins behind it, a further wait takes it up again, so that polling adds no records.
struct VariableWait {
  const VarState* var;
  AccessKind kind;
  std::uint32_t ticket;
  std::shared_ptr<Waiter> waiter;
  OpId id;
};

/// By what descriptions of ops are told apart.
struct SiteKey {
  std::uint64_t pushed_at = 0;  ///< of std::source_location, which is a pointer
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
  /// Enough to tell those of one program's loop apart.
  std::size_t hash() const { return pushed_at >> 3 ^ reinterpret_cast<std::uintptr_t>(name) >> 2; }
};
struct CachedSite {
  SiteKey key{};
  const OpInfo* info = nullptr;
};

/// One thread's. A port outlives its thread, and then serves the next one that comes.
struct alignas(64) Port {
  /// Its thread is inside while it makes a record and enters it; another thread may keep it from doing so.
  Turnstile entry;
  /// What its thread is in the middle of. Only that thread looks.
  enum class Busy : std::uint8_t { no, entering, capturing };
  Busy busy = Busy::no;
  Capture* capture = nullptr;  ///< while it captures
  EndedPart* ended = nullptr;  ///< of graphs, what has ended on its thread and goes once the op there has left
  std::uint32_t number = 0;    ///< fixed: so many ports were made before it
  /// What the numbers of its ops begin with; 0 is the first thread that has pushed.
  OpId first_id = unnumbered;
  static constexpr OpId unnumbered = ~OpId{0};

  // Written by its thread alone.
  std::atomic<std::uint64_t> pushed{0};      ///< ops that have joined
  std::atomic<std::uint64_t> waits{0};       ///< waits that have joined
  std::atomic<std::uint64_t> waits_left{0};  ///< waits that have finished
  std::atomic<std::uint64_t> left{0};        ///< ops and waits that have finished

  RecordPool::Cache records;
  /// The last descriptions of ops that were looked up, by a hash of what they describe.
  std::array<CachedSite, 64> sites{};

  Dep::Var* last_var = nullptr;  ///< that an op had for its only one; while no other thread enters records

  int pushes_to_look = 1;       ///< until its thread looks how many ops are pending
  std::uint64_t allowance = 0;  ///< of pending ops, where it had been held back in vain
  bool completes_ops = false;   ///< its thread, which is not the engine's, has completed ops that others wait for

  static constexpr std::size_t most_left_behind = 16;
  std::vector<VariableWait> left_behind;  ///< has room for so many before a wait is entered

  ReadyRing ready;
  int bulk_scopes = 0;  ///< its thread is in

  TracePort trace;

  Port* next = nullptr;  ///< fixed
  bool taken = true;     ///< by a thread; guarded by the mutex of all ports

  /// Its thread, which may have been anywhere outside a push, does not exist in this process.
  void forget_thread() noexcept;

  static void add(std::atomic<std::uint64_t>& counter, std::uint64_t more) {
    counter.store(counter.load(std::memory_order_relaxed) + more, std::memory_order_release);
  }
};

/// All ports of one engine. Members may be called by any thread.
class Ports {
 public:
  /// `engine` is its number.
  explicit Ports(std::uint32_t engine);
  ~Ports();

  /// The calling thread's.
  Port& mine() {
    const Last& last = last_;
    return last.engine == engine_ ? *last.port : find();
  }
  /// The same if the thread has used it last; else null.
  const Port* mine_if_last() const {
    const Last& last = last_;
    return last.engine == engine_ ? last.port : nullptr;
  }
  /// As mine(); null where it would have to be made and there is no memory.
  Port* mine_if_any() noexcept {
    const Last& last = last_;
    return last.engine == engine_ ? last.port : find_if_any();
  }

  /// Starts a thread which has its port before it begins, and so needs no memory to get one. Throws what std::thread
  /// throws, or std::bad_alloc.
  template <class Serve>
  std::thread start_thread(Serve serve) {
    Port& port = take_one();
    try {
      return std::thread([this, &port, serve] {
        adopt(port);
        serve();
      });
    } catch (...) {
      give_back(port);
      throw;
    }
  }

  /// How many there are.
  std::uint32_t count() const { return count_.load(std::memory_order_relaxed); }
  /// The first of all, which lead to each other by `next`.
  Port* first() const { return first_.load(std::memory_order_acquire); }

  /// Keeps all threads from making and entering records, as long as it lives.
  class WINDROW_SCOPED Stopped {
   public:
    explicit Stopped(Ports& ports) WINDROW_ACQUIRE(ports.mutex_);
    ~Stopped() WINDROW_RELEASE();
    Stopped(const Stopped&) = delete;
    Stopped& operator=(const Stopped&) = delete;

   private:
    Ports& ports_;
  };

  struct Sums {
    std::uint64_t pushed = 0, left = 0, pending = 0, waits = 0;
  };
  /// A sum of 0 pending was true at some moment of the call.
  Sums sums() const;

  // ---- fork; see fork.h ----
  static void each_mutex_of_process(EachMutex f);
  /// As Stopped, until go_on(). False, and all go on, if a thread takes long over a push.
  bool try_stop();
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
  /// This thread has none yet, of any engine.
  void adopt(Port& port) noexcept;
  void give_back(Port& port) WINDROW_EXCLUDES(mutex_);

  const std::uint32_t engine_;
  std::atomic<Port*> first_{nullptr};
  std::atomic<std::uint32_t> count_{0};
  Mutex mutex_;
  std::deque<Port> all_ WINDROW_GUARDED_BY(mutex_);
};

}  // namespace windrow
