// Blocks of dynamic programs, whose forward and backward pass are recorded once and replayed.
//
//   windrow::StaticBlock cell(host, {w, u, b}, [&](windrow::Tape& tape, const windrow::StaticInputs& of) {
//     ...                                                  // tape.apply(...)
//     return std::vector{h, c};
//   });
//   windrow::Tape tape(host);
//   for (const windrow::Tensor& weights : {w, u, b}) tape.watch(weights);
//   std::vector state = {zeros, zeros};
//   for (const windrow::Tensor& word : sentence) state = cell(tape, {.in = {word, state[0], state[1]}});
//   ...
//   tape.backward(loss);
//
// The program decides at each step what it calls, as with operators; a call costs the launches of a graph and copies of
// its inputs and results, instead of a push for each operator.
//
// The backward pass of a call computes the block's values again from its inputs, so the tape keeps the inputs and the
// results of a call, and nothing in between (checkpointing: Chen et al. 2016). Gradients of weights are summed within a
// call first, so they round otherwise than those of the same operators on a tape.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <functional>
#include <memory>
#include <source_location>
#include <vector>

#include "windrow/ops/static.h"
#include "windrow/ops/tape.h"

namespace windrow {

/// An owner, but tapes that have noted calls keep what their backward passes need.
class StaticBlock {
 public:
  /// Applies operators with the tape, and returns results, which are whole tensors. Called once for each combination of
  /// shapes and key, and once more for each combination of results that the loss depends on and operands whose
  /// gradients are wanted.
  using Body = std::function<std::vector<Tensor>(Tape& tape, const StaticInputs& inputs)>;

  /// `weights`: all tensors from outside that the body reads or returns. A program that learns them writes them in
  /// place. Index tensors are inputs, and so are random numbers, such as the keys of op::dropout. The block sets
  /// `options.reads`, and keeps up to `options.most_recordings` of the forward pass and four times as many of the
  /// backward pass. Throws MisuseError for an empty body, a tensor that is listed twice, or options out of range.
  StaticBlock(const Device& device, std::vector<Tensor> weights, Body body, const StaticOptions& options = {});

  /// Returns new tensors with the results of the body, and notes the call on the tape. Throws what Static's call
  /// throws; MisuseError where the body reads, returns or writes another tensor from outside, or draws, and what
  /// Tape::note throws.
  std::vector<Tensor> operator()(Tape& tape, const StaticInputs& inputs,
                                 std::source_location from = std::source_location::current());

  /// Of both passes.
  StaticStats forward() const;
  StaticStats backward() const;

 private:
  class Impl;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace windrow
