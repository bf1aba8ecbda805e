// Which types of vertices a runner computes as types of their own, and which as the general type of their kind. It
// knows no plan and no graph.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "ir/program.h"

namespace windrow {

/// A type of its own saves what its vertices lack, and costs a plan and batches of its own. A kind of which no more
/// than `most` types were seen has them all. Once there are more, the kind is *crowded*: it has a general type, and the
/// most frequent types are its own, of those that have one vertex of 2 * `most` or more. That is decided when it
/// becomes so, and again whenever twice as many vertices were counted. The same vertices give the same types.
///
/// Threads: one at a time.
class OwnTypes {
 public:
  OwnTypes(std::shared_ptr<const ir::Function> function, ir::Specialise how, std::size_t most);

  /// Whether the type is known, so that its vertices need not be counted.
  bool settled(ir::VertexType type) const;
  /// Notes vertices. Of a kind that is not crowded, they count only by their types.
  void count(ir::VertexType type, std::int64_t vertices);
  /// Decides by what was counted; true if the types are others now. If it throws, the types are as they were.
  bool decide();
  const ir::ProgramTypes& types() const { return types_; }

 private:
  struct OfKind {
    std::unordered_map<ir::VertexType, std::int64_t> vertices;  // of types; see forget_rare()
    std::vector<ir::VertexType> own, general;                   // ascending
    std::int64_t counted = 0, decide_at = 0;
    bool crowded = false;
  };
  ir::VertexType known_as(ir::VertexType type) const {
    return how_ == ir::Specialise::yes ? type : ir::with_all_children(*function_, type);
  }
  void decide(OfKind& kind) const;
  std::vector<ir::VertexType> frequent(const OfKind& kind) const;
  void forget_rare(OfKind& kind) const;

  // Constant:
  const std::shared_ptr<const ir::Function> function_;
  const ir::Specialise how_;
  const std::size_t most_;

  std::vector<OfKind> kinds_;
  ir::ProgramTypes types_;  // of all kinds
};

}  // namespace windrow
