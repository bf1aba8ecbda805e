// Pieces: how the work of a group is divided into ops, and which ops wait for which others. Pure data.
//
// Children hand states to consumers in later batches of the schedule, so the batches form a chain: upwards in the
// forward phases, downwards in the backward phases. A phase that takes all batches at once (eager, lazy, back_lazy) is
// appended to the chain if it is little work, and back_eager always. Otherwise it is cut into stretches of neighbouring
// batches. With streaming, these run concurrently with the chain. A stretch of an earlier phase must finish before the
// chain reaches its first batch. A stretch of a later phase may begin when the chain has finished its last batch. A
// batch with much work is cut by rows. In order (Execution::Ops), there is one piece for each pass, or several: a pass
// may be divided where a gradient has its operands.
#pragma once

#include <set>
#include <vector>

#include "windrow/batching/internal/execution.h"

namespace windrow {

/// The work of one op.
struct Piece {
  std::vector<PhaseRows> parts = {};    ///< in order
  std::vector<std::size_t> after = {};  ///< numbers of the earlier pieces that it waits for
  bool chain = true;
};

struct PieceOptions {
  Index op_flops = 1;    ///< the least work that is worth a separate op
  Index split_rows = 1;  ///< the fewest rows of each part of a batch that is cut
  bool streaming = true, splitting = true;
  std::set<Index> ends = {};  ///< in the backward pass, a piece ends where this many batches remain
};

/// The pieces of one group. They depend on shapes only, so the same minibatch is always cut in the same way.
class Pieces {
 public:
  /// Plan and layout must outlive this object.
  Pieces(const Plan& plan, const Layout& layout, Index group, const PieceOptions& options);

  /// Adds the pieces of the forward phases.
  void forward();
  /// Adds the pieces of the backward phases, which follow the existing ones.
  void backward();

  const std::vector<Piece>& all() const { return pieces_; }
  /// The numbers of the pieces that no other piece waits for.
  std::vector<std::size_t> last() const;
  /// The numbers of the last pieces of a phase of a type: all others of that phase have run before one of these begins.
  std::vector<std::size_t> ends_of(std::size_t type, Phase phase) const;

 private:
  /// PhaseRows of a phase beside the chain. Batches are numbered in the order in which the chain takes them.
  struct Stretch {
    Index first = 0, last = 0;
    std::vector<PhaseRows> parts = {};
    std::size_t piece = 0;
  };
  struct Link {
    Index first;
    std::vector<std::size_t> pieces;  // several pieces that share the rows of one batch, or one piece for some batches
    std::size_t waited;               // the number of stretches before the chain that were waited for
  };
  enum class Way { up, down };

  Index batch_count() const { return static_cast<Index>(batches_.size()); }
  PhaseRows batch(Phase phase, Index number) const;
  std::vector<Stretch> cut(Phase phase) const;
  std::vector<Stretch> turned(std::vector<Stretch> stretches) const;
  void phase_before(Phase phase);
  void chain(Phase phase, Way way);
  void phase_behind(Phase phase, Way way);
  std::size_t add(std::vector<PhaseRows> parts, std::vector<std::size_t> after, bool chain);
  std::vector<std::size_t> wait_until(Index batch);
  void append_phase(std::vector<Stretch> stretches, Index first, const std::vector<std::size_t>& after);
  void append(const std::vector<PhaseRows>& parts, Index first, const std::vector<std::size_t>& after);
  void append_side_by_side(std::vector<std::vector<PhaseRows>> parts, Index first,
                           const std::vector<std::size_t>& after);
  void close();

  const Plan& plan_;
  const Layout& layout_;
  const Index group_;
  const PieceOptions options_;
  const std::vector<Layout::BatchRows>& batches_;
  const Index most_cuts_;
  std::vector<Piece> pieces_;
  // The current chain:
  std::vector<std::size_t> begin_;        // pieces that all of it waits for
  std::vector<Stretch> before_, behind_;  // stretches of the phases before and after it
  std::size_t waited_ = 0;                // the number of stretches in before_ that it waits for so far
  std::vector<Link> links_;
  std::vector<std::size_t> end_;  // pieces that the next link waits for
  bool open_ = false;             // whether more work is appended to the last link
  Index open_work_ = 0;
};

/// The work of a part, in floating point operations.
Index work_of(const Plan& plan, const Layout& layout, const PhaseRows& part);

}  // namespace windrow
