// A transition parser with features of a bidirectional LSTM (Kiperwasser and Goldberg 2016), as lazy expressions.
//
//   const windrow::Parser::Sentence sentence = parser.read(graph, words, tags);
//   windrow::ArcHybrid state(words.size());
//   while (!state.final()) state.apply(best(co_await value(parser.scores(sentence, state))));
//
// The LSTM reads the sentence once. The scores of a step depend on four words: the three on top of the stack, and the
// next one in the buffer. Since the scorer's first layer is linear, it is applied in advance to each word at each of
// these four places. A step adds four rows, which gives the same function for a fraction of the work.
#pragma once
#include "windrow/engine/requirements.h"

#include <array>
#include <span>
#include <vector>

#include "windrow/batching/lazy.h"
#include "windrow/models/transitions.h"

namespace windrow {

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

/// A handle to its parameters.
class Parser {
 public:
  /// Adds its parameters to the set. Throws MisuseError if their names are taken, as by another Parser, or without
  /// layers.
  Parser(Parameters& parameters, ParserSizes sizes);

  /// The number of actions: shift, and each other transition with each relation.
  Index actions() const { return 1 + 2 * sizes_.relations; }
  /// Actions and their numbers: 0 is shift, then left and right alternate, by relation.
  static ParserAction action(std::size_t number);
  static std::size_t number(const ParserAction& action);

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
