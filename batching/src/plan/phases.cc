#include "plan/phases.h"

namespace windrow {

using ir::at, ir::Code, ir::Node, ir::Value;

/// Copies a row that a vertex hands to its edges where it is used, if that is in one phase. Then the copy can lie in a
/// tile, also if the row itself is computed earlier.
static void copy_late(const ir::Program& program, std::vector<Phase>& phases) {
  constexpr int none = -1, several = -2;
  std::vector<int> used(phases.size(), none);
  for (std::size_t i = phases.size(); i-- > 0;) {
    const Node& node = program.nodes[i];
    const bool handed_on = node.is(op::gather_rows) && node.of_edges() &&
                           program.function->index_pulls[node.indices[0]].holds == ir::IndexField::Holds::consumer;
    if (handed_on && used[i] >= 0) phases[i] = static_cast<Phase>(used[i]);
    for (const Value in : node.in) {
      int& phase = used[at(in)];
      const int here = static_cast<int>(phases[i]);
      phase = phase == none || phase == here ? here : several;
    }
  }
}

std::vector<Phase> phases_of(const ir::Program& program, const PlanOptions& options) {
  const std::size_t n = program.nodes.size();
  std::vector<char> gathered(n, 0), incoming(n, 0), scattered(n, 0), sent(n, 0);
  for (std::size_t i = 0; i < n; ++i) {
    const Node& node = program.nodes[i];
    gathered[i] = node.code == Code::gather || node.reads_in_place();
    incoming[i] = node.code == Code::incoming || node.code == Code::incoming_products ||
                  node.is_output_gradient(*program.function);
    for (Value in : node.in) {
      gathered[i] |= gathered[at(in)];
      incoming[i] |= incoming[at(in)];
    }
  }
  for (std::size_t i = n; i-- > 0;) {
    const Node& node = program.nodes[i];
    scattered[i] |= node.code == Code::scatter;
    sent[i] |= node.code == Code::send || node.code == Code::send_product;
    for (Value in : node.in) {
      scattered[at(in)] |= scattered[i];
      sent[at(in)] |= sent[i];
    }
  }
  std::vector<Phase> phases(n, options.eager ? Phase::eager : Phase::level);
  for (std::size_t i = 0; i < n; ++i) {
    if (incoming[i]) {
      phases[i] = sent[i] || !options.lazy ? Phase::back_level : Phase::back_lazy;
    } else if (gathered[i]) {
      phases[i] = scattered[i] || !options.lazy ? Phase::level : Phase::lazy;
    }
  }
  copy_late(program, phases);
  return phases;
}

}  // namespace windrow
