// Trains a parser on a dependency treebank, and lets it parse.
//
//   windrow::ParserTrainer trainer(host, windrow::read_conllu("train.conllu"), {.batch = 32});
//   windrow::ParserTrainer::Pass pass = trainer.train();
//   windrow::AttachmentScores scores = trainer.evaluate(windrow::read_conllu("dev.conllu"));
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

struct ParserTrainerOptions {
  Index word = 100, tag = 25, hidden = 200, scorer = 100;  ///< widths; see ParserSizes
  int layers = 1;
  std::size_t batch = 32;  ///< sentences a minibatch
  /// Of gradient descent on the sum of the losses over the steps, divided by the words of the minibatch.
  double rate = 0.3;  ///< 0 or more
  /// A word that was seen n times is taken for an unknown one with probability `forget` / (`forget` + n).
  double forget = 0.25;
  /// How often a wrong action is followed although a right one scores higher, if not by the margin.
  double explore = 0.1;
  std::uint64_t seed = 1;  ///< of initial values, of the order of sentences, and of what is drawn on the way
  SchedulePolicy schedule = SchedulePolicy::agenda;
};

/// Shares of the words with the right head; with the right relation to it too. Punctuation counts.
struct AttachmentScores {
  double unlabelled, labelled;
};

/// A sentence's tree, as DependencySentence has it.
struct DependencyTree {
  std::vector<std::int32_t> heads;
  std::vector<std::string> relations;
};

/// An owner; must end before the engine of its device.
///
/// The same seed and the same calls give the same bits, whatever the policy and the number of workers.
/// Errors: wrong options, and no projective sentence, throw MisuseError; a score that is not finite throws Error, and
/// the trainer is of no more use.
/// Threads: one at a time.
class ParserTrainer {
 public:
  /// Sentences that are not projective are left out.
  ParserTrainer(const Device& device, const std::vector<DependencySentence>& sentences, ParserTrainerOptions options);

  struct Pass {
    std::size_t sentences = 0;
    std::int64_t words = 0;
    double loss = 0;  ///< a word, before the step of its minibatch
    double seconds = 0;
  };
  /// Trains on the next sentences in an order that is drawn for each time through all of them.
  Pass train(std::size_t sentences);
  /// On each sentence once, in a new order.
  Pass train();

  /// Their heads and relations are not looked at. Words and tags that the trainer's own sentences do not have are
  /// unknown.
  std::vector<DependencyTree> parse(const std::vector<DependencySentence>& sentences);
  /// Of all sentences, projective or not.
  AttachmentScores evaluate(const std::vector<DependencySentence>& sentences);

  /// How many of its sentences it trains on.
  std::size_t size() const { return sentences_.size(); }
  const Parameters& parameters() const { return parameters_; }
  /// Of training.
  LazyStats stats() const { return training_.stats(); }

 private:
  struct Sentence {
    std::vector<std::int32_t> words, tags, heads, relations;
  };
  /// What the loss of a sentence is made of, and how much it is.
  struct Learned {
    std::vector<LazyExpr> losses;
    double loss;
  };
  Sentence numbered(const DependencySentence& sentence) const;
  std::vector<std::int32_t> partly_forgotten(std::vector<std::int32_t> words, std::mt19937_64& random) const;
  LazyTask<Learned> learn(const Sentence& sentence, std::uint64_t seed);
  LazyTask<DependencyTree> parse(Sentence sentence);
  void begin_round();

  const Device device_;
  const ParserTrainerOptions options_;
  const Vocabulary words_, tags_, relations_;
  std::vector<std::int64_t> seen_;           // how often each word was
  std::vector<std::string> relation_names_;  // by number, less one
  Parameters parameters_;
  const Parser parser_;
  LazyGraph training_, parsing_;
  std::vector<Sentence> sentences_;
  std::mt19937_64 random_;
  std::vector<const Sentence*> order_;
  std::size_t next_ = 0;  // in order_
};

}  // namespace windrow
