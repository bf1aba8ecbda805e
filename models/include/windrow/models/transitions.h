// The arc-hybrid transition system (Kuhlmann, Gómez-Rodríguez and Satta 2011), which builds a dependency tree word by
// word, and what each of its steps costs (Goldberg and Nivre 2013). It knows no network.
//
// Words are numbered from 1. They go from a buffer to a stack; behind the last one stands the root, 0:
//
//   shift   s1 s0 | b ...  ->  s1 s0 b | ...   b is not the root
//   left    s1 s0 | b ...  ->  s1 | b ...      b is the head of s0; as the root, of the last word that is left alone
//   right   s1 s0 | b ...  ->  s1 | b ...      s1 is the head of s0
//
// Twice as many steps as words, and all words have a head: a projective tree with one root, and any such can be had.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace windrow {

enum class Transition : std::uint8_t { shift, left, right };
inline constexpr Transition all_transitions[] = {Transition::shift, Transition::left, Transition::right};

/// A sentence on its way to a tree. A value.
class ArcHybrid {
 public:
  /// Of one word or more.
  explicit ArcHybrid(std::int32_t words);

  bool final() const { return stack_.empty() && next_ == 0; }
  bool legal(Transition transition) const;
  /// One that is legal.
  void apply(Transition transition);

  static constexpr std::int32_t none = -1;
  /// The word that is so many below the top of the stack, or none.
  std::int32_t stack(std::size_t below) const {
    return below < stack_.size() ? stack_[stack_.size() - 1 - below] : none;
  }
  /// The first word of the buffer, or the root.
  std::int32_t next() const { return next_; }
  /// Of words, from the first on, as DependencySentence has them; none where a word has no head yet.
  const std::vector<std::int32_t>& heads() const { return heads_; }

  /// How many arcs to these heads a legal transition loses, of those that could still be had. Exact for heads of a
  /// projective tree. So one transition at least costs nothing, and who takes these only gets all that could be had.
  int cost(Transition transition, std::span<const std::int32_t> heads) const;

 private:
  std::vector<std::int32_t> stack_;
  std::int32_t next_ = 1;
  std::vector<std::int32_t> heads_;
};

}  // namespace windrow
