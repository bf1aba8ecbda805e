// The tagger of windrow/models/tagger.h as somebody writes it who batches by hand: minibatches of sentences of one
// length as whole tensors, forward and backward, operator by operator on the engine.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "windrow/batching/parameters.h"
#include "windrow/ops/apply.h"

namespace windrow::perf {

/// Words of sentences of one length, word by word: the first of each sentence, then the second of each. A handle.
struct TensorSentences {
  IntTensor words, tags;
  /// The same words as op::sgd_rows takes them: see row_segments.h.
  IntTensor word_bounds, word_order;
  Index sentences;
};

/// Pushes the ops that set them.
TensorSentences to_tensors(const Device& device, std::vector<std::int32_t> words, std::vector<std::int32_t> tags,
                           Index sentences);

/// An owner; must end before the parameters, which are a Tagger's without characters.
///
/// Order: as for apply(); nothing waits. Errors: as for apply(). Threads: one at a time.
class HandTagger {
 public:
  HandTagger(const Device& device, Parameters& parameters, Index hidden, int layers);

  /// Pushes the gradients of the sum of the losses over all words. Returns that sum, 1 x 1.
  Tensor differentiate(const TensorSentences& minibatch);
  /// Pushes a step of descent by the last gradients.
  void sgd(double rate);
  /// Of the last minibatch; of the table of words, a row for each word of it.
  const Tensor& gradient(const std::string& parameter) const { return gradients_.at(parameter); }

 private:
  /// Which way an LSTM reads, and where its parameters are.
  struct Way {
    std::string name;
    bool forward;
  };
  /// What an LSTM computed of a minibatch: all words, a row each.
  struct Memory {
    Tensor gates, cells, bounded, states;  // gates after their functions; `bounded` is the tanh of the cells
  };
  struct Span {
    Index begin, end;
  };

  Tensor value(const std::string& parameter) const { return parameters_.value(parameters_.find(parameter)); }
  void to(const Tensor& out, const Operator& op, std::vector<Tensor> in, Write write = Write::overwrite) const {
    apply(device_, op, {.in = std::move(in), .attributes = {}, .write = write}, out);
  }
  Tensor make(const Operator& op, std::vector<Tensor> in) const {
    return apply(device_, op, {.in = std::move(in), .attributes = {}});
  }
  void set_gradient(const std::string& parameter, const Operator& op, std::vector<Tensor> in);

  /// The rows of a step, and of the step before it in the order of reading.
  Span rows(const Way& way, Index step) const;
  Memory read(const Way& way, const Tensor& in) const;
  void read_step(const Way& way, const Memory& memory, Index step) const;
  /// Gradients of the gates by those of the states, which it adds to.
  Tensor read_back(const Way& way, const Memory& memory, const Tensor& states);
  void recurrent_gradient(const Way& way, const Memory& memory, const Tensor& gates);

  const Device device_;
  Parameters& parameters_;
  const Index hidden_;
  const int layers_;
  Index steps_ = 0, sentences_ = 0;  // of the minibatch at hand
  std::map<std::string, Tensor> gradients_;
  std::vector<IntTensor> looked_up_;  // the words of the last minibatch, as op::sgd_rows takes them
};

}  // namespace windrow::perf
