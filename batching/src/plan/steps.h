// Steps: this part of planning decides which steps compute a value, in which segments they run, and which of them
// overwrite.
#pragma once

#include <map>
#include <vector>

#include "windrow/batching/internal/plan.h"

namespace windrow {

inline Rate rate_of(const ir::Node& node) { return node.of_edges() ? Rate::edges : Rate::vertices; }

/// Finds the values that share the storage of another value, their root.
///
/// A slice is a view of its operand. A value that is used only once, by a sum, is computed in the place of the sum, so
/// concatenations and additions need no copies. Every other value has its own storage and is its own root.
class Roots {
 public:
  explicit Roots(const ir::Program& program);

  struct Position {
    ir::Value root;
    Index column;
  };
  Position of(ir::Value value) const { return parts_[ir::at(value)]; }
  /// Whether the value is computed in the place of the sum that uses it.
  bool joins(ir::Value value) const { return joins_[ir::at(value)] != 0; }

 private:
  std::vector<Position> parts_;
  std::vector<char> joins_;
};

/// The steps of one program. Their places name roots; the planner replaces these when all steps are known.
class Steps {
 public:
  Steps(const ir::Program& program, const Roots& roots, const PlanOptions& options);

  Place provisional(ir::Value value) const;
  /// Throws MisuseError for an operator that mixes rows.
  std::vector<Step> of(ir::Value value) const;
  /// The segments that compute values of one vertex type and phase, given in ascending order.
  std::vector<Segment> segments(std::vector<ir::Value> tasks) const;

 private:
  const ir::Node& node(ir::Value value) const { return program_.at(value); }
  std::vector<Step> unrated(ir::Value value) const;
  Step kernel_step(ir::Value value) const;
  /// A state moves from its producer to its consumers either by scatter or by gather steps: see Optimisations::slots.
  std::vector<Step> scatter_steps(ir::Value value) const;
  std::vector<Step> gather_steps(ir::Value value) const;
  Step step_in_place(ir::Value value) const;
  std::vector<Step> copies_into(ir::Value sum) const;

  const ir::Program& program_;
  const Roots& roots_;
  const PlanOptions options_;
  std::vector<char> gathered_;  // by state: whether some vertex gathers it
};

/// Decides whether steps overwrite or add: the first part of a sum overwrites, later parts add. Columns that no part
/// covers are cleared first. The places of the steps must still name roots. Call announce() for every step in order,
/// then all_announced(), then decide() for every step in the same order.
class Writes {
 public:
  explicit Writes(const ir::Program& program) : program_(program) {}

  void announce(const Step& step);
  void all_announced();
  /// The step with its write mode, preceded by a step that clears columns if necessary.
  std::vector<Step> decide(Step step);

 private:
  struct Cover {
    std::vector<char> columns;  // written so far
    bool clear_first = false;   // some part covers both written and unwritten columns, or no part covers some columns
    bool begun = false;
  };
  /// Null if the step writes no sum.
  Cover* cover_of(const Step& step);

  const ir::Program& program_;
  std::map<std::size_t, Cover> covers_;  // by root
};

}  // namespace windrow
