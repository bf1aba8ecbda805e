#include "policy/loops.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <thread>

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

Loops::Open::Open(Loops& loops, const Running& op, const PieceLoop& loop, std::exception_ptr& error)
    : loops_(loops), op_(op), loop_(loop), error_(error) {
  MutexLock lock(loops_.mutex_);
  loops_.open_.push_back(this);
  loops_.open_count_.store(static_cast<int>(loops_.open_.size()), std::memory_order_seq_cst);
}

Loops::Open::~Open() {
  close();
  // acquire: sees what the helpers have done. Usually they end within one piece, which is less than a sleep takes.
  constexpr int yielding_looks = 1000;
  for (int look = 0; helpers.load(std::memory_order_acquire) > 0; ++look) {
    look < yielding_looks ? std::this_thread::yield() : std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void Loops::Open::close() noexcept {
  MutexLock lock(loops_.mutex_);
  std::erase(loops_.open_, this);
  loops_.open_count_.store(static_cast<int>(loops_.open_.size()), std::memory_order_seq_cst);
}

void Loops::Open::run(const std::function<bool()>& wanted_back) noexcept {
  const std::size_t pieces = loop_.pieces();
  for (std::size_t piece; (piece = begun_.fetch_add(1, std::memory_order_relaxed)) < pieces;) {
    if (piece + 1 == pieces) close();
    try {
      run_piece(op_, loop_, piece);
    } catch (...) {
      begun_.store(pieces, std::memory_order_relaxed);  // those that have not begun are dropped
      close();
      MutexLock lock(loops_.mutex_);
      if (!error_) error_ = std::current_exception();
    }
    if (wanted_back()) return;
  }
}

void Loops::run_alone(const Running& op, const PieceLoop& loop) {
  for (std::size_t piece = 0; piece < loop.pieces(); ++piece) run_piece(op, loop, piece);
}

void Loops::help(const std::function<bool()>& wanted_back) noexcept {
  Open* loop = nullptr;
  {
    MutexLock lock(mutex_);
    if (open_.empty()) return;
    loop = open_.front();
    ++loop->helpers;
  }
  loop->run(wanted_back);
  loop->helpers.fetch_sub(1, std::memory_order_release);  // the loop may be gone now
}

void Loops::forget_threads() noexcept {
  ::new (&open_) std::vector<Open*>();
  open_count_ = 0;
}

void run_pieces(std::size_t count, std::size_t grain, const LoopBody& body) {
  if (count == 0) return;
  grain = std::max<std::size_t>(grain, 1);
  const Running* const op = Running::innermost();
  if (op != nullptr && op->slots != nullptr && count > grain) {
    const PieceLoop loop{count, grain, body};
    // What the thread has begun, such as a capture or a section of a lane, other threads are not in.
    if (OwnThreadOnly::here() || op->op->info().lane->ordered) return Loops::run_alone(*op, loop);
    return op->slots->run_loop(*op, loop);
  }
  for (std::size_t begin = 0; begin < count; begin += std::min(grain, count - begin)) {
    body(begin, begin + std::min(grain, count - begin));
  }
}

}  // namespace windrow
