// The parts of a DependencyParser: a transition system, and the network that scores its transitions.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "windrow/batching/lazy.h"

namespace windrow {

enum class Transition : std::uint8_t { shift, left, right };
inline constexpr Transition all_transitions[] = {Transition::shift, Transition::left, Transition::right};

/// The arc-hybrid transition system (Kuhlmann, Gómez-Rodríguez and Satta 2011), which builds a dependency tree word by
/// word, and the costs of its transitions (Goldberg and Nivre 2013). Knows no network.
///
/// Words are numbered from 1. Transitions move them from a buffer to a stack and attach them to heads; the root, 0,
/// follows the last word in the buffer. s0 is the top of the stack, s1 the word below it, b the first word of the
/// buffer:
///
///   shift   s1 s0 | b ...  ->  s1 s0 b | ...   b is not the root
///   left    s1 s0 | b ...  ->  s1 | b ...      b becomes the head of s0; the root only of the last remaining word
///   right   s1 s0 | b ...  ->  s1 | b ...      s1 becomes the head of s0
///
/// After twice as many transitions as words, every word has a head. The result is a projective tree with one root, and
/// every such tree can be built.
///
/// This is the state of parsing one sentence. A value.
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

struct ParserSizes {
  Index words, tags, relations;                            ///< numbers of words, tags and relations
  Index word = 100, tag = 25, hidden = 200, scorer = 100;  ///< widths; `hidden` is that of each direction
  int layers = 1;                                          ///< of LSTMs, at least 1
};

/// A transition and the relation of the arc that it makes; 0 for shift.
struct ParserAction {
  Transition transition;
  std::int32_t relation;
  friend bool operator==(const ParserAction&, const ParserAction&) = default;
};

/// The network, as lazy expressions. A handle to its parameters.
///
///   const windrow::Parser::Sentence sentence = parser.read(graph, words, tags);
///   windrow::ArcHybrid state(words.size());
///   while (!state.final()) state.apply(best(co_await value(parser.scores(sentence, state))));
///
/// The LSTM reads the sentence once. The scores of a step depend on four words: the three on top of the stack, and the
/// next one in the buffer. Since the scorer's first layer is linear, it is applied in advance to each word at each of
/// these four places. A step adds four rows, which gives the same function for a fraction of the work.
class Parser {
 public:
  /// Adds its parameters to the set. Throws MisuseError if their names are taken, as by another Parser, or without
  /// layers.
  Parser(Parameters& parameters, ParserSizes sizes);

  /// The number of actions: shift, and each other transition with each relation.
  Index actions() const { return 1 + 2 * sizes_.relations; }
  /// Number 0 is shift, then left and right alternate, by relation.
  static ParserAction action(std::size_t number);

  /// The first layer of the scorer, applied to a word at each of its places.
  static constexpr std::size_t places = 4;
  using Seen = std::array<LazyExpr, places>;
  struct Sentence {
    std::vector<Seen> words = {};  ///< the root, then the words
    Seen nothing;                  ///< for places without a word
  };
  /// Reads a sentence. `words` and `tags` have one element per word, below the sizes of the same name.
  Sentence read(LazyGraph& graph, std::span<const std::int32_t> words, std::span<const std::int32_t> tags) const;
  /// The scores of all actions, by number.
  LazyExpr scores(const Sentence& sentence, const ArcHybrid& state) const;

 private:
  struct Lstm {
    Parameter in, inner, bias, forget_bias;
  };
  struct Layer {
    Lstm forward, backward;
  };
  using Values = std::vector<LazyExpr>;
  Values both_ways(const Layer& layer, const Values& in) const;
  Values one_way(const Lstm& lstm, const Values& gates) const;

  const ParserSizes sizes_;
  std::vector<Layer> layers_;
  Parameter words_, tags_;  // the root's row follows the others
  Parameter seen_, nothing_, scorer_bias_, out_, out_bias_;
};

}  // namespace windrow
