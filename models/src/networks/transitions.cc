#include "windrow/models/transitions.h"

#include <algorithm>

namespace windrow {
namespace {

std::int32_t head_of(std::int32_t word, std::span<const std::int32_t> heads) {
  return heads[static_cast<std::size_t>(word) - 1];
}

}  // namespace

ArcHybrid::ArcHybrid(std::int32_t words) : heads_(static_cast<std::size_t>(words), none) {}

bool ArcHybrid::legal(Transition transition) const {
  switch (transition) {
    case Transition::shift:
      return next_ != 0;
    case Transition::left:
      return next_ != 0 ? !stack_.empty() : stack_.size() == 1;
    default:
      return stack_.size() >= 2;
  }
}

void ArcHybrid::apply(Transition transition) {
  if (transition == Transition::shift) {
    stack_.push_back(next_);
    next_ = next_ == static_cast<std::int32_t>(heads_.size()) ? 0 : next_ + 1;
    return;
  }
  const std::int32_t head = transition == Transition::left ? next_ : stack(1);
  heads_[static_cast<std::size_t>(stack(0)) - 1] = head;
  stack_.pop_back();
}

int ArcHybrid::cost(Transition transition, std::span<const std::int32_t> heads) const {
  if (transition == Transition::shift) {
    // After a shift, the word cannot get a head below the top of the stack, and no dependent from the stack. Only the
    // lowest word of the stack can depend on the root.
    const std::int32_t head = head_of(next_, heads);
    const bool below = std::find(stack_.begin(), stack_.end(), head) != stack_.end() && head != stack(0);
    const auto dependents =
        std::count_if(stack_.begin(), stack_.end(), [&](std::int32_t word) { return head_of(word, heads) == next_; });
    return static_cast<int>(dependents) + (below || (head == 0 && !stack_.empty()));
  }
  // The top of the stack loses its dependents in the buffer, and all heads except the one that it gets.
  const std::int32_t word = stack(0), head = head_of(word, heads);
  const bool behind = next_ != 0 && (head >= next_ || (head == 0 && stack_.size() == 1));
  const bool gets_it = head == (transition == Transition::left ? next_ : stack(1));
  const auto from = next_ == 0 ? heads.end() : heads.begin() + (next_ - 1);
  const auto dependents = std::count(from, heads.end(), word);
  return static_cast<int>(dependents) + (!gets_it && (behind || head == stack(1)));
}

}  // namespace windrow
