// A tagger: bidirectional LSTMs over a sentence, whose states predict the tag of each word (after Neubig et al. 2017).
// Rare words may be read by their characters, with a bidirectional LSTM too. All of these are kinds of vertices in one
// graph.
//
//   forward  o -> o -> o        of each layer; the first layer reads words
//   backward o <- o <- o
//   tag      o    o    o        reads both directions of the last layer at its word
//
// With a conditional random field (Huang, Xu and Yu 2015), the tags of a sentence depend on each other, too:
//
//   tag      o -> o -> o -> end
//
//   character forward o -> o -> o --.
//                                    > both directions of the first layer, at a rare word
//   character backward o <- o <- o --'
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "windrow/batching/graph.h"
#include "windrow/batching/runner.h"
#include "windrow/models/layers.h"

namespace windrow {

struct TaggerSizes {
  Index vocabulary, tags, embedding, hidden;
  Index layers = 1;
  Index characters = 0;  ///< 0: words are not read by characters; rare words share one number
  Index character_embedding = 64, character_hidden = 128;
  DropoutRates dropout = {};  ///< of words, and of the inputs of each layer and of the classifier
  bool crf = false;           ///< whether the loss is that of a conditional random field over the tags of a sentence
  Index no_answers = 0;       ///< this many tags, the first ones, are never predicted
};

/// A sentence as numbers. A value.
struct TaggerInput {
  std::vector<std::int32_t> words = {};                    ///< -1 for words that are read by their characters
  std::vector<std::vector<std::int32_t>> characters = {};  ///< for each word; empty if `words` has its number
  std::vector<std::int32_t> tags = {};
};

/// A handle to its parameters. Tag vertices have an output "logits" and a loss. With a conditional random field, a
/// sentence also has an end vertex, and outputs from which tags() finds the best sequences.
class Tagger {
 public:
  /// Adds its parameters to the set. Throws MisuseError if their names are taken.
  Tagger(Parameters& parameters, TaggerSizes sizes);

  VertexFunction function() const;
  /// The graph of a sentence, for function().
  GraphData graph(const TaggerInput& input) const;

  void operator()(auto& v, std::size_t kind) const {
    if (kind < tag()) return kind < 2 ? first_layer(v, kind) : upper_layer(v, kind);
    if (kind == tag()) return crf_ ? begin_path(v) : tell(v);
    if (kind < first_character()) return kind == tag() + 1 ? continue_path(v) : end_path(v);
    const Lstm& lstm = characters_[kind - first_character()];
    const auto character = embedding(*character_table_, v.pull_index("character"));
    lstm.step(v, lstm.states(v, "character"), lstm.project(character));
  }

  /// The tag of each vertex of a minibatch: of tag vertices, the one with the highest score, or the one in the best
  /// sequence of the sentence; of other vertices, any number. Waits.
  std::vector<std::int32_t> tags(const Minibatch& minibatch) const;
  /// Requests the tags from the minibatch, and returns a function that waits for them; see GraphScore::pending().
  std::function<std::vector<std::int32_t>()> pending_tags(const Minibatch& minibatch) const;

  /// The kind of the first vertex that has a tag; the vertices of all words follow each other.
  std::size_t tag_kind() const { return tag(); }

  /// Floating point operations of the forward products of a sentence: those of its LSTMs, and 4 h tags per word (h:
  /// hidden size).
  double flops(const TaggerInput& input) const;

 private:
  // Kinds, in order: forward and backward of each layer, tag, forward and backward of characters. With a conditional
  // random field, tag is the kind of the first word; the kinds of the others and of the end follow it.
  std::size_t tag() const { return words_.size(); }
  std::size_t first_character() const { return tag() + (crf_ ? 3 : 1); }

  void first_layer(auto& v, std::size_t kind) const {
    const Lstm& lstm = words_[kind];
    const auto word =
        lstm.project(sizes_.dropout.of_word(embedding(word_table_, v.pull_index("word", Presence::sometimes))));
    if (characters_.empty()) {
      lstm.step(v, lstm.states(v, "h"), word);
      return;
    }
    const auto character = v.state("character", sizes_.character_hidden);
    const auto read = matmul(concat(v.gather(1, character), v.gather(2, character)), spelled_[kind]);
    lstm.step(v, lstm.states(v, "h"), word + read);
  }
  void upper_layer(auto& v, std::size_t kind) const {
    const Lstm& lstm = words_[kind];
    const auto states = lstm.states(v, "h");
    const auto below = concat(v.gather(1, states.first), v.gather(2, states.first));
    lstm.step(v, states, lstm.project(dropout(below, sizes_.dropout.element)));
  }
  /// The scores of the tags of a word.
  auto emissions(auto& v) const {
    const auto h = v.state("h", sizes_.hidden);
    const auto read = dropout(concat(v.gather(0, h), v.gather(1, h)), sizes_.dropout.element);
    const auto logits = matmul(read, head_) + head_bias_;
    v.push("logits", logits);
    return logits;
  }
  void tell(auto& v) const { v.loss(softmax_cross_entropy(emissions(v), v.pull_index("label"))); }

  /// The scores of tags that may be predicted.
  auto answerable(auto& v, const auto& logits) const {
    if (sizes_.no_answers == 0) return logits;
    return concat(v.constant(sizes_.no_answers, -1e30f), slice(logits, sizes_.no_answers, sizes_.tags));
  }

  // The states of a path: see Crf. The losses of all vertices of a sentence add up to that of the random field.
  auto path(auto& v) const { return std::pair(v.state("alpha", sizes_.tags), v.state("best", sizes_.tags)); }
  void begin_path(auto& v) const {
    const auto [alpha, best] = path(v);
    const auto logits = emissions(v);
    v.scatter(alpha, crf_->first(logits));
    v.scatter(best, crf_->best_first(answerable(v, logits)));
    v.push("came from", v.constant(sizes_.tags, no_tag));
    v.loss(-crf_->first_score(logits, v.pull_index("label")));
  }
  void continue_path(auto& v) const {
    const auto [alpha, best] = path(v);
    const auto logits = emissions(v), best_before = v.gather(2, best);
    v.scatter(alpha, crf_->next(v.gather(2, alpha), logits));
    v.scatter(best, crf_->best_next(best_before, answerable(v, logits)));
    v.push("came from", crf_->came_from(best_before));
    v.loss(-crf_->next_score(logits, v.pull_index("label before"), v.pull_index("label")));
  }
  void end_path(auto& v) const {
    const auto [alpha, best] = path(v);
    v.push("last", crf_->best_last(v.gather(0, best)) + 1);  // 0 for all other vertices
    v.loss(crf_->log_partition(v.gather(0, alpha)) - crf_->last_score(v.pull_index("last label")));
  }

  static constexpr std::int32_t no_tag = -1;  // before the first word

  TaggerSizes sizes_;
  Parameter word_table_;
  std::vector<Lstm> words_;  // by kind
  Parameter head_, head_bias_;
  std::optional<Crf> crf_;
  std::optional<Parameter> character_table_;
  std::vector<Lstm> characters_;    // forward and backward; empty if words are not read by characters
  std::vector<Parameter> spelled_;  // by kind: maps the final character states to the first layer's gates
};

}  // namespace windrow
