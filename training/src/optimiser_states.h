// The optimiser's data of each parameter: the states of its method, and how many steps have changed it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "windrow/memory/buffer.h"
#include "windrow/ops/apply.h"
#include "windrow/training/optimiser.h"

namespace windrow {

/// Counts steps. Guarded by its variable, since ops of captured graphs change it, too.
struct StepCounts {
  StepCounts(const EngineRef& engine, const char* name) : tag(engine, host_allocator(), 0, name) {}
  Var var() const { return tag.var(); }
  /// The number of steps that have changed a parameter.
  std::uint64_t of(std::size_t number) const { return number < of_parameters.size() ? of_parameters[number] : 0; }

  /// The counts of parameters for which they differ from `usual`, as checkpoints keep them; and back, by number.
  using ByName = std::map<std::string, std::uint64_t>;
  ByName others(const Parameters& parameters, std::uint64_t usual) const;
  static std::vector<std::uint64_t> all(const Parameters& parameters, std::uint64_t usual, const ByName& others);

  const Buffer tag;
  std::uint64_t steps = 0;  // that have been taken and not skipped
  double rate_scale = 1;
  std::vector<std::uint64_t> of_parameters;  // by number; 0 for those beyond the end
};

/// Throws MisuseError for a parameter of another set.
std::size_t number_of(const Parameters& parameters, const Parameter& parameter);

/// The tensors. Parameters are named by their numbers. An owner; threads as for the optimiser.
class OptimiserStates {
 public:
  OptimiserStates(const Parameters& parameters, const Method& method, std::shared_ptr<const StepCounts> counts)
      : parameters_(parameters), method_(method), counts_(std::move(counts)) {}

  /// The next step changes the parameter by some of its rows. If the method wants the steps of each row, these are
  /// counted from now on, and all later steps are by rows.
  void change_by_rows(std::size_t number);
  /// Makes the missing tensors that the next step of the parameter needs. Called before the step is counted.
  void make(std::size_t number);
  void drop(std::size_t number);

  /// A step of a parameter. Precondition: make() was called.
  struct Step {
    std::size_t number;
    const Gradient& gradient;
    Tensor numbers;
  };
  /// Pushes the ops that take the steps, of different parameters.
  void step(const std::vector<Step>& steps, std::source_location from) const;

  /// By parameter; last the steps of its rows, if they are counted.
  std::vector<std::vector<Tensor>> all() const;
  std::vector<OptimiserTensor> named(const std::vector<std::vector<Tensor>>& all) const;
  /// A tensor that is like number k of a parameter.
  Tensor made_like(std::size_t number, std::size_t k) const;
  /// Finds the parameter of a name that named() gives; if the tensor counts steps, notes that the steps of its rows are
  /// counted. Throws MisuseError for a name that named() cannot have.
  std::size_t restore(const std::string& name);

 private:
  struct Kept {
    std::vector<Tensor> states = {};
    bool by_rows = false;
    std::optional<Tensor> row_steps = {};    // made by the first step by rows
    std::optional<IntTensor> all_rows = {};  // 0, 1, 2 ...
  };

  bool counts_rows() const { return method_.step_rows != nullptr && method_.step_rows->inputs == 3; }
  std::string prefix(std::size_t k) const;
  void step_by_rows(const Step& step, Operands operands, std::source_location from) const;
  Kept& kept(std::size_t number);

  const Parameters& parameters_;
  const Method& method_;
  const std::shared_ptr<const StepCounts> counts_;
  std::vector<Kept> kept_;  // by parameter
};

}  // namespace windrow
