#include "policy/loops.h"

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>

#include <algorithm>

#include "lane/lanes.h"
#include "policy/slots.h"
#include "record/running.h"

namespace windrow {

namespace {

void run_piece(const Running& op, const PieceLoop& loop, std::size_t piece) {
  const Running frame(op, Running::Piece{});
  const DenormalsScope denormals(loop.denormals);
  const std::size_t begin = piece * loop.grain;
  loop.body(begin, begin + std::min(loop.count - begin, loop.grain));
}

}  // namespace

/// Has as many slots as threads may run ops; for a moment there may be more such threads than workers. TBB has no more
/// than 65,534 slots, and takes memory for each. Further threads wait until one is free.
struct Loops::Arena : tbb::task_arena {
  static constexpr int most_slots = 8192;
  explicit Arena(int workers) : tbb::task_arena(slots(workers), static_cast<unsigned>(slots(workers))) {}

 private:
  static int slots(int workers) { return 2 * std::min(workers, most_slots / 2); }
};

/// A thread that waits in the arena, where TBB gives it pieces, until `stays` is reset.
struct Loops::Helper {
  Helper(Loops& loops, Leave when) : of(loops), leave(when) { mine = this; }
  ~Helper() { mine = nullptr; }

  Loops& of;
  const Leave leave;
  const Open* loop = nullptr;
  tbb::task_group group;
  tbb::task_handle stays;  // guarded by Loops::mutex_ while the helper is in helpers_

  /// The helper of the calling thread, or null.
  static inline constinit thread_local Helper* mine = nullptr;
};

Loops::Open::Open(Loops& loops, const Running& op, const PieceLoop& loop) : loops_(loops), op_(op), loop_(loop) {
  loops.open(*this);
}

void Loops::Open::run() {
  loops_.arena_->execute([this] {
    // Isolated: while this thread waits for the last pieces, it must not run pieces of another op's loop.
    tbb::this_task_arena::isolate([this] {
      tbb::parallel_for(
          std::size_t{0}, loop_.pieces(), [this](std::size_t piece) { take(piece); }, tbb::simple_partitioner());
    });
  });
}

void Loops::Open::take(std::size_t piece) {
  if (begun_.fetch_add(1, std::memory_order_relaxed) + 1 == loop_.pieces()) loops_.close(*this);
  run_piece(op_, loop_, piece);
  Helper* const helper = Helper::mine;
  if (helper == nullptr || !helper->leave.wants_back(helper->leave.policy)) return;
  MutexLock lock(helper->of.mutex_);
  helper->stays = {};
}

Loops::Loops(int workers) : workers_(workers) {}
Loops::~Loops() = default;

void Loops::run_alone(const Running& op, const PieceLoop& loop) {
  for (std::size_t piece = 0; piece < loop.pieces(); ++piece) run_piece(op, loop, piece);
}

void Loops::open(Open& loop) {
  MutexLock lock(mutex_);
  if (!arena_) arena_ = std::make_unique<Arena>(workers_);
  open_.push_back(&loop);
  open_count_.store(static_cast<int>(open_.size()), std::memory_order_seq_cst);
}

void Loops::close(Open& loop) noexcept {
  MutexLock lock(mutex_);
  std::erase(open_, &loop);
  open_count_.store(static_cast<int>(open_.size()), std::memory_order_seq_cst);
  for (Helper* helper : helpers_) {
    if (helper->loop == &loop) helper->stays = {};
  }
}

bool Loops::join(Helper& helper) {
  MutexLock lock(mutex_);
  if (open_.empty()) return false;
  helpers_.reserve(helpers_.size() + 1);
  helper.stays = helper.group.defer([] {});
  helper.loop = open_.front();
  helpers_.push_back(&helper);
  return true;
}

void Loops::leave(Helper& helper) noexcept {
  MutexLock lock(mutex_);
  std::erase(helpers_, &helper);
  helper.stays = {};
}

void Loops::help(Leave when) noexcept {
  try {
    Helper helper(*this, when);
    if (!join(helper)) return;
    try {
      arena_->execute([&] { helper.group.wait(); });
    } catch (...) {
      leave(helper);
      throw;
    }
    leave(helper);
  } catch (const std::bad_alloc&) {
    // The loop continues without this thread.
  }
}

void Loops::forget_threads() noexcept {
  ::new (&open_) std::vector<Open*>();
  ::new (&helpers_) std::vector<Helper*>();
  open_count_ = 0;
  static_cast<void>(arena_.release());  // its slots belong to threads that do not exist
}

void parallel_for(std::size_t count, std::size_t grain, LoopBody body) {
  if (count == 0) return;
  grain = std::max<std::size_t>(grain, 1);
  const Running* const op = Running::innermost();
  if (op != nullptr && op->slots != nullptr && count > grain) {
    const PieceLoop loop{count, grain, body};
    // Scopes of this thread, such as a capture or a section of a lane, do not apply to other threads.
    if (OwnThreadOnly::here() || op->op->info().lane->ordered) return Loops::run_alone(*op, loop);
    return op->slots->run_loop(*op, loop);
  }
  for (std::size_t begin = 0; begin < count; begin += std::min(grain, count - begin)) {
    body(begin, begin + std::min(grain, count - begin));
  }
}

}  // namespace windrow
