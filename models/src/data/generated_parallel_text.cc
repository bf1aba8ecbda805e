// Two artificial languages, whose sentences translate each other.
#include <array>
#include <string_view>

#include "data/draws.h"
#include "windrow/models/internal/parallel_text.h"

namespace windrow {
namespace {

constexpr int nouns = 300, verbs = 100, adjectives = 100;
constexpr int most_clauses = 3, most_adjectives = 2;

/// A function word and its translation.
struct Pair {
  std::string_view source, target;
};
// No content word is the same: in the source they end with consonants, in the target they begin with consonants.
constexpr std::array<Pair, 4> prepositions = {{{"fi", "ex"}, {"ko", "ub"}, {"de", "od"}, {"pu", "ic"}}};
constexpr std::array<Pair, 3> conjunctions = {{{"e", "et"}, {"ma", "im"}, {"so", "uc"}}};

class PairGenerator {
 public:
  PairGenerator(std::uint64_t seed, ParallelText& to) : draws_(seed), to_(to) {}

  void sentence() {
    for (int left = 1 + draws_.below(most_clauses); left > 0; --left) {
      clause();
      const Pair join = left > 1 ? one_of(conjunctions) : Pair{".", "."};
      source(join.source);
      target(join.target);
    }
    to_.source.back() = to_.target.back() = '\n';
  }

 private:
  /// The properties of a noun with which other words agree.
  struct Noun {
    bool feminine, plural;
  };

  void clause() {
    const bool plural = noun_phrase().plural;
    const bool negated = draws_.chance(0.2);
    const int verb = verbs_.rank(draws_.share());
    if (negated) source("no");
    source(spelled(verb) + "r");
    if (draws_.chance(0.75)) noun_phrase();
    if (draws_.chance(0.3)) {
      const Pair preposition = one_of(prepositions);
      source(preposition.source);
      target(preposition.target);
      noun_phrase();
    }
    target(spelled(verbs - 1 - verb) + (plural ? "ten" : "te"));
    if (negated) target("nix");
  }

  Noun noun_phrase() {
    const int noun = nouns_.rank(draws_.share());
    const Noun is{.feminine = noun % 2 == 1, .plural = draws_.chance(0.4)};
    const bool definite = draws_.chance(0.6);
    source(definite ? "la" : "na");
    target(std::string(is.feminine ? "a" : definite ? "i" : "u") + (definite ? "l" : "n") + (is.plural ? "s" : ""));
    target(agreeing(spelled(nouns - 1 - noun) + "l", is));
    // One adjective in two noun phrases, on average.
    for (int left = most_adjectives; left > 0 && draws_.chance(0.35); --left) {
      const int adjective = adjectives_.rank(draws_.share());
      source(spelled(adjective) + "k");
      target(agreeing(spelled(adjectives - 1 - adjective) + "n", is));
    }
    source(spelled(noun) + (is.plural ? "ts" : "t"));
    return is;
  }

  static std::string agreeing(const std::string& stem, const Noun& with) {
    return stem + (with.feminine ? "a" : "o") + (with.plural ? "s" : "");
  }

  template <std::size_t n>
  Pair one_of(const std::array<Pair, n>& pairs) {
    return pairs[static_cast<std::size_t>(draws_.below(static_cast<int>(n)))];
  }
  void source(std::string_view word) { to_.source.append(word) += ' '; }
  void target(std::string_view word) { to_.target.append(word) += ' '; }

  Draws draws_;
  const Zipf nouns_{nouns, 10}, verbs_{verbs, 10}, adjectives_{adjectives, 10};
  ParallelText& to_;
};

}  // namespace

ParallelText generate_parallel_text(std::size_t sentences, std::uint64_t seed) {
  ParallelText text;
  PairGenerator generator(seed, text);
  for (std::size_t i = 0; i < sentences; ++i) generator.sentence();
  return text;
}

}  // namespace windrow
