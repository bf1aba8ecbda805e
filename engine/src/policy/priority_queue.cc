#include "policy/priority_queue.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace windrow {
namespace {

/// Orders ops by the number of their push on its thread first, and then by thread.
OpId order_of(OpId id) { return id << OpRecord::thread_bits | id >> (64 - OpRecord::thread_bits); }

bool runs_later(const OpRecord* a, const OpRecord* b) {
  return a->priority != b->priority ? a->priority < b->priority : order_of(a->id()) > order_of(b->id());
}

}  // namespace

PriorityQueue::Run PriorityQueue::merge(Run a, Run b) {
  // Ops arrive roughly in order, so usually all ops of one run precede those of the other.
  if (runs_later(a.first, b.last)) std::swap(a, b);
  if (runs_later(b.first, a.last)) {
    a.last->next_ready = b.first;
    return {a.first, b.last};
  }
  Dep::Op* first = nullptr;
  Dep::Op** end = &first;
  while (a.first != nullptr && b.first != nullptr) {
    Run& next = runs_later(a.first, b.first) ? b : a;
    *end = next.first;
    end = &next.first->next_ready;
    next.first = static_cast<OpRecord*>(*end);
  }
  const Run& rest = a.first != nullptr ? a : b;
  *end = rest.first;
  return {static_cast<OpRecord*>(first), rest.last};
}

void PriorityQueue::find_best() {
  while (used_ > 0 && runs_[used_ - 1].first == nullptr) --used_;
  best_ = 0;
  lowest_ = std::numeric_limits<int>::max();
  for (std::size_t i = 0; i < used_; ++i) {
    if (runs_[i].first == nullptr) continue;
    lowest_ = std::min(lowest_, runs_[i].last->priority);
    if (first() == nullptr || runs_later(first(), runs_[i].first)) best_ = i;
  }
}

void PriorityQueue::put(OpRecord& op) noexcept {
  op.stamp(puts_++ & std::numeric_limits<std::int32_t>::max());
  op.next_ready = nullptr;
  Run run{&op, &op};
  std::size_t place = 0;
  for (; runs_[place].first != nullptr; ++place) run = merge(std::exchange(runs_[place], {}), run);
  runs_[place] = run;
  used_ = std::max(used_, place + 1);
  ++count_;
  find_best();
}

OpRecord& PriorityQueue::take() noexcept {
  passed_over_ += first()->priority > lowest_;
  if (passed_over_ < patience()) return take_best();
  passed_over_ = 0;
  return take_oldest();
}

OpRecord& PriorityQueue::take_best() noexcept {
  Run& run = runs_[best_];
  OpRecord& op = *run.first;
  run.first = static_cast<OpRecord*>(op.next_ready);
  --count_;
  find_best();
  return op;
}

OpRecord& PriorityQueue::take_oldest() noexcept {
  const auto age = [&](const OpRecord& op) { return (puts_ - op.stamp()) & std::numeric_limits<std::int32_t>::max(); };
  InRun oldest;
  for (std::size_t i = 0; i < used_; ++i) {
    OpRecord* before = nullptr;
    for (OpRecord* op = runs_[i].first; op != nullptr; before = op, op = static_cast<OpRecord*>(op->next_ready)) {
      if (oldest.op == nullptr || age(*op) > age(*oldest.op)) oldest = {&runs_[i], before, op};
    }
  }
  return take_from(oldest);
}

OpRecord& PriorityQueue::take_from(const InRun& place) noexcept {
  auto* const next = static_cast<OpRecord*>(place.op->next_ready);
  if (place.before != nullptr) {
    place.before->next_ready = next;
  } else {
    place.run->first = next;
  }
  if (place.run->last == place.op) place.run->last = place.before;
  --count_;
  find_best();
  return *place.op;
}

OpRecord* PriorityQueue::take_wanted(const Wanted& wanted, Search search) noexcept {
  if (empty()) return nullptr;
  const int least = search == Search::all ? std::numeric_limits<int>::min() : first()->priority;
  std::size_t looks = 0;
  for (std::size_t i = 0; i < used_; ++i) {
    OpRecord* before = nullptr;
    for (OpRecord* op = runs_[i].first; op != nullptr; before = op, op = static_cast<OpRecord*>(op->next_ready)) {
      if (op->priority < least) break;
      if (wanted(*op)) return &take_from({&runs_[i], before, op});
      if (++looks == Slots::most_looks && search != Search::all) return nullptr;
    }
  }
  return nullptr;
}

}  // namespace windrow
