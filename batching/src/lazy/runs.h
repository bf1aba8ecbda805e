// Runs: groups of nodes that are computed together, as one vertex. Runs with the same pattern are computed in the same
// way.
//
// A record is divided into runs while it is written (RunCutter). Then neighbouring runs are merged if their
// patterns occur only one after the other. So a cell that was accidentally divided becomes one vertex, for example a
// cell that looks up its word in the middle. Such pairs of patterns are learned from the record itself and remembered.
// Runs of different instances are not merged, since the order of instances says nothing about the program.
#pragma once

#include <map>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lazy/record.h"

namespace windrow::lazy {

/// The minibatch in which each element of a list was last used.
class LastUse {
 public:
  void note(std::uint32_t number, std::uint32_t minibatch) {
    if (number >= last_.size()) last_.resize(number + 1);
    last_[number] = minibatch;
  }
  /// Whether at least half of the elements, and at least `least`, were not used in the last 16 minibatches.
  bool mostly_long_ago(std::uint32_t minibatch, std::ptrdiff_t least) const {
    constexpr std::uint32_t long_ago = 16;
    const auto old = std::count_if(last_.begin(), last_.end(), [&](auto last) { return minibatch - last > long_ago; });
    return old >= least && 2 * old >= static_cast<std::ptrdiff_t>(last_.size());
  }

 private:
  std::vector<std::uint32_t> last_;
};

/// Numbered lists of numbers, none of them empty. A list is compared with the latest one that began with the same
/// number before it is searched.
class Lists {
 public:
  std::uint32_t number(std::span<const std::uint32_t> list);
  std::span<const std::uint32_t> operator[](std::uint32_t number) const { return *lists_[number]; }
  std::size_t size() const { return lists_.size(); }

 private:
  std::map<std::vector<std::uint32_t>, std::uint32_t> numbers_;
  std::vector<const std::vector<std::uint32_t>*> lists_;  // of numbers_, by number
  std::vector<std::uint32_t> latest_;                     // by first element: the list found last
};

/// Where an operand of a node of a pattern comes from: an earlier node of the pattern, or outside of it.
struct OperandSource {
  enum class Is : std::uint32_t { inside, gathered, given } is;
  std::uint32_t
      number;  ///< inside: the distance in nodes; else the index of the value from outside, in the order of first use
};

/// The encoding of patterns. A pattern is a list of numbers: for each node of a run its key, then its operands. The
/// first result of a call of a cell stands for all its results.
class Patterns {
 public:
  static std::uint32_t encode(const OperandSource& operand) {
    return operand.number << 2 | static_cast<std::uint32_t>(operand.is);
  }
  static OperandSource decode(std::uint32_t code) { return {static_cast<OperandSource::Is>(code & 3), code >> 2}; }
  /// Calls visit(node, key, codes) for each node of a pattern, with the number of its key and its encoded operands.
  template <class Visit>
  static void each_node(std::span<const std::uint32_t> pattern, const Keys& keys, Visit visit) {
    std::int32_t node = 0;
    for (std::size_t at = 0; at < pattern.size(); ++node) {
      const std::uint32_t key = pattern[at];
      const auto codes = pattern.subspan(at + 1, keys[key].widths.size());
      visit(node, key, codes);
      at += 1 + codes.size();
    }
  }
};

struct LazyRun {
  NodeId begin, end;  // nodes
  bool apart;         // another instance recorded the run before
  bool call = false;  // of a cell
  std::uint32_t pattern = 0;
  std::int32_t outside = 0;  // begin of its values in Runs::outside_
  std::int32_t list = 0;     // where the elements of a cell's list begin among them; the end without a list
  std::int32_t outside_end = 0;
  NodeId nodes() const { return end - begin; }
};

/// The runs of one record, for one epoch after the other.
class Runs {
 public:
  explicit Runs(const Record& record) : record_(record), nodes_(record.nodes()) {}

  /// Finds the runs of nodes [first, end). Each bound is the first node of a flush, or the end of the record.
  void find(NodeId first, NodeId end);
  /// From now on, divides runs of each of these patterns (of more than one node) before the given node. Also divides
  /// the current runs.
  void divide(const std::map<std::uint32_t, std::int32_t>& before);
  /// Drops the runs that these nodes do not depend on.
  void keep_only(std::span<const NodeId> nodes);
  const std::vector<LazyRun>& runs() const { return runs_; }
  /// The nodes outside of a run whose values it uses, each once. The elements of a list follow.
  std::span<const NodeId> outside(const LazyRun& run) const {
    return {outside_.from(run.outside), at(run.outside_end - run.outside)};
  }
  /// The run of a node in [first(), end()).
  std::int32_t run_of(NodeId node) const { return run_of_[at(node - first_)]; }
  const Lists& patterns() const { return patterns_; }
  /// Whether most remembered patterns have not been used for long.
  bool remember_too_much() const;
  void forget();
  /// The bounds given to find(). Nodes before first() were computed earlier.
  NodeId first() const { return first_; }
  NodeId end() const { return end_; }

 private:
  using Pair = std::uint64_t;
  static Pair pair(std::uint32_t a, std::uint32_t b) { return std::uint64_t{a} << 32 | b; }

  /// Appends a run, and finds its pattern and its values from outside.
  void add(const LazyRun& made);
  /// The same for the parts into which its pattern is divided. Returns whether there are several.
  bool add_parts(const LazyRun& made);
  void add_node(const LazyRun& run, NodeId id, std::span<const NodeId> operands);
  std::uint32_t from_outside(const LazyRun& run, NodeId operand);
  std::uint32_t code_of(NodeId operand, std::size_t number) const {
    const auto is = operand < first_ ? OperandSource::Is::given : OperandSource::Is::gathered;
    return Patterns::encode({is, static_cast<std::uint32_t>(number)});
  }
  void pop();
  void join_known();
  bool learn();
  void split_what_is_rare();
  void number();
  bool depends(const LazyRun& run, const LazyRun& on) const;

  const Record& record_;
  const Nodes& nodes_;
  NodeId first_ = 0, end_ = 0;
  std::vector<LazyRun> runs_, before_;
  Tail<NodeId> outside_;
  std::vector<std::int32_t> run_of_;
  Lists patterns_;
  LastUse used_;                                   // of patterns
  std::unordered_set<Pair> together_;              // pairs of patterns that are merged
  std::map<std::uint32_t, std::int32_t> divided_;  // patterns, and the node before which their runs are divided
  std::vector<std::uint32_t> scratch_;
};

}  // namespace windrow::lazy
