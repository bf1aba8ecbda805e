// In which order ready ops are taken up. Pure data: no thread and no lock; the crew that owns a queue guards it.
#pragma once

#include <chrono>
#include <map>
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
  /// Whether take() has one to give; false on an empty queue.
  virtual bool has_next() const = 0;
  virtual OpRecord& take() = 0;
  /// Whether there is one of positive priority.
  virtual bool has_urgent() const { return false; }
  /// Takes such a one.
  virtual OpRecord& take_urgent() { return take(); }
  /// How long to wait before the next take.
  virtual std::chrono::microseconds pause() { return {}; }
  /// Whether it may be without a next op although it is not empty.
  virtual bool may_hold_back() const { return false; }
  /// Called when the queue, though not empty, had nothing to give for a long time. What it returns is for the log.
  virtual std::string give_up_waiting() { return {}; }
};

/// Highest priority first, then in the order pushed. But every 32nd of the takes that pass over something goes to the
/// priority that was passed over for longest, so that none starves: among `n` priorities each has its turn within 32 n
/// takes.
class PriorityQueue final : public ReadyQueue {
 public:
  static constexpr std::uint64_t aging_takes = 32;

  void put(OpRecord& op) override;
  bool empty() const override { return levels_.empty(); }
  bool has_next() const override { return !levels_.empty(); }
  bool has_urgent() const override { return !levels_.empty() && levels_.begin()->first > 0; }
  OpRecord& take() override;
  OpRecord& take_urgent() override { return take_from(levels_.begin()); }

 private:
  /// Ready ops of one priority.
  struct Level {
    std::vector<OpRecord*> heap;  // by the order pushed
    std::uint64_t served = 0;     // `takes_` when one was last taken, or when the level was added
  };
  using Levels = std::map<int, Level, std::greater<>>;

  OpRecord& take_from(Levels::iterator level);
  Levels::iterator longest_passed_over();

  Levels levels_;             // none is empty
  Levels::node_type unused_;  // the last that became so, to be used again
  std::uint64_t takes_ = 0;   // those that passed over something
};

/// A seeded draw among all that is ready, or the order of an earlier log. Keeps a log: eight bytes an op.
class ChaosQueue final : public ReadyQueue {
 public:
  ChaosQueue(std::uint64_t seed, std::vector<OpId> replay) : random_(seed), replay_(std::move(replay)) {}

  void put(OpRecord& op) override { ready_.push_back(&op); }
  bool empty() const override { return ready_.empty(); }
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
