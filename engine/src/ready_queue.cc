#include "ready_queue.h"

#include <algorithm>

namespace windrow {
namespace {

/// By the pushes of each thread; among threads those come first that have pushed less.
OpId order_of(OpId id) { return id << OpRecord::thread_bits | id >> (64 - OpRecord::thread_bits); }

bool runs_later(const OpRecord* a, const OpRecord* b) { return order_of(a->id()) > order_of(b->id()); }

constexpr std::uint64_t one_pause_in = 4;
constexpr std::uint64_t longest_pause_us = 100;

}  // namespace

void PriorityQueue::put(OpRecord& op) {
  if (const auto level = levels_.find(op.priority); level != levels_.end()) {
    std::vector<OpRecord*>& heap = level->second.heap;
    heap.push_back(&op);
    std::push_heap(heap.begin(), heap.end(), runs_later);
  } else if (unused_) {
    unused_.mapped().heap.push_back(&op);
    unused_.mapped().served = takes_;
    unused_.key() = op.priority;
    levels_.insert(std::move(unused_));
  } else {
    levels_.emplace(op.priority, Level{{&op}, takes_});
  }
}

OpRecord& PriorityQueue::take() {
  const bool turned = levels_.size() > 1 && ++takes_ % aging_takes == 0;
  return take_from(turned ? longest_passed_over() : levels_.begin());
}

PriorityQueue::Levels::iterator PriorityQueue::longest_passed_over() {
  return std::min_element(levels_.begin(), levels_.end(),
                          [](const auto& a, const auto& b) { return a.second.served < b.second.served; });
}

OpRecord& PriorityQueue::take_from(Levels::iterator level) {
  std::vector<OpRecord*>& heap = level->second.heap;
  std::pop_heap(heap.begin(), heap.end(), runs_later);
  OpRecord& op = *heap.back();
  heap.pop_back();
  level->second.served = takes_;
  if (heap.empty()) unused_ = levels_.extract(level);
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
