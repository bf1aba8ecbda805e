// A parser for dependency treebanks: a transition parser with features of a bidirectional LSTM (Kiperwasser and
// Goldberg 2016), with vocabularies for words, tags and relations.
//
//   windrow::Parameters parameters(host, 1);
//   windrow::DependencyParser parser(parameters, windrow::read_conllu("train.conllu"));
//   windrow::LazyGraph graph(host, parameters, {.use = windrow::LazyOptions::For::inference});
//   std::vector<windrow::DependencyTree> trees = parser.parse(graph, windrow::read_conllu("dev.conllu"));
//
// Each sentence is a coroutine that follows its own scores; the computations of the coroutines are batched across
// sentences. Training uses a dynamic oracle (Goldberg and Nivre 2013). An action is right if it loses no arc that could
// still be reached, and gives the right relation. If the best right action does not score higher than the best wrong
// one by a margin of 1, the difference of their scores is minimised. The sentence then continues with the one that
// scores higher, as it must at test time, or sometimes with the wrong one (DependencyParserOptions::explore).
//
// Each tree has one root. As Universal Dependencies require, parse() gives a word the relation "root", or a kind of it
// such as "root:x", if and only if its head is 0. (This does not apply if the treebank has no such relation, or no
// other.) Training does not enforce this rule, which makes better parsers.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "windrow/batching/lazy.h"
#include "windrow/batching/lazy_task.h"
#include "windrow/models/datasets.h"
#include "windrow/models/internal/transition_parser.h"

namespace windrow {

struct DependencyParserOptions {
  Index word = 100, tag = 25, hidden = 200, scorer = 100;  ///< widths; see ParserSizes
  Index layers = 1;
  /// Word dropout: in training, a word that occurs n times in the treebank is replaced by the unknown word with
  /// probability `forget` / (`forget` + n).
  double forget = 0.25;
  /// The probability of following a wrong action that scores lower than the best right one by less than the margin.
  double explore = 0.1;
};

/// The data of its treebank that a parser keeps. A value.
struct DependencyVocabularies {
  Vocabulary words, tags, relations;
  std::vector<std::int64_t> seen;  ///< for learn(): how often each word occurs, by its number

  /// Makes the vocabularies of a treebank, without its empty nodes.
  static DependencyVocabularies of(const std::vector<DependencySentence>& treebank);
};

/// The tree of a sentence, as in DependencySentence.
struct DependencyTree {
  std::vector<std::int32_t> heads = {};
  std::vector<std::string> relations = {};
};

/// A handle to its parameters, with its vocabularies. Coroutines refer to it, so it must outlive them. Const members
/// may be called from any thread.
///
/// Errors: learn() and parse() throw Error if a score is not finite.
class DependencyParser {
 public:
  /// Adds parameters for the words, tags and relations of this treebank; all others are unknown. Throws MisuseError as
  /// Parser does.
  DependencyParser(Parameters& parameters, const std::vector<DependencySentence>& treebank,
                   DependencyParserOptions options = {})
      : DependencyParser(parameters, DependencyVocabularies::of(treebank), options) {}
  DependencyParser(Parameters& parameters, DependencyVocabularies vocabularies, DependencyParserOptions options = {});

  /// A sentence as numbers; unknown relations are -1.
  struct Sentence {
    std::vector<std::int32_t> words = {}, tags = {}, heads = {}, relations = {};
  };
  /// The words of a sentence as numbers, without empty nodes.
  Sentence numbered(const DependencySentence& sentence) const;

  /// The losses of a sentence: a difference of scores for each step at which the margin was not reached. `loss` is
  /// their sum plus 1 for each of them.
  struct Learned {
    std::vector<LazyExpr> losses = {};
    double loss;
  };
  /// Records the losses of a sentence, which must be projective, have at least one word, and outlive the task. The seed
  /// determines random choices.
  LazyTask<Learned> learn(LazyGraph& graph, const Sentence& sentence, std::uint64_t seed) const;
  /// Parses a sentence; its heads and relations are ignored.
  LazyTask<DependencyTree> parse(LazyGraph& graph, Sentence sentence) const;
  /// Parses sentences as one minibatch, and clears the graph.
  std::vector<DependencyTree> parse(LazyGraph& graph, const std::vector<DependencySentence>& sentences) const;

  /// Floating point operations of the forward products for a sentence of `words` words.
  double flops(std::int64_t words) const;
  /// The number of steps of all LSTMs and of the parser for a sentence of `words` words.
  std::int64_t steps(std::int64_t words) const;

 private:
  std::vector<std::int32_t> partly_forgotten(std::vector<std::int32_t> words, std::mt19937_64& random) const;

  const DependencyParserOptions options_;
  const DependencyVocabularies vocabularies_;
  std::vector<std::string> relation_names_;  // by number of the relation in the vocabulary, minus 1
  std::vector<char> roots_;                  // whether each of them is that of a root; empty if they do not matter
  const Parser parser_;
};

}  // namespace windrow
