// Steps: the part of planning that decides which steps compute a value, and in which segments they run.
#pragma once

#include <vector>

#include "plan/placement.h"
#include "windrow/batching/internal/plan.h"

namespace windrow {

inline Rate rate_of(const ir::Node& node) { return node.of_edges() ? Rate::edges : Rate::vertices; }

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

}  // namespace windrow
