// A queue of ready ops, by priority. Pure data, without threads or locks; its owner guards it.
//
// Ready ops contain the links, so none can be lost for lack of memory.
#pragma once

#include <array>

#include "policy/slots.h"
#include "record/op.h"

namespace windrow {

/// Highest priority first, then in the order of pushes. After a number of takes that passed over ops of lower priority,
/// one take gets the op that has been in the queue for longest. So no op waits for ever.
///
/// The ops are in sorted runs, which are merged like the digits of a binary counter: run k holds the remaining ops of
/// 2^k puts. So the cost of a put or a take is logarithmic in the number of ops.
class PriorityQueue {
 public:
  void put(OpRecord& op) noexcept;
  bool empty() const { return first() == nullptr; }
  std::size_t size() const { return count_; }
  /// The queue must not be empty.
  OpRecord& take() noexcept;
  /// Takes a wanted op. `near`: null if the search would be long, or if other ops have higher priority.
  enum class Search { near, all };
  OpRecord* take_wanted(const Wanted& wanted, Search search) noexcept;

 private:
  struct Run {
    OpRecord* first = nullptr;
    OpRecord* last = nullptr;
  };
  /// An op in its run, and the one before it there.
  struct InRun {
    Run* run = nullptr;
    OpRecord* before = nullptr;
    OpRecord* op = nullptr;
  };

  static Run merge(Run a, Run b);
  OpRecord* first() const { return runs_[best_].first; }
  void find_best();
  OpRecord& take_best() noexcept;
  OpRecord& take_oldest() noexcept;
  OpRecord& take_from(const InRun& place) noexcept;
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

}  // namespace windrow
