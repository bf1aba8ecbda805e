// Runs: which nodes of a record are computed together, as one vertex, and which of them in the same way.
//
// A record is cut into runs as it is written (Record::join_run). Neighbours are then put together where one way of
// computing always comes before the other: so what code cuts by chance, such as a cell that looks up its word in its
// midst, becomes one vertex. Which these are is learned from the record itself and remembered. Instances that take
// turns are kept apart: what one wrote says nothing about what another one writes next.
#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lazy/record.h"

namespace windrow::lazy {

/// Lists of numbers by number. They are found by a hash, and compared.
class Lists {
 public:
  std::uint32_t number(std::span<const std::uint32_t> list);
  std::span<const std::uint32_t> operator[](std::uint32_t number) const;
  std::size_t size() const { return begin_.size() - 1; }

 private:
  std::vector<std::uint32_t> elements_;
  std::vector<std::size_t> begin_ = {0};
  std::unordered_multimap<std::size_t, std::uint32_t> by_hash_;
};

/// Where an operand of a node of a pattern comes from: an earlier node of the pattern, or outside of it.
struct OperandSource {
  enum class Is : std::uint32_t { inside, gathered, given } is;
  std::uint32_t
      number;  ///< inside: the distance in nodes; else the index of the value from outside, in the order of first use
};

/// A pattern is the keys of the nodes of a run with what they compute with, as numbers.
class Patterns {
 public:
  /// The numbers of a node: its key, then its operands.
  static std::uint32_t encode(const OperandSource& operand) {
    return operand.number << 2 | static_cast<std::uint32_t>(operand.is);
  }
  static OperandSource decode(std::uint32_t code) { return {static_cast<OperandSource::Is>(code & 3), code >> 2}; }
};

struct Run {
  NodeId begin, end;  // nodes
  bool apart;         // from the run before: another instance wrote it
  std::uint32_t pattern = 0;
  std::int32_t outside = 0;  // where its values from outside begin in Runs::outside()
  std::int32_t outside_end = 0;
  NodeId nodes() const { return end - begin; }
};

/// Of one record, epoch after epoch.
class Runs {
 public:
  explicit Runs(const Record& record) : record_(record) {}

  /// Finds those of nodes [first, end), each of which is where a flush began, or the record's end.
  void find(NodeId first, NodeId end);
  /// Drops those that these nodes do not need.
  void keep_only(std::span<const NodeId> nodes);
  const std::vector<Run>& runs() const { return runs_; }
  /// Nodes whose values runs compute with, run by run, each once.
  std::span<const NodeId> outside(const Run& run) const {
    return {outside_.data() + run.outside, static_cast<std::size_t>(run.outside_end - run.outside)};
  }
  /// The run of one of these nodes.
  std::int32_t run_of(NodeId node) const { return run_of_[at(node - first_)]; }
  const Lists& patterns() const { return patterns_; }
  /// What was not used for long is most of all that is remembered.
  bool remember_too_much() const;
  void forget();
  /// The nodes that they are of; those before were computed earlier.
  NodeId first() const { return first_; }
  NodeId end() const { return end_; }

 private:
  using Pair = std::uint64_t;
  static Pair pair(std::uint32_t a, std::uint32_t b) { return std::uint64_t{a} << 32 | b; }

  /// A run of nodes as the last one; without its pattern and its values from outside, which are found here.
  void add(Run run);
  void pop();
  void join_known();
  bool learn();
  void split_what_is_rare();
  void number();
  bool depends(const Run& run, const Run& on) const;

  const Record& record_;
  NodeId first_ = 0, end_ = 0;
  std::vector<Run> runs_, before_;
  std::vector<NodeId> outside_;
  std::vector<std::int32_t> run_of_;
  Lists patterns_;
  LastUse used_;                       // patterns
  std::unordered_set<Pair> together_;  // patterns of neighbours that are put together
  std::vector<std::uint32_t> scratch_;
};

}  // namespace windrow::lazy
