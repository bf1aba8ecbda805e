#include "ready_queue.h"

#include <algorithm>

namespace windrow {
namespace {

/// By the pushes of each thread; among threads those come first that have pushed less.
OpId order_of(OpId id) { return id << OpRecord::thread_bits | id >> (64 - OpRecord::thread_bits); }

bool runs_later(const OpRecord* a, const OpRecord* b) {
  return a->priority != b->priority ? a->priority < b->priority : order_of(a->id()) > order_of(b->id());
}

constexpr std::uint64_t one_pause_in = 4;
constexpr std::uint64_t longest_pause_us = 100;

}  // namespace

void PriorityQueue::put(OpRecord& op) {
  heap_.push_back(&op);
  std::push_heap(heap_.begin(), heap_.end(), runs_later);
}

OpRecord& PriorityQueue::take() {
  std::pop_heap(heap_.begin(), heap_.end(), runs_later);
  OpRecord& op = *heap_.back();
  heap_.pop_back();
  return op;
}

std::size_t ChaosQueue::find_next() const {
  if (!replaying()) return 0;
  const OpId wanted = replay_[log_.size()];
  const auto found = std::find_if(ready_.begin(), ready_.end(), [=](const OpRecord* op) { return op->id() == wanted; });
  return static_cast<std::size_t>(found - ready_.begin());
}

OpRecord& ChaosQueue::take() {
  const std::size_t index = replaying() ? find_next() : random_() % ready_.size();
  OpRecord& op = *ready_[index];
  ready_[index] = ready_.back();
  ready_.pop_back();
  log_.push_back(op.id());
  return op;
}

std::chrono::microseconds ChaosQueue::pause() {
  if (replaying() || random_() % one_pause_in != 0) return {};
  return std::chrono::microseconds(random_() % longest_pause_us);
}

std::string ChaosQueue::give_up_waiting() {
  if (!replaying()) return {};
  diverged_ = true;
  return "replay left its log at op " + std::to_string(replay_[log_.size()]) +
         ", which does not become ready; going on by the seed";
}

}  // namespace windrow
