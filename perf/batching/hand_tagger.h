// The tagger of windrow/models/internal/tagger.h, batched by hand: each tensor holds a minibatch of sentences of one
// length, and the forward and backward pass are written operator by operator on the engine.
#pragma once

#include <string>
#include <vector>

#include "windrow/batching/parameters.h"
#include "windrow/ops/apply.h"

namespace windrow::perf {

/// Sentences of one length, ordered by position: the first word of each sentence, then the second word of each, and so
/// on. A handle.
struct TensorSentences {
  IntTensor words, tags;
  std::vector<std::int32_t> numbers;  ///< of the words
  Index sentences;
};

/// Pushes the ops that set the tensors.
TensorSentences to_tensors(const Device& device, std::vector<std::int32_t> words, std::vector<std::int32_t> tags,
                           Index sentences);

/// An owner. It must be destroyed before the parameters, which are those of a Tagger without characters.
///
/// Order: as for apply(); no call waits. Errors: as for apply(). Threads: one at a time.
class HandTagger {
 public:
  HandTagger(const Device& device, Parameters& parameters, Index hidden, int layers);

  /// Pushes the gradients of the sum of the losses over all words, and sets those of the parameters. Returns that sum,
  /// 1 x 1.
  Tensor differentiate(const TensorSentences& minibatch);

 private:
  /// The direction in which an LSTM reads, and the prefix of its parameters' names.
  struct Way {
    std::string name;
    bool forward;
  };
  /// The values that an LSTM has computed for a minibatch, one row for each word.
  struct Memory {
    Tensor gates, cells, bounded, states;  // `gates`: after sigmoid or tanh; `bounded`: tanh of the cells
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

  /// The rows of a step.
  Span rows(const Way& way, Index step) const;
  Memory read(const Way& way, const Tensor& in) const;
  void read_step(const Way& way, const Memory& memory, Index step) const;
  /// Computes the gradients of the gates from `states`, the gradients of the states, and adds to the latter.
  Tensor read_back(const Way& way, const Memory& memory, const Tensor& states);
  void recurrent_gradient(const Way& way, const Memory& memory, const Tensor& gates);

  const Device device_;
  Parameters& parameters_;
  const Index hidden_;
  const int layers_;
  Index steps_ = 0, sentences_ = 0;  // of the current minibatch
};

}  // namespace windrow::perf
