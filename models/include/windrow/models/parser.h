// A transition parser with features of a bidirectional LSTM (Kiperwasser and Goldberg 2016), as lazy expressions.
//
//   const windrow::Parser::Sentence sentence = parser.read(graph, words, tags);
//   windrow::ArcHybrid state(words.size());
//   while (!state.final()) state.apply(best(co_await value(parser.scores(sentence, state))));
//
// The LSTM reads the sentence once. After that a step's scores are computed from four words: the three on top of the
// stack, and the next one. The layer that sees them is applied to each word at each of the four places beforehand,
// since it is linear: a step adds up four rows, which is the same function for a fraction of the work.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "windrow/batching/lazy.h"
#include "windrow/models/transitions.h"

namespace windrow {

struct ParserSizes {
  Index words, tags, relations;                            ///< how many there are
  Index word = 100, tag = 25, hidden = 200, scorer = 100;  ///< widths; `hidden` is that of each direction
  int layers = 1;                                          ///< of LSTMs
};

/// A transition, and the relation of the arc that it makes; 0 for shift.
struct ParserAction {
  Transition transition;
  std::int32_t relation;
  friend bool operator==(const ParserAction&, const ParserAction&) = default;
};

/// A handle to its parameters.
class Parser {
 public:
  /// Adds its parameters to the set. Throws MisuseError if their names are taken, as by another Parser, and without a
  /// layer.
  Parser(Parameters& parameters, ParserSizes sizes);

  /// How many actions there are: each transition but shift with each relation.
  Index actions() const { return 1 + 2 * sizes_.relations; }
  static ParserAction action(std::size_t number);
  static std::size_t number(const ParserAction& action);

  /// What the scorer sees of a word at each of its places.
  static constexpr std::size_t places = 4;
  using Seen = std::array<LazyExpr, places>;
  struct Sentence {
    std::vector<Seen> words = {};  ///< the root, then the words
    Seen nothing;                  ///< where there is no word
  };
  /// Of numbers below `words` and `tags`, one each a word.
  Sentence read(LazyGraph& graph, std::span<const std::int32_t> words, std::span<const std::int32_t> tags) const;
  /// Of all actions, by number.
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
  Parameter words_, tags_;  // that of the root behind the others
  Parameter seen_, nothing_, scorer_bias_, out_, out_bias_;
};

}  // namespace windrow
