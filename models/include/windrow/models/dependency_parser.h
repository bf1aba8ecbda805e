// A parser of dependency treebanks: a transition parser, with numbers for what it reads and names for what it finds.
//
//   windrow::Parameters parameters(host, 1);
//   windrow::DependencyParser parser(parameters, windrow::read_conllu("train.conllu"));
//   windrow::LazyGraph graph(host, parameters, {.use = windrow::LazyOptions::For::inference});
//   std::vector<windrow::DependencyTree> trees = parser.parse(graph, windrow::read_conllu("dev.conllu"));
//
// Each sentence is a coroutine that goes its own way, by its own scores; what they compute meets in batches. Training
// is by a dynamic oracle (Goldberg and Nivre 2013): where an action that loses no more arcs does not score higher by a
// margin of 1 than all others, the difference is minimised; and the sentence goes on with what scores highest, right or
// wrong, as it will have to when there is nobody to ask.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "windrow/batching/lazy_task.h"
#include "windrow/models/conllu.h"
#include "windrow/models/parser.h"
#include "windrow/models/vocabulary.h"

namespace windrow {

struct DependencyParserOptions {
  Index word = 100, tag = 25, hidden = 200, scorer = 100;  ///< widths; see ParserSizes
  Index layers = 1;
  /// A word that is there n times is taken for an unknown one with probability `forget` / (`forget` + n).
  double forget = 0.25;
  /// How often a wrong action is followed although a right one scores higher, if not by the margin.
  double explore = 0.1;
};

/// A sentence's tree, as DependencySentence has it.
struct DependencyTree {
  std::vector<std::int32_t> heads = {};
  std::vector<std::string> relations = {};
};

/// A handle to its parameters, with the numbers and names. Coroutines refer to it. Const members from any thread.
///
/// Errors: a score that is not finite throws Error.
class DependencyParser {
 public:
  /// Adds parameters for the words, tags and relations of this treebank; all others are unknown.
  DependencyParser(Parameters& parameters, const std::vector<DependencySentence>& treebank,
                   DependencyParserOptions options = {});

  /// By numbers; relations that are unknown are -1.
  struct Sentence {
    std::vector<std::int32_t> words = {}, tags = {}, heads = {}, relations = {};
  };
  Sentence numbered(const DependencySentence& sentence) const;

  /// What the loss of a sentence is made of, and how much it is. No losses where all was right by the margin.
  struct Learned {
    std::vector<LazyExpr> losses = {};
    double loss;
  };
  /// Of a sentence that is projective and has a word; it must outlive the task. What is drawn goes by the seed.
  LazyTask<Learned> learn(LazyGraph& graph, const Sentence& sentence, std::uint64_t seed) const;
  /// Heads and relations are not looked at.
  LazyTask<DependencyTree> parse(LazyGraph& graph, Sentence sentence) const;
  /// One minibatch; clears the graph.
  std::vector<DependencyTree> parse(LazyGraph& graph, const std::vector<DependencySentence>& sentences) const;

  /// Of products, forward, for a sentence of so many words.
  double flops(std::int64_t words) const;
  /// Of LSTMs and of the parser, one behind the other or side by side.
  std::int64_t steps(std::int64_t words) const;

 private:
  std::vector<std::int32_t> partly_forgotten(std::vector<std::int32_t> words, std::mt19937_64& random) const;

  const DependencyParserOptions options_;
  const Vocabulary words_, tags_, relations_;
  std::vector<std::int64_t> seen_;           // how often each word is there
  std::vector<std::string> relation_names_;  // by number, less one
  const Parser parser_;
};

}  // namespace windrow
