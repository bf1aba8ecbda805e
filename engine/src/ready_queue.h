// In which order ready ops are taken up. Pure data: no thread and no lock; the crew that owns a queue guards it.
#pragma once

#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "op.h"

namespace windrow {

class ReadyQueue {
 public:
  virtual ~ReadyQueue() = default;
  virtual void put(OpRecord& op) = 0;
  virtual bool empty() const = 0;
  virtual std::size_t size() const = 0;
  /// Whether take() has one to give; false on an empty queue.
  virtual bool has_next() const = 0;
  virtual OpRecord& take() = 0;
  /// Whether what take() would give has positive priority.
  virtual bool next_is_urgent() const { return false; }
  /// How long to wait before the next take.
  virtual std::chrono::microseconds pause() { return {}; }
  /// Whether it may be without a next op although it is not empty.
  virtual bool may_hold_back() const { return false; }
  /// Called when the queue, though not empty, had nothing to give for a long time. What it returns is for the log.
  virtual std::string give_up_waiting() { return {}; }
};

/// Highest priority first, then in the order pushed.
class PriorityQueue final : public ReadyQueue {
 public:
  void put(OpRecord& op) override;
  bool empty() const override { return heap_.empty(); }
  std::size_t size() const override { return heap_.size(); }
  bool has_next() const override { return !heap_.empty(); }
  bool next_is_urgent() const override { return !heap_.empty() && heap_.front()->priority > 0; }
  OpRecord& take() override;

 private:
  std::vector<OpRecord*> heap_;
};

/// A seeded draw among all that is ready, or the order of an earlier log. Keeps a log: eight bytes an op.
class ChaosQueue final : public ReadyQueue {
 public:
  ChaosQueue(std::uint64_t seed, std::vector<OpId> replay) : random_(seed), replay_(std::move(replay)) {}

  void put(OpRecord& op) override { ready_.push_back(&op); }
  bool empty() const override { return ready_.empty(); }
  std::size_t size() const override { return ready_.size(); }
  bool has_next() const override { return !ready_.empty() && find_next() != ready_.size(); }
  OpRecord& take() override;
  std::chrono::microseconds pause() override;
  bool may_hold_back() const override { return !replay_.empty(); }
  /// The program does not push what the log says: goes on by the seed.
  std::string give_up_waiting() override;

  const std::vector<OpId>& log() const { return log_; }
  bool diverged() const { return diverged_; }

 private:
  bool replaying() const { return !diverged_ && log_.size() < replay_.size(); }
  /// Where the op stands that the log names next; while choosing freely, 0. ready_.size() if it is not ready.
  std::size_t find_next() const;

  std::mt19937_64 random_;
  const std::vector<OpId> replay_;
  std::vector<OpRecord*> ready_;
  std::vector<OpId> log_;
  bool diverged_ = false;
};

}  // namespace windrow
