// The losses of a training. Waits for them late, so that one minibatch is always in flight.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

#include "windrow/models/trainer.h"

namespace windrow {

/// The losses of an epoch. Waits for a loss only when the next minibatch was pushed.
class Trainer::LossSum {
 public:
  explicit LossSum(const std::function<void(double)>& each) : each_(each) {}
  /// `number`: of the minibatch.
  void add(Learner::Loss loss, std::int64_t labels, std::uint64_t number) {
    pending_.push_back({std::move(loss), labels, number});
    if (pending_.size() > 1) take();
  }
  /// After a failure: waits for the other losses, so that their failures are not reported later.
  void give_up() {
    for (const Pending& pending : pending_) {
      try {
        pending.loss();
      } catch (const Error&) {
      }
    }
    pending_.clear();
  }
  double finish() {
    while (!pending_.empty()) take();
    return sum_;
  }
  void begin_with(double sum, std::int64_t labels) {
    sum_ = sum;
    labels_ = labels;
  }
  double sum() const { return sum_; }
  /// The minibatch whose loss failed; 0 if there is none.
  std::uint64_t failed() const { return waiting_for_; }
  std::int64_t labels() const { return labels_; }
  /// The mean per label, over the minibatches whose loss was waited for; 0 without labels.
  double mean() const { return sum_ / static_cast<double>(std::max<std::int64_t>(labels_, 1)); }

 private:
  struct Pending {
    Learner::Loss loss;
    std::int64_t labels;
    std::uint64_t number;
  };
  void take() {
    waiting_for_ = pending_.front().number;
    const double loss = pending_.front().loss();
    waiting_for_ = 0;
    const std::int64_t labels = pending_.front().labels;
    pending_.pop_front();
    sum_ += loss;
    labels_ += labels;
    if (each_) each_(loss / static_cast<double>(std::max<std::int64_t>(labels, 1)));
  }

  const std::function<void(double)>& each_;
  std::deque<Pending> pending_;
  double sum_ = 0;
  std::int64_t labels_ = 0;
  std::uint64_t waiting_for_ = 0;
};

}  // namespace windrow
