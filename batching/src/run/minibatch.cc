// Results of a minibatch: loss, outputs, and gradients of given tensors. Also what a runner can tell about a minibatch
// without computing it.
#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "parameters/gradient.h"
#include "run/runner_notes.h"
#include "windrow/batching/internal/execution.h"
#include "windrow/batching/internal/ir.h"
#include "windrow/batching/runner.h"

namespace windrow {

std::int64_t Minibatch::vertices() const { return execution_->layout().vertices; }

double Minibatch::loss(std::source_location from) const { return pending_loss(from)(); }

Var Minibatch::var() const { return execution_->end()->over.var(); }

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
  throw MisuseError(function.name + ": there is no output '" + name + "'; expected one that the function pushes" +
                    ir::listed(function.outputs));
}

namespace {

/// For each vertex, the place of its graph if it is the graph's root, otherwise -1.
std::vector<std::int32_t> root_rows(const Layout& layout, const std::string& refusal) {
  std::vector<std::int32_t> rows(static_cast<std::size_t>(layout.vertices), -1);
  std::vector<std::int32_t> root_of(layout.first_vertex.size(), -1);
  const auto refuse = [&](std::size_t sample, const std::string& what) {
    throw MisuseError(refusal + "sample " + std::to_string(sample) + " has " + what + "; expected one root");
  };
  for (std::size_t t = 0; t < layout.types.size(); ++t) {
    for (Index r = 0; r < layout.types[t].rows; ++r) {
      if (layout.slot(t, r).row >= 0) continue;  // it has a consumer
      const std::int32_t vertex = layout.types[t].vertex[static_cast<std::size_t>(r)];
      const auto graph = std::prev(std::ranges::upper_bound(layout.first_vertex, vertex));
      const auto sample = static_cast<std::size_t>(graph - layout.first_vertex.begin());
      const std::int32_t root = vertex - *graph, other = std::exchange(root_of[sample], root);
      if (other >= 0) {
        refuse(sample,
               "roots " + std::to_string(std::min(root, other)) + " and " + std::to_string(std::max(root, other)));
      }
      rows[static_cast<std::size_t>(vertex)] = static_cast<std::int32_t>(sample);
    }
  }
  const auto without = std::ranges::find(root_of, -1);
  if (without != root_of.end()) refuse(static_cast<std::size_t>(without - root_of.begin()), "no vertex");
  return rows;
}

}  // namespace

Tensor Minibatch::at_roots(const std::string& name, std::source_location from) const {
  return output(name, root_rows(execution_->layout(), "output '" + name + "': "), from);
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

namespace {

/// The kind, and what distinguishes the type from others of its kind.
std::string name_of(const ir::Function& function, ir::VertexType type, bool general) {
  const ir::VertexKind& kind = ir::kind_of(function, type);
  if (general) return kind.name + ", other combinations";
  std::string name = kind.name;
  const int children = std::popcount(ir::children(function, type));
  if (kind.any_number()) {
    name += children > 0 ? ", with children" : ", no children";
  } else if (kind.arity > 0) {
    name += children == 0   ? ", no children"
            : children == 1 ? ", 1 child (" + std::to_string(std::countr_zero(ir::children(function, type))) + ")"
                            : ", " + std::to_string(children) + " children";
  }
  for (const std::size_t pull : kind.index_pulls) {
    if (function.index_pulls[pull].optional && ir::has_index(function, type, pull)) {
      name += ", with " + function.index_pulls[pull].name;
    }
  }
  return name;
}

}  // namespace

GroupedMinibatch Runner::grouped(const Graphs& all) {
  const InputGraphs::Pointers graphs = all.pointers();
  require_own(graphs);
  const auto& kinds = function_.function_->kinds;
  const bool with_loss = std::ranges::any_of(kinds, [](const ir::VertexKind& kind) { return !kind.losses.empty(); });
  const Plan& plan = *plan_for(graphs, {.training = with_loss}).plan;
  GroupedMinibatch minibatch{.groups = Layout::typed_groups(graphs, plan, layout_options())};
  for (std::size_t t = 0; t < plan.types.size(); ++t) {
    minibatch.types.push_back(name_of(*function_.function_, plan.program.types[t], plan.program.general[t] != 0));
  }
  return minibatch;
}

}  // namespace windrow
