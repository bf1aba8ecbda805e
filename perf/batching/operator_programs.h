// Programs of operators, for measuring what pushing, replaying and placing their tensors cost. They know nothing of
// that: the caller says how operators are applied.
#pragma once

#include <memory>

#include "windrow/ops/static.h"
#include "windrow/ops/static_block.h"
#include "windrow/ops/tape.h"

namespace windrow::perf {

struct ProgramSizes {
  Index batch = 32;  ///< samples of a step
  Index width = 64;  ///< of all layers, and of the inputs
  std::uint64_t seed = 1;
};

/// An owner of parameters and of one batch. Threads: one at a time.
class OperatorProgram {
 public:
  virtual ~OperatorProgram() = default;
  /// The batch that the caller passes to step(), or to a Static.
  const StaticInputs& inputs() const { return inputs_; }
  /// Pushes all ops of a step with `apply`, which is not empty, except draws, and the tape's tensor of ones. All
  /// tensors that it makes with `apply` end with it, except the result. Every step does the same work.
  virtual Tensor step(const StaticInputs& inputs, const Tape::Apply& apply) = 0;
  /// From now on, steps call a recorded block for each cell of a recurrent network. Returns whether there are cells.
  virtual bool use_blocks(const StaticOptions&) { return false; }

 protected:
  StaticInputs inputs_;
};

struct NamedProgram {
  const char* name;
  std::unique_ptr<OperatorProgram> (*make)(const Device& device, const ProgramSizes& sizes);
};

/// A training step of a perceptron of 3 layers, with dropout and momentum.
extern const NamedProgram mlp_step;
/// A training step of an LSTM over sequences of 16 steps, with cross entropy at each step, and momentum.
extern const NamedProgram fixed_lstm_step;
/// A perceptron of 20 layers, forward.
extern const NamedProgram mlp_forward;
/// A binary Tree-LSTM over complete trees of 16 leaves, level by level, forward.
extern const NamedProgram tree_lstm_forward;

/// windrow::apply, into new tensors unless a result is named.
Tape::Apply applied_to_new(const Device& device);

}  // namespace windrow::perf
