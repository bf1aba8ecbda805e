// Decides which vertex types a runner computes as types of their own, and which as the general type of their kind.
// Knows no plan and no graph.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "ir/passes.h"

namespace windrow {

/// A type of its own saves the computation of what its vertices lack, but costs a part of the plan and separate
/// batches. If at most `most` types of a kind were seen, all of them are own types. If there are more, the kind is
/// *crowded*: it has a general type, and own types are at most `most` of the most frequent types, each with at least
/// one of 2 * `most` vertices. The own types of a crowded kind are decided when it becomes crowded, and again whenever
/// the number of counted vertices has doubled. The same vertices give the same types.
///
/// Threads: one at a time.
class OwnTypes {
 public:
  OwnTypes(std::shared_ptr<const ir::Function> function, ir::Specialise how, std::size_t most);

  /// Whether the type is known and its vertices need not be counted.
  bool settled(ir::VertexType type) const;
  /// Counts vertices. For a kind that is not crowded, only the set of types matters.
  void count(ir::VertexType type, std::int64_t vertices);
  /// Decides by the counts; returns whether the types changed. If it throws, the types are unchanged.
  bool decide();
  const ir::ProgramTypes& types() const { return types_; }

 private:
  struct OfKind {
    std::unordered_map<ir::VertexType, std::int64_t> vertices;  // counts by type; see forget_rare()
    std::vector<ir::VertexType> own, general;                   // ascending
    std::int64_t counted = 0, decide_at = 0;
    bool crowded = false;
  };
  ir::VertexType known_as(ir::VertexType type) const {
    return how_ == ir::Specialise::yes ? type : ir::with_all_children(*function_, type);
  }
  void decide(OfKind& kind) const;
  static ir::ProgramTypes types_of(const std::vector<OfKind>& kinds);
  std::vector<ir::VertexType> frequent(const OfKind& kind) const;
  void forget_rare(OfKind& kind) const;

  // Constant:
  std::shared_ptr<const ir::Function> function_;
  ir::Specialise how_;
  std::size_t most_;

  std::vector<OfKind> kinds_;
  ir::ProgramTypes types_;  // of all kinds
};

}  // namespace windrow
