// The loops of one engine's ops, in which idle threads of its running policy help; see parallel.h.
//
// A helper is a thread of the policy that has no op to run; the policy counts it as running. It takes one piece after
// the other, and leaves as soon as its policy wants it back, or no piece is left to begin.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
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
  const LoopBody& body;
  Denormals denormals = DenormalsScope::mode();  ///< of the op's thread, for all pieces

  std::size_t pieces() const { return piece_count(count, grain); }
};

/// Any thread may call the members.
class Loops {
 public:
  explicit Loops(int workers) : workers_(workers) {}

  /// Runs a loop of the op whose frame is `op`. `invite` is called once helpers may join.
  template <class Invite>
  void run(const Running& op, const PieceLoop& loop, Invite&& invite) {
    if (workers_ == 1 || loop.pieces() < 2) return run_alone(op, loop);
    std::exception_ptr error;
    {
      Open open(*this, op, loop, error);
      invite();
      open.run([] { return false; });
    }
    if (error) std::rethrow_exception(error);
  }
  /// Runs the pieces one after the other.
  static void run_alone(const Running& op, const PieceLoop& loop);

  /// Whether a loop has pieces that no thread has begun. Threads that fall asleep check this behind a fence; see
  /// ThreadPool::rouse.
  bool want_help() const { return open_count_.load(std::memory_order_seq_cst) > 0; }
  /// Helps in such a loop, if there still is one, until `wanted_back()` holds after a piece.
  void help(const std::function<bool()>& wanted_back) noexcept WINDROW_EXCLUDES(mutex_);

  // ---- fork; see RunningPolicy ----
  void each_mutex(EachMutex f) { f(mutex_); }
  /// Called in a forked child, where no op runs and the stacks of threads that helped are gone.
  void forget_threads() noexcept WINDROW_UNCHECKED_LOCKING;

 private:
  /// A loop that helpers may join until its last piece has begun. Lives on the stack of the op's thread.
  class Open {
   public:
    /// `error` becomes the first exception of a piece.
    Open(Loops& loops, const Running& op, const PieceLoop& loop, std::exception_ptr& error);
    /// Waits until no helper runs a piece.
    ~Open();
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;

    void run(const std::function<bool()>& wanted_back) noexcept;

    std::atomic<int> helpers{0};

   private:
    /// Keeps further helpers out. May be called twice.
    void close() noexcept;

    Loops& loops_;
    const Running& op_;
    const PieceLoop& loop_;
    std::exception_ptr& error_;          // guarded by Loops::mutex_
    std::atomic<std::size_t> begun_{0};  // pieces; may exceed their number
  };

  const int workers_;
  /// The number of loops in open_. Written under mutex_, read by threads about to sleep.
  std::atomic<int> open_count_{0};
  Mutex mutex_;
  std::vector<Open*> open_ WINDROW_GUARDED_BY(mutex_);
};

}  // namespace windrow
