// Each thread's own end of an engine: what would be one line that all threads write to is here one for each.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <type_traits>
#include <vector>

#include "ready_ring.h"
#include "record_pool.h"
#include "windrow/engine/mutex.h"

namespace windrow {

/// A wait for one variable. When it is given up, its record stays in the variable's chain, where it holds up nobody; as long as nothing joins
/// behind it, a further wait takes it up again, so that polling adds no records.
struct VariableWait {
  const VarState* var;
  AccessKind kind;
  std::uint32_t ticket;
  std::shared_ptr<Waiter> waiter;
  OpId id;
};

/// One thread's. A port outlives its thread, and then serves the next one that comes.
struct alignas(64) Port {
  /// Held while its thread makes a record and enters it; by another thread, to keep it from doing so.
  LockBit<StdAtomics> entry;
  /// Its thread is inside. Only that thread looks.
  bool entering = false;
  std::uint16_t number = 0;  ///< among those that have pushed, from 0
  bool numbered = false;

  // Written by its thread alone.
  std::atomic<std::uint64_t> pushed{0};   ///< ops that have been pushed
  std::atomic<std::uint64_t> entered{0};  ///< records that have joined: ops and waits
  std::atomic<std::uint64_t> left{0};     ///< records that have finished
  std::atomic<std::int64_t> waits{0};     ///< of those that have joined, less those that have finished here

  RecordPool::Cache records;
  /// The last descriptions of ops that were looked up, by a hash of what they describe.
  std::array<const OpInfo*, 64> sites{};

  static constexpr std::size_t most_left_behind = 16;
  std::vector<VariableWait> left_behind;

  ReadyRing ready;

  Port* next = nullptr;  ///< fixed
  bool taken = true;     ///< by a thread; guarded by the mutex of all ports

  template <class Count>
  static void add(std::atomic<Count>& counter, std::type_identity_t<Count> more) {
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
    std::uint64_t pushed = 0, pending = 0, waits = 0;
  };
  /// A sum of 0 pending was true at some moment of the call.
  Sums sums() const;

 private:
  struct OfThread;
  struct Last {
    std::uint32_t engine = 0;
    Port* port = nullptr;
  };
  static thread_local Last last_;

  Port& find();
  Port& take_one();
  void give_back(Port& port);

  const std::uint32_t engine_;
  std::atomic<Port*> first_{nullptr};
  Mutex mutex_;
  std::deque<Port> all_ WINDROW_GUARDED_BY(mutex_);
};

}  // namespace windrow
