// What a step of operators makes, in the form for the memory planner.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "batching/operator_programs.h"
#include "windrow/memory/internal/planner.h"

namespace windrow::perf {

struct ResultShape {
  Index rows, width;
  OpName name;
  std::uint32_t number;  ///< of the buffer in the planned program
};

struct BoundedPlan : MemoryPlan {
  std::size_t lower_bound = 0;  ///< no plan for this order takes less
};

/// What a step applies, and the tensors that it makes. A value.
class StepListing {
 public:
  /// Runs a step to find out.
  StepListing(const NamedProgram& program, const ProgramSizes& sizes);

  const std::vector<ResultShape>& results() const { return results_; }
  /// `held`: when the step's result is alive besides.
  BoundedPlan plan(StepOrder order, Held held) const;

 private:
  void add_result(const Tensor& made, OpName name);
  void hold(const std::shared_ptr<Buffer>& buffer, std::uint32_t number);
  /// A buffer that the step does not make takes no bytes, but orders steps.
  std::uint32_t number_of(const std::shared_ptr<Buffer>& buffer);
  void add_step(const Operator& op, const Operands& operands, const Tensor& out);

  MemoryProgram program_;
  std::uint32_t result_ = 0;  // the step's
  std::vector<ResultShape> results_;
  std::vector<std::shared_ptr<Buffer>> held_;  // so that no two have one address
  std::unordered_map<const Buffer*, std::uint32_t> numbers_;
};

}  // namespace windrow::perf
