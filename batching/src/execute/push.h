// Pushing a minibatch to the engine: its ops and their accesses.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <source_location>
#include <utility>
#include <vector>

#include "execute/losses.h"
#include "execute/pieces.h"
#include "windrow/batching/runner.h"

namespace windrow {

/// Pushes the ops of an execution, and counts them. Its members are called in the order of their declaration.
class Push {
 public:
  Push(std::shared_ptr<Execution> execution, const Execution::Pushing& pushing);

  void memory();
  /// Tensors derived from parameters alone. They are rarely needed immediately, so other ready ops go first.
  void before();
  /// In order: later ops wait for the verdict on the losses of forward().
  void resume();
  enum class Passes { forward, backward, both };
  /// The work of all groups, and the gradients of parameters that can be computed before all groups have ended. Side by
  /// side, these gradients are not computed if a loss is not finite, so the losses are checked first.
  void passes(Passes passes);
  /// The loss. An op that reads the buffer's variable after it sees everything that groups wrote.
  void finish(Passes passes);
  /// The same without the loss, for ops pushed since finish().
  void seal();
  /// The other gradients of parameters.
  void after();

 private:
  enum class When { early, late };
  /// The pieces of a group, and for each of them, side by side, the variable that its op writes.
  struct GroupPieces {
    Pieces pieces;
    std::size_t forward = 0;  ///< how many of them are of the forward pass
    std::vector<Var> done = {};
  };
  bool in_order() const { return execution_->in_order(); }
  const Plan& plan() const { return execution_->plan(); }
  const Layout& layout() const { return execution_->layout(); }
  GroupPieces group(Index number, Passes passes);
  void piece(const GroupPieces& group, std::size_t number);
  void count(const PhaseRows& part);
  void losses();

  // Gradients of parameters.
  Index batches_left(const TensorStep& step) const;
  std::set<Index> ends_in_order() const;
  void note_ends(const GroupPieces& group);
  bool may_be_early(const TensorStep& step) const;
  void find_early();
  void gradients(When when, std::optional<std::size_t> due = std::nullopt);
  bool counts(const TensorStep& step) const;
  void count(const TensorStep& step);
  void add_rows(const TensorStep& step, std::vector<Access>& accesses) const;
  Access write_access(std::size_t tensor);
  bool anticipates(When when) const { return when == When::early && execution_->options_.combines_gradients; }
  void tensor(const TensorStep& step, When when, int priority);
  void each_at_once(const std::vector<const TensorStep*>& steps, When when);
  Index flops_of(const std::vector<const TensorStep*>& parts) const;
  Index blocks_of(const TensorStep& part, Index flops) const;
  void in_blocks(const std::vector<const TensorStep*>& parts, Index blocks);

  static OpName name_of(const Piece& piece);
  void push(OpName name, const std::vector<Access>& accesses, OpFunction function, int priority = 0);
  Index batches_of(Index rows) const;
  std::vector<Access> after_groups();

  std::shared_ptr<Execution> execution_;
  PieceOptions options_;
  RunnerStats& stats_;
  const std::source_location from_;
  std::set<std::size_t> begun_;           // tensors with a pushed step
  std::vector<Var> ends_;                 // variables of the last ops of groups, which finish() or seal() waits for
  std::shared_ptr<Losses::Check> check_;  // in order: the check of the losses, once these have been copied
  // For early gradients:
  struct Ends {
    std::vector<Var> ops = {};  // side by side
    bool any = false;           // whether there is such an op
    bool last = false;          // whether one of them is among the last ops of a group
    std::size_t due = 0;        // the number of the last one in its group
  };
  std::map<std::pair<std::size_t, Phase>, Ends> phase_ends_;  // by vertex type and phase
  std::vector<Var> forward_ends_;                             // of groups with both passes
  std::optional<Var> losses_;                                 // written by the op that checks the losses
  std::set<std::size_t> late_;                                // gradients, by tensor
  std::map<std::size_t, std::size_t> early_;  // others, with the piece of the last group after which each is due
};

}  // namespace windrow
