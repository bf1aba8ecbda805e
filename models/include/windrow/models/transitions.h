// The arc-hybrid transition system (Kuhlmann, Gómez-Rodríguez and Satta 2011), which builds a dependency tree word by
// word, and the costs of its transitions (Goldberg and Nivre 2013). Knows no network.
//
// Words are numbered from 1. Transitions move them from a buffer to a stack and attach them to heads; the root, 0,
// follows the last word in the buffer. s0 is the top of the stack, s1 the word below it, b the first word of the
// buffer:
//
//   shift   s1 s0 | b ...  ->  s1 s0 b | ...   b is not the root
//   left    s1 s0 | b ...  ->  s1 | b ...      b becomes the head of s0; the root only of the last remaining word
//   right   s1 s0 | b ...  ->  s1 | b ...      s1 becomes the head of s0
//
// After twice as many transitions as words, every word has a head. The result is a projective tree with one root, and
// every such tree can be built.
#pragma once
#include "windrow/engine/requirements.h"

#include <cstdint>
#include <span>
#include <vector>

namespace windrow {

enum class Transition : std::uint8_t { shift, left, right };
inline constexpr Transition all_transitions[] = {Transition::shift, Transition::left, Transition::right};

/// The state of parsing one sentence. A value.
class ArcHybrid {
 public:
  /// The initial state for a sentence of `words` words, at least one.
  explicit ArcHybrid(std::int32_t words);

  bool final() const { return stack_.empty() && next_ == 0; }
  bool legal(Transition transition) const;
  /// Precondition: the transition is legal.
  void apply(Transition transition);

  static constexpr std::int32_t none = -1;
  /// The word at position `below` under the top of the stack, or none.
  std::int32_t stack(std::size_t below) const {
    return below < stack_.size() ? stack_[stack_.size() - 1 - below] : none;
  }
  /// The first word of the buffer, or the root.
  std::int32_t next() const { return next_; }
  /// The heads of words 1, 2, ..., as in DependencySentence; `none` for words without a head yet.
  const std::vector<std::int32_t>& heads() const { return heads_; }

  /// The number of arcs of the tree `heads` that are still reachable now but not after the (legal) transition. Exact
  /// for projective trees. At least one legal transition costs 0, and taking only those reaches all arcs that are still
  /// reachable.
  int cost(Transition transition, std::span<const std::int32_t> heads) const;

 private:
  std::vector<std::int32_t> stack_;
  std::int32_t next_ = 1;
  std::vector<std::int32_t> heads_;
};

}  // namespace windrow
