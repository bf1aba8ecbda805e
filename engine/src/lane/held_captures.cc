#include "lane/held_captures.h"

#include <thread>
#include <utility>

namespace windrow {
namespace {

/// The engine whose captures this thread destroys, or null.
constinit thread_local const Core* destroys_of = nullptr;

}  // namespace

bool HeldCaptures::destroys_here(const Core* core) { return destroys_of == core; }

HeldCaptures::~HeldCaptures() {
  while (first_ != nullptr) delete std::exchange(first_, first_->next);
}

void HeldCaptures::keep(std::unique_ptr<Held> held) noexcept {
  const std::shared_ptr<Lane> lane = owner_.lock();
  if (lane == nullptr) return;  // the engine has ended, and all points are reached
  held->serial = recorded_.load(std::memory_order_acquire);
  release_reached();
  if (held->serial == 0) return;
  {
    MutexLock lock(mutex_);
    Held* const added = held.release();
    (first_ == nullptr ? first_ : last_->next) = added;
    last_ = added;
  }
  ask();
}

std::unique_ptr<HeldCaptures::Held> HeldCaptures::take_reached() noexcept {
  MutexLock lock(mutex_);
  if (first_ == nullptr || !lane_->reached({lane_, first_->serial})) return nullptr;
  return std::unique_ptr<Held>(std::exchange(first_, first_->next));
}

void HeldCaptures::release_reached() noexcept {
  ++destroying_;
  const Core* const outer = std::exchange(destroys_of, core_);
  while (take_reached() != nullptr) {
  }
  destroys_of = outer;
  --destroying_;
}

void HeldCaptures::ask() noexcept {
  std::uint64_t serial = 0;
  {
    MutexLock lock(mutex_);
    if (first_ == nullptr || until_callback_ != nullptr) return;
    until_callback_ = shared_from_this();
    serial = last_->serial;
  }
  // The capture is one pointer, for which std::function needs no memory.
  lane_->when_reached({lane_, serial}, [this](const std::exception_ptr&) {
    std::shared_ptr<HeldCaptures> self;
    {
      MutexLock lock(mutex_);
      self = std::move(until_callback_);
    }
    release_reached();
    ask();
  });
}

void HeldCaptures::finish() noexcept {
  release_reached();
  if (destroys_here(core_)) return;  // the call comes from a destructor of captures, and would wait for itself
  while (destroying_ != 0) std::this_thread::yield();
}

}  // namespace windrow
