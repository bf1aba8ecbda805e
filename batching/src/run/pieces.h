// Pieces: which parts of a group's work are ops, and which of them wait for which others. Pure data.
//
// What children hand to consumers goes from batch to batch of the schedule: the batches are a chain, up in the forward
// phases and down in the backward ones. A phase that takes all batches at once is a part of the chain where it is
// little work. Else it is cut into blocks of neighbouring batches. Where work streams, these are beside the chain: one
// of what comes before it must be there when the chain comes to its first batch, one of what comes behind it may begin
// when the chain has left its last one. A batch that is work enough is cut by rows.
#pragma once

#include <vector>

#include "layout/layout.h"
#include "plan/plan.h"

namespace windrow {

/// Vertices of a type, to be taken through the steps of a phase.
struct Part {
  Phase phase;
  std::size_t type;
  Index begin, end;
};

/// What one op does.
struct Piece {
  std::vector<Part> parts = {};         ///< in order
  std::vector<std::size_t> after = {};  ///< numbers of those before it that must have run
  bool chain = true;
};

struct PieceOptions {
  Index op_flops = 1;    ///< that are worth an op
  Index split_rows = 1;  ///< of a batch that is cut, each part has so many at least
  bool streaming = true, splitting = true;
};

/// Of one group. By shapes alone, so that the same minibatch is cut in the same way always.
class Pieces {
 public:
  /// Plan and layout must live as long.
  Pieces(const Plan& plan, const Layout& layout, Index group, const PieceOptions& options);

  /// Adds those of the forward phases.
  void forward();
  /// Adds those of the backward phases, behind those that are there.
  void backward();

  const std::vector<Piece>& all() const { return pieces_; }
  /// The numbers of those that no other one waits for.
  std::vector<std::size_t> last() const;

 private:
  /// Batches are counted in the order in which the chain takes them.
  struct Block {
    Index first = 0, last = 0;
    std::vector<Part> parts = {};
    std::size_t piece = 0;
  };
  struct Link {
    Index first;
    std::vector<std::size_t> pieces;  // that take a batch, each some rows; or only one, and some batches
    std::size_t waited;               // for so many of the blocks before the chain
  };
  enum class Way { up, down };

  Index batch_count() const { return static_cast<Index>(batches_.size()); }
  Part batch(Phase phase, Index number) const;
  std::vector<Block> cut(Phase phase) const;
  std::vector<Block> turned(std::vector<Block> blocks) const;
  void phase_before(Phase phase);
  void chain(Phase phase, Way way);
  void phase_behind(Phase phase, Way way);
  std::size_t add(std::vector<Part> parts, std::vector<std::size_t> after, bool chain);
  std::vector<std::size_t> wait_until(Index batch);
  void append_phase(std::vector<Block> blocks, Index first, const std::vector<std::size_t>& after);
  void append(const std::vector<Part>& parts, Index first, const std::vector<std::size_t>& after);
  void append_side_by_side(std::vector<std::vector<Part>> parts, Index first, const std::vector<std::size_t>& after);
  void close();

  const Plan& plan_;
  const Layout& layout_;
  const Index group_;
  const PieceOptions options_;
  const std::vector<Layout::BatchRows>& batches_;
  const Index most_cuts_;
  std::vector<Piece> pieces_;
  // Of the chain under way:
  std::vector<std::size_t> begin_;  // what it waits for, whatever its first batch
  std::vector<Block> before_, behind_;
  std::size_t waited_ = 0;  // for so many of those before it
  std::vector<Link> links_;
  std::vector<std::size_t> end_;  // what comes next waits for these
  bool open_ = false;             // the last link is to have more
  Index open_work_ = 0;
};

/// What the steps of a phase take for these vertices, in floating point operations.
Index work_of(const Plan& plan, const Layout& layout, const Part& part);

}  // namespace windrow
