// Queues of ready ops, each with its order. Pure data, without threads or locks; the owner of a queue guards it.
//
// Ready ops are linked through themselves, so none can be lost for lack of memory.
#pragma once

#include <array>
#include <chrono>
#include <random>
#include <vector>

#include "core/op.h"
#include "policy/slots.h"

namespace windrow {

class ReadyQueue {
 public:
  virtual ~ReadyQueue() = default;
  virtual void put(OpRecord& op) noexcept = 0;
  virtual bool empty() const = 0;
  virtual std::size_t size() const = 0;
  /// Whether take() has an op to return; false on an empty queue.
  virtual bool has_next() const = 0;
  virtual OpRecord& take() noexcept = 0;
  /// Takes a wanted op.
  /// `in_order`: as `near`, but if the order is drawn, null if the draw falls on an op that is not wanted.
  /// `near`: null if the search would be long, or if other ops have higher priority.
  /// `all`: without these limits.
  enum class Search { in_order, near, all };
  virtual OpRecord* take_wanted(const Wanted& wanted, Search search) noexcept = 0;
  /// How long to wait before the next take.
  virtual std::chrono::microseconds pause() { return {}; }
  /// Whether the queue may have no next op although it is not empty.
  virtual bool may_hold_back() const { return false; }
  /// Called when the queue is not empty but has had no next op for a long time: it stops waiting for a certain op,
  /// whose number is returned.
  virtual OpId give_up_waiting() { return 0; }
};

/// Highest priority first, then in the order of pushes. After a number of takes have passed over ops of lower priority,
/// one take goes to the op that has been in the queue for longest, so that no op waits for ever.
///
/// The ops are in sorted runs, which are merged like the digits of a binary counter: run k holds what is left of 2^k
/// puts. So a put and a take cost the logarithm of the number of ops.
class PriorityQueue final : public ReadyQueue {
 public:
  void put(OpRecord& op) noexcept override;
  bool empty() const override { return first() == nullptr; }
  std::size_t size() const override { return count_; }
  bool has_next() const override { return first() != nullptr; }
  OpRecord& take() noexcept override;
  OpRecord* take_wanted(const Wanted& wanted, Search search) noexcept override;

 private:
  struct Run {
    OpRecord* first = nullptr;
    OpRecord* last = nullptr;
  };
  /// An op in its run, and the one before it there.
  struct Place {
    Run* run = nullptr;
    OpRecord* before = nullptr;
    OpRecord* op = nullptr;
  };

  static Run merge(Run a, Run b);
  OpRecord* first() const { return runs_[best_].first; }
  void find_best();
  OpRecord& take_best() noexcept;
  OpRecord& take_oldest() noexcept;
  OpRecord& take_from(const Place& place) noexcept;
  /// The number of takes that may pass over other ops. It grows with the queue, which take_oldest() searches.
  std::size_t patience() const { return aging_takes + count_ / 4; }

  static constexpr std::size_t aging_takes = 32;

  std::array<Run, 64> runs_{};
  std::size_t used_ = 0;  // runs from here on are empty
  std::size_t best_ = 0;  // the run whose first op is the next one
  int lowest_ = 0;        // no op has a lower priority
  std::size_t count_ = 0, passed_over_ = 0;
  std::int32_t puts_ = 0;
};

/// Draws each op at random, by a seed, among all ready ops, or follows the order of an earlier log. Keeps a log of
/// eight bytes per op, which ends when there is no memory for it.
class ChaosQueue final : public ReadyQueue {
 public:
  ChaosQueue(std::uint64_t seed, std::vector<OpId> replay) : random_(seed), replay_(std::move(replay)) {}

  void put(OpRecord& op) noexcept override;
  bool empty() const override { return first_ == nullptr; }
  std::size_t size() const override { return count_; }
  bool has_next() const override { return !empty() && (!replaying() || wanted() != nullptr); }
  OpRecord& take() noexcept override;
  OpRecord* take_wanted(const Wanted& wanted, Search search) noexcept override;
  std::chrono::microseconds pause() override;
  bool may_hold_back() const override { return !replay_.empty(); }
  /// The program does not push the op that the log names next: continues by the seed.
  OpId give_up_waiting() override;

  const std::vector<OpId>& log() const { return log_; }
  bool diverged() const { return diverged_; }

 private:
  bool replaying() const { return !diverged_ && taken_ < replay_.size(); }
  /// The link to the op that the log names next; null if it is not ready.
  Dep::Op* const* wanted() const;
  OpRecord& take_from(Dep::Op** link) noexcept;
  void note(OpId id) noexcept;

  std::mt19937_64 random_;
  const std::vector<OpId> replay_;
  Dep::Op* first_ = nullptr;
  Dep::Op** end_ = &first_;  // the last link
  std::size_t count_ = 0;
  std::size_t taken_ = 0;
  std::vector<OpId> log_;
  bool log_has_ended_ = false;
  bool diverged_ = false;
};

}  // namespace windrow
