// Pushing a minibatch to the engine: its ops and their accesses.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <source_location>
#include <utility>
#include <vector>

#include "host/host_execution.h"
#include "windrow/batching/runner.h"

namespace windrow {

/// Pushes the ops of an execution, and counts them. Its members are called in the order of their declaration.
class Push {
 public:
  Push(std::shared_ptr<HostExecution> execution, const Execution::Pushing& pushing);

  void memory();
  /// Tensors derived from parameters alone. They are rarely needed at once, so other ready ops go first.
  void before();
  enum class Passes { forward, backward, both };
  void group(Index number, Passes passes);
  /// The gradients of parameters that can be computed before all groups have ended. They are not computed if a loss is
  /// not finite, so the losses are looked at before.
  void early();
  /// The loss. An op that reads the buffer's variable after it sees everything that groups wrote.
  void finish();
  /// The same without the loss, for ops pushed since finish().
  void seal();
  /// The other gradients of parameters.
  void after();

 private:
  enum class When { early, late };
  void gradients(When when);
  void losses();
  void note_ends(const Pieces& pieces, const std::vector<Var>& done);
  bool may_be_early(const HostTensorStep& step) const;
  void find_early();
  void add_rows(const HostTensorStep& step, std::vector<Access>& accesses) const;
  bool counts(const HostTensorStep& step) const;
  void count(const HostTensorStep& step);
  Access write_access(std::size_t tensor);
  void tensor(const HostTensorStep& step, int priority);
  Index flops_of(const std::vector<const HostTensorStep*>& parts) const;
  Index blocks_of(const HostTensorStep& part, Index flops) const;
  void in_blocks(const std::vector<const HostTensorStep*>& parts, Index blocks);
  static OpName name_of(const Piece& piece);
  void count(const Part& part, std::set<std::size_t>& tensors);
  void push(OpName name, const std::vector<Access>& accesses, OpFunction function, int priority = 0);
  Index batches_of(Index rows) const;
  std::vector<Access> after_groups();

  std::shared_ptr<HostExecution> execution_;
  const PieceOptions options_;
  RunnerStats& stats_;
  const std::source_location from_;
  std::set<std::size_t> begun_;  // tensors with a pushed step
  std::vector<Var> ends_;        // variables of the last ops of groups, which finish() or seal() waits for
  // For early gradients:
  struct Ends {
    std::vector<Var> ops = {};
    bool last = false;  // whether one of them is among the last ops of a group
  };
  std::map<std::pair<std::size_t, Phase>, Ends> phase_ends_;  // by vertex type and phase
  std::vector<Var> forward_ends_;                             // of groups with both passes
  std::optional<Var> losses_;                                 // written by the op that has looked at the losses
  std::set<std::size_t> late_, early_;                        // gradients, by tensor
};

}  // namespace windrow
