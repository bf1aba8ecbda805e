// A tagger: LSTMs over a sentence in both directions, whose states tell the tag of each word; after Neubig et al. 2017.
// Words that are rare may be read by their characters, by LSTMs in both directions too. All of them are kinds of
// vertices in one graph.
//
//   forward  o -> o -> o        of each layer; below the first, words
//   backward o <- o <- o
//   tag      o    o    o        looks at both of its word, in the uppermost layer
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
#include "windrow/models/lstm.h"

namespace windrow {

struct TaggerSizes {
  Index vocabulary, tags, embedding, hidden;
  Index layers = 1;
  Index characters = 0;  ///< 0: rare words are all one, and have a number like others
  Index character_embedding = 64, character_hidden = 128;
};

/// Words as the tagger sees them. A value.
struct TaggerInput {
  std::vector<std::int32_t> words = {};                    ///< -1 for those that are read by their characters
  std::vector<std::vector<std::int32_t>> characters = {};  ///< of each word; empty for others than these
  std::vector<std::int32_t> tags = {};
};

/// A handle to its parameters. Vertices of tags have an output "logits" and a loss.
class Tagger {
 public:
  /// Adds its parameters to the set. Throws MisuseError if their names are taken.
  Tagger(Parameters& parameters, TaggerSizes sizes);

  VertexFunction function() const;
  GraphData graph(const TaggerInput& input) const;

  void operator()(auto& v, std::size_t kind) const {
    if (kind < tag()) return kind < 2 ? first_layer(v, kind) : upper_layer(v, kind);
    if (kind == tag()) return tell(v);
    const Lstm& lstm = characters_[kind - tag() - 1];
    const auto character = embedding(*character_table_, v.pull_index("character"));
    lstm.step(v, lstm.states(v, "character"), lstm.project(character));
  }

  /// Floating point operations of the products that a sentence needs, forward: those of its LSTMs, and 4 h tags a word.
  double flops(const TaggerInput& input) const;

 private:
  // Kinds: forward and backward of each layer, tags, forward and backward of characters.
  std::size_t tag() const { return words_.size(); }

  void first_layer(auto& v, std::size_t kind) const {
    const Lstm& lstm = words_[kind];
    const auto word = lstm.project(embedding(word_table_, v.pull_index("word", Presence::sometimes)));
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
    lstm.step(v, states, lstm.project(concat(v.gather(1, states.first), v.gather(2, states.first))));
  }
  void tell(auto& v) const {
    const auto h = v.state("h", sizes_.hidden);
    const auto logits = matmul(concat(v.gather(0, h), v.gather(1, h)), head_) + head_bias_;
    v.push("logits", logits);
    v.loss(softmax_cross_entropy(logits, v.pull_index("label")));
  }

  TaggerSizes sizes_;
  Parameter word_table_;
  std::vector<Lstm> words_;  // by kind
  Parameter head_, head_bias_;
  std::optional<Parameter> character_table_;
  std::vector<Lstm> characters_;    // forward and backward; none if words are not read by them
  std::vector<Parameter> spelled_;  // what the first layer makes of their last states, by kind
};

}  // namespace windrow
