// Results of a minibatch: loss, outputs, and gradients of given tensors.
#include <algorithm>

#include "parameters/gradient.h"
#include "run/runner_notes.h"
#include "windrow/batching/internal/execution.h"
#include "windrow/batching/internal/ir.h"
#include "windrow/batching/runner.h"

namespace windrow {

std::int64_t Minibatch::vertices() const { return execution_->layout().vertices; }

double Minibatch::loss(std::source_location from) const { return pending_loss(from)(); }

std::function<double()> Minibatch::pending_loss(std::source_location from) const {
  return [engine = execution_->device().engine, end = execution_->end(), from] {
    try {
      engine->wait({read(end->over.var())}, from);
    } catch (const OpError&) {
      end->failure_told = true;
      throw;
    }
    return end->loss;
  };
}

Tensor Minibatch::output(const std::string& name, std::source_location from) const { return output(name, {}, from); }

Tensor Minibatch::output(const std::string& name, std::vector<std::int32_t> row_of, std::source_location from) const {
  if (!row_of.empty() && static_cast<std::int64_t>(row_of.size()) != vertices()) {
    throw MisuseError("output '" + name + "': rows of " + std::to_string(row_of.size()) + " vertices; expected " +
                      std::to_string(vertices()));
  }
  Index rows = vertices();
  if (!row_of.empty()) {
    const auto [lowest, highest] = std::minmax_element(row_of.begin(), row_of.end());
    if (*lowest < -1) {
      throw MisuseError("output '" + name + "': row " + std::to_string(*lowest) + "; expected -1 or more");
    }
    rows = Index{1} + *highest;
  }
  const ir::Function& function = *execution_->plan().program.function;
  for (std::size_t p = 0; p < function.outputs.size(); ++p) {
    if (function.outputs[p].name != name) continue;
    const Index width = function.outputs[p].width;
    const Tensor out(execution_->device(), rows, width, "output");
    execution_->collect(p, std::move(row_of), out, from);
    return out;
  }
  throw MisuseError(function.name + ": there is no output '" + name + "'; expected one that the function pushes");
}

Tensor Minibatch::gradient(const std::string& name, std::source_location from) const {
  const Plan& plan = execution_->plan();
  const ir::Function& function = *plan.program.function;
  for (std::size_t i = 0; i < function.tensors.size(); ++i) {
    if (function.tensors[i].name != name) continue;
    if (!execution_->notes().differentiated)
      throw MisuseError(function.name + ": '" + name + "' has no gradient before backward()");
    const auto& [rows, parts] = execution_->notes().given[i];
    return dense(execution_->device(), {}, parts, {Rows::count(rows), function.tensors[i].width}, from);
  }
  throw MisuseError(function.name + ": there is no tensor '" + name + "'; expected one that the function pulls");
}

}  // namespace windrow
