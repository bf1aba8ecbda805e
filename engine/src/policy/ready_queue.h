// In which order ready ops are taken up. Pure data: no thread and no lock; the crew that owns a queue guards it.
//
// Ready ops are linked through themselves, so that none can be lost for want of memory.
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
  /// Whether take() has one to give; false on an empty queue.
  virtual bool has_next() const = 0;
  virtual OpRecord& take() noexcept = 0;
  /// Takes one that is wanted. `in_order`: as near; but where order is drawn, null if the draw falls on another.
  /// `near`: null if that needs a long search, or others have higher priority.
  enum class Search { in_order, near, all };
  virtual OpRecord* take_wanted(const Wanted& wanted, Search search) noexcept = 0;
  /// How long to wait before the next take.
  virtual std::chrono::microseconds pause() { return {}; }
  /// Whether it may be without a next op although it is not empty.
  virtual bool may_hold_back() const { return false; }
  /// Called when the queue, though not empty, had nothing to give for a long time: it does not wait any longer for the
  /// op whose number it returns.
  virtual OpId give_up_waiting() { return 0; }
};

/// Highest priority first, then in the order pushed. But now and then, when some takes have passed over ops of lower
/// priority, one goes to the op that has been here for longest, so that none waits for ever.
///
/// The ops are in sorted runs, which are merged like the digits of a binary counter: run k holds what is left of 2^k
/// puts. So a put and a take cost the logarithm of how many there are.
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
  /// So many takes may pass over others. It grows with the queue, which take_oldest() has to look through.
  std::size_t patience() const { return aging_takes + count_ / 4; }

  static constexpr std::size_t aging_takes = 32;

  std::array<Run, 64> runs_{};
  std::size_t used_ = 0;  // runs from here on are empty
  std::size_t best_ = 0;  // the run whose first op is the next one
  int lowest_ = 0;        // no op has lower priority
  std::size_t count_ = 0, passed_over_ = 0;
  std::int32_t puts_ = 0;
};

/// A seeded draw among all that is ready, or the order of an earlier log. Keeps a log: eight bytes an op. The log ends
/// where there is no memory for it.
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
  /// The program does not push what the log says: goes on by the seed.
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
