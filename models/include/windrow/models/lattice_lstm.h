// The lattice LSTM, which divides sentences into words.
//
// An LSTM over characters. Each word of a lexicon that occurs in the sentence is a cell of its own, from the character
// where it begins to the one where it ends. After Zhang and Yang 2018; here, the cell of the previous character also
// counts where words end.
#pragma once
#include "windrow/engine/requirements.h"

#include <cstdint>
#include <vector>

#include "windrow/batching/graph.h"
#include "windrow/batching/parameters.h"

namespace windrow {

struct LatticeLstmSizes {
  Index characters, words, embedding, hidden, tags;
};

/// A handle to its parameters.
///
/// Graphs have the indices "symbol", the number of a character or a word, and "label" (-1 for a vertex without a loss).
/// Minibatches have an output "logits" for characters; the loss is the sum of the cross entropies.
class LatticeLstm {
 public:
  /// The kinds of vertices.
  static constexpr std::int32_t character = 0, word = 1;

  /// Adds its parameters to the set. Throws MisuseError if their names are taken.
  LatticeLstm(Parameters& parameters, LatticeLstmSizes sizes);

  VertexFunction function() const;

  /// A word of the lexicon at characters `first` to `last` of a sentence.
  struct Found {
    std::int32_t number, first, last;
  };
  /// The graph of a sentence: its characters, then the words.
  static GraphData graph(const std::vector<std::int32_t>& characters, const std::vector<Found>& words,
                         const std::vector<std::int32_t>& labels);
  /// Floating point operations of the forward products of a graph: 6 h e + 2 h tags per character, 6 h^2 per character
  /// but the first, 2 h e per character where words end, 6 h e + 8 h^2 per word (h: hidden size, e: embedding size).
  double flops(const GraphData& graph) const;

 private:
  void compute_character(Vertex& v) const;
  void compute_word(Vertex& v) const;

  LatticeLstmSizes sizes_;
  Parameter characters_, words_, in_, recurrent_, bias_, word_in_, word_recurrent_, word_bias_, gate_in_, gate_,
      gate_bias_, head_, head_bias_;
};

}  // namespace windrow
