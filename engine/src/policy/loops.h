// The loops inside one engine's ops, and the idle threads of its running policy that help in them; see parallel.h.
//
// oneTBB distributes the pieces. Its arena has slots only for the engine's own threads, so TBB starts no threads. A
// helper is a thread of the policy that has no op to run; the policy counts it as running. It leaves as soon as its
// policy wants it back, and when its loop has no piece left to begin.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "process/fork.h"
#include "windrow/engine/internal/denormals.h"
#include "windrow/engine/internal/mutex.h"
#include "windrow/engine/parallel.h"

namespace windrow {

struct Running;

/// See parallel_for.
struct PieceLoop {
  std::size_t count, grain;
  LoopBody body;
  Denormals denormals = DenormalsScope::mode();  ///< of the op's thread, for all pieces

  std::size_t pieces() const { return piece_count(count, grain); }
};

/// Owner of the arena. Any thread may call the members.
class Loops {
 public:
  /// Called after each piece: whether the helping thread is needed elsewhere.
  struct Leave {
    const void* policy;
    bool (*wants_back)(const void* policy);
  };

  explicit Loops(int workers);
  ~Loops();

  /// Runs a loop of the op whose frame is `op`. `invite` is called once helpers may join.
  template <class Invite>
  void run(const Running& op, const PieceLoop& loop, Invite&& invite) {
    if (workers_ == 1 || !helpers_come || loop.pieces() < 2) return run_alone(op, loop);
    Open open(*this, op, loop);
    invite();
    open.run();
  }
  /// Runs the pieces one after the other.
  static void run_alone(const Running& op, const PieceLoop& loop);

  /// Whether a loop has pieces that no thread has begun. Threads that fall asleep check this after a fence; see
  /// ThreadPool::rouse.
  bool want_help() const { return open_count_.load(std::memory_order_seq_cst) > 0; }
  /// Helps in such a loop, if there still is one. If there is no memory it does nothing, which is also correct.
  void help(Leave leave) noexcept;

  // ---- fork; see RunningPolicy ----
  void each_mutex(EachMutex f) { f(mutex_); }
  /// Called in a forked child, where no op runs and the stacks of threads that helped are gone.
  void forget_threads() noexcept WINDROW_UNCHECKED_LOCKING;

 private:
  struct Helper;
  struct Arena;

#if defined(__SANITIZE_THREAD__)
  static constexpr bool helpers_come = false;  // ThreadSanitizer does not see how TBB orders what its tasks do
#else
  static constexpr bool helpers_come = true;
#endif

  /// A loop that helpers may join until its last piece has begun. Lives on the stack of the op's thread.
  class Open {
   public:
    Open(Loops& loops, const Running& op, const PieceLoop& loop);
    ~Open() { loops_.close(*this); }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;

    void run();

   private:
    void take(std::size_t piece);

    Loops& loops_;
    const Running& op_;
    const PieceLoop& loop_;
    std::atomic<std::size_t> begun_{0};  // pieces
  };

  void open(Open& loop) WINDROW_EXCLUDES(mutex_);
  /// Helpers leave the loop, and no more join it. May be called twice.
  void close(Open& loop) noexcept WINDROW_EXCLUDES(mutex_);
  bool join(Helper& helper) WINDROW_EXCLUDES(mutex_);
  void leave(Helper& helper) noexcept WINDROW_EXCLUDES(mutex_);

  const int workers_;
  /// The number of loops in open_. Written under mutex_, read by threads about to sleep.
  std::atomic<int> open_count_{0};
  Mutex mutex_;
  std::unique_ptr<Arena> arena_;  // created by the first loop, under mutex_; then fixed
  std::vector<Open*> open_ WINDROW_GUARDED_BY(mutex_);
  std::vector<Helper*> helpers_ WINDROW_GUARDED_BY(mutex_);  // each on its thread's stack
};

}  // namespace windrow
