// Prints a plan for inference, as lowered for the host, as C++ source.
//
// What the losses alone need is left out. The rest is printed as the host's back end runs it: the same kernels over the
// same rows, and minibatches divided by the same rule (exported/), so the results have the same bits.
#pragma once

#include "windrow/batching/backend/plan.h"
#include "windrow/batching/runner.h"
#include "windrow/ops/printing.h"
#include "windrow/ops/source.h"

namespace windrow::print {

/// A plan, and the names that printed code has for what belongs to it.
class Subject {
 public:
  /// Plans must outlive this object. Of the function's name if it is empty. Throws MisuseError for a plan that cannot
  /// be printed.
  Subject(const Plan& plan, const Plan& lowered, const std::string& named);

  const ir::Function& function() const { return *plan.program.function; }
  /// Whether an output or a scattered state depends on the node.
  bool needs(ir::Value node) const { return needed_[ir::at(node)] != 0; }
  /// Calls visit(type, phase, segment, step) for the steps that are needed, in order.
  template <class Visit>
  void each_step(Visit visit) const {
    for (std::size_t t = 0; t < lowered.types.size(); ++t) {
      for (std::size_t p = 0; p < forward_phases; ++p) {
        for (const Segment& segment : lowered.types[t].phases[p]) {
          for (const Step& step : segment.steps) {
            if (needs(step.node)) visit(t, p, segment, step);
          }
        }
      }
    }
  }

  static constexpr std::size_t forward_phases = 3;
  const Plan& plan;
  const Plan& lowered;
  std::string name;                                   ///< of the namespace
  std::vector<std::string> types, tensors;            ///< tensors that nothing reads have no name
  std::vector<std::string> indices, values, outputs;  ///< members of graphs and of results; empty for unused inputs
  std::vector<char> tables;                           ///< by tensor: whether only some of its rows are looked up
  std::vector<std::vector<char>> reads_indices, reads_values;  ///< by type and number
  std::set<std::string> operators;

 private:
  void find_needed();
  void require_printable() const;
  void name_tensors();
  void name_inputs();
  std::string name_of_type(std::size_t type) const;

  std::vector<char> needed_;
};

/// The files that depend on the function.
std::string print_steps(const Subject& subject);
std::string print_model_header(const Subject& subject);
std::string print_model_source(const Subject& subject, const RunnerOptions& options);
std::string print_main(const Subject& subject);

/// The files that are the same for all functions, by name.
std::map<std::string, std::string> exported_files();

/// Throws MisuseError, which says what cannot be printed.
PrintedSource print_source(const Plan& plan, const Plan& lowered, const RunnerOptions& options,
                           const std::string& name);

}  // namespace windrow::print
