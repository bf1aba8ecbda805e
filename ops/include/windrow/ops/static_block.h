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
// The program decides at each step what it calls, as with operators. Instead of a push for each operator, a call costs
// the launches of a graph, and copies of its inputs and results.
//
// The backward pass of a call computes the block's values again from its inputs. So the tape keeps only the inputs and
// results of a call (checkpointing: Chen et al. 2016). Gradients of weights are first summed within a call, so their
// rounding differs from that of the same operators on a tape.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <functional>
#include <memory>
#include <source_location>
#include <vector>

#include "windrow/ops/static.h"
#include "windrow/ops/tape.h"

namespace windrow {

/// An owner. Tapes that have noted calls keep the state that their backward passes need.
class StaticBlock {
 public:
  /// Applies operators with the tape, and returns results, which are whole tensors. Called once for each combination of
  /// shapes and key. Called again for each combination of results that have gradients and operands that need them.
  using Body = std::function<std::vector<Tensor>(Tape& tape, const StaticInputs& inputs)>;

  /// `weights`: all tensors from outside that the body reads or returns. A program that trains them writes them in
  /// place. Index tensors must be inputs, and so must random numbers, such as the keys of op::dropout. The block sets
  /// `options.reads`, and keeps up to `options.most_recordings` of the forward pass and four times as many of the
  /// backward pass. Throws MisuseError for an empty body, a tensor that is listed twice, or options out of range.
  StaticBlock(const Device& device, std::vector<Tensor> weights, Body body, const StaticOptions& options = {});

  /// Returns new tensors with the results of the body, and notes the call on the tape. Throws what Static's call and
  /// Tape::note throw, and MisuseError if the body reads, returns or writes another tensor from outside, or draws.
  std::vector<Tensor> operator()(Tape& tape, const StaticInputs& inputs,
                                 std::source_location from = std::source_location::current());

  /// Statistics of the two passes.
  StaticStats forward() const;
  StaticStats backward() const;

 private:
  class Impl;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace windrow
