// What a runner tells of a minibatch without computing it.
#include <bit>

#include "windrow/batching/backend/layout.h"
#include "windrow/batching/backend/plan.h"
#include "windrow/batching/runner.h"

namespace windrow {
namespace {

/// The kind, and what distinguishes the type from others of its kind.
std::string name_of(const ir::Function& function, ir::VertexType type, bool general) {
  const ir::Kind& kind = ir::kind_of(function, type);
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

GroupedMinibatch Runner::grouped(Graphs graphs) {
  require_own(graphs);
  const Plan& plan = *plan_for(graphs, {.training = true}).plan;
  GroupedMinibatch minibatch{.groups = Layout::typed_groups(graphs, plan, layout_options())};
  for (std::size_t t = 0; t < plan.types.size(); ++t) {
    minibatch.types.push_back(name_of(*function_.function_, plan.program.types[t], plan.program.general[t] != 0));
  }
  return minibatch;
}

}  // namespace windrow
