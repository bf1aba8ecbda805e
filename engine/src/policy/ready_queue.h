// Queues of ready ops, each with its order. Pure data, without threads or locks; the owner of a queue guards it.
//
// Ready ops are linked through themselves, so none can be lost for lack of memory.
#pragma once

#include <array>
#include <chrono>
#include <random>

#include "policy/slots.h"
#include "record/op.h"

namespace windrow {

class ReadyQueue {
 public:
  virtual ~ReadyQueue() = default;
  virtual void put(OpRecord& op) noexcept = 0;
  virtual bool empty() const = 0;
  virtual std::size_t size() const = 0;
  /// The queue must not be empty.
  virtual OpRecord& take() noexcept = 0;
  /// Takes a wanted op.
  /// `in_order`: as `near`, but if the order is drawn, null if the draw falls on an op that is not wanted.
  /// `near`: null if the search would be long, or if other ops have higher priority.
  /// `all`: without these limits.
  enum class Search { in_order, near, all };
  virtual OpRecord* take_wanted(const Wanted& wanted, Search search) noexcept = 0;
  /// How long to wait before the next take.
  virtual std::chrono::microseconds pause() { return {}; }
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

/// Draws each op at random, by a seed, among all ready ops.
class ChaosQueue final : public ReadyQueue {
 public:
  explicit ChaosQueue(std::uint64_t seed) : random_(seed) {}

  void put(OpRecord& op) noexcept override;
  bool empty() const override { return first_ == nullptr; }
  std::size_t size() const override { return count_; }
  OpRecord& take() noexcept override;
  OpRecord* take_wanted(const Wanted& wanted, Search search) noexcept override;
  std::chrono::microseconds pause() override;

 private:
  /// The link to an op that is drawn at random.
  Dep::Op** draw();
  OpRecord& take_from(Dep::Op** link) noexcept;

  std::mt19937_64 random_;
  Dep::Op* first_ = nullptr;
  Dep::Op** end_ = &first_;  // the last link
  std::size_t count_ = 0;
  std::size_t taken_ = 0;
};

}  // namespace windrow
