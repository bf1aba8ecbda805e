// A tagger: bidirectional LSTMs over a sentence, whose states predict the tag of each word (after Neubig et al. 2017).
// Rare words may be read by their characters, with a bidirectional LSTM too. All of these are kinds of vertices in one
// graph.
//
//   forward  o -> o -> o        of each layer; the first layer reads words
//   backward o <- o <- o
//   tag      o    o    o        reads both directions of the last layer at its word
//
//   character forward o -> o -> o --.
//                                    > both directions of the first layer, at a rare word
//   character backward o <- o <- o --'
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "windrow/batching/graph.h"
#include "windrow/models/dropout_rates.h"
#include "windrow/models/lstm.h"

namespace windrow {

struct TaggerSizes {
  Index vocabulary, tags, embedding, hidden;
  Index layers = 1;
  Index characters = 0;  ///< 0: words are not read by characters; rare words share one number
  Index character_embedding = 64, character_hidden = 128;
  DropoutRates dropout = {};  ///< of words, and of what each layer and the classifier read from below
};

/// A sentence as numbers. A value.
struct TaggerInput {
  std::vector<std::int32_t> words = {};                    ///< -1 for words that are read by their characters
  std::vector<std::vector<std::int32_t>> characters = {};  ///< for each word; empty if `words` has its number
  std::vector<std::int32_t> tags = {};
};

/// A handle to its parameters. Tag vertices have an output "logits" and a loss.
class Tagger {
 public:
  /// Adds its parameters to the set. Throws MisuseError if their names are taken.
  Tagger(Parameters& parameters, TaggerSizes sizes);

  VertexFunction function() const;
  /// The graph of a sentence, for function().
  GraphData graph(const TaggerInput& input) const;

  void operator()(auto& v, std::size_t kind) const {
    if (kind < tag()) return kind < 2 ? first_layer(v, kind) : upper_layer(v, kind);
    if (kind == tag()) return tell(v);
    const Lstm& lstm = characters_[kind - tag() - 1];
    const auto character = embedding(*character_table_, v.pull_index("character"));
    lstm.step(v, lstm.states(v, "character"), lstm.project(character));
  }

  /// The kind of the vertices that have a tag; they follow each other in the order of the words.
  std::size_t tag_kind() const { return tag(); }

  /// Floating point operations of the forward products of a sentence: those of its LSTMs, and 4 h tags per word (h:
  /// hidden size).
  double flops(const TaggerInput& input) const;

 private:
  // Kinds, in order: forward and backward of each layer, tag, forward and backward of characters.
  std::size_t tag() const { return words_.size(); }

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
    lstm.step(v, states, lstm.project(dropout(below, {.rate = sizes_.dropout.element})));
  }
  void tell(auto& v) const {
    const auto h = v.state("h", sizes_.hidden);
    const auto read = dropout(concat(v.gather(0, h), v.gather(1, h)), {.rate = sizes_.dropout.element});
    const auto logits = matmul(read, head_) + head_bias_;
    v.push("logits", logits);
    v.loss(softmax_cross_entropy(logits, v.pull_index("label")));
  }

  TaggerSizes sizes_;
  Parameter word_table_;
  std::vector<Lstm> words_;  // by kind
  Parameter head_, head_bias_;
  std::optional<Parameter> character_table_;
  std::vector<Lstm> characters_;    // forward and backward; empty if words are not read by characters
  std::vector<Parameter> spelled_;  // by kind: maps the final character states to the first layer's gates
};

}  // namespace windrow
