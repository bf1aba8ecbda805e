#include "plan/placement.h"

#include <algorithm>

namespace windrow {
namespace {

using ir::at, ir::Code, ir::Node, ir::Value, ir::no_value;

/// Whether a step computes it, into a place that the plan can choose.
bool has_own_step(const Node& node) {
  return (node.code == Code::apply && !node.is_view()) || node.code == Code::fill || node.code == Code::incoming ||
         node.code == Code::incoming_products || node.reads_in_place() || node.code == Code::sum;
}

}  // namespace

Roots::Roots(const ir::Program& program) : joins_(program.nodes.size(), 0) {
  std::vector<int> uses(program.nodes.size(), 0);
  const auto use = [&](Value value) {
    if (value != no_value) ++uses[at(value)];
  };
  for (const Node& node : program.nodes) std::for_each(node.in.begin(), node.in.end(), use);
  for (const auto& losses : program.losses) std::for_each(losses.begin(), losses.end(), use);
  for (const auto& pushes : program.pushes) std::for_each(pushes.begin(), pushes.end(), use);
  for (const auto& rows : program.rows) use(rows.rows);

  parts_.resize(program.nodes.size(), {no_value, 0});
  for (std::size_t i = program.nodes.size(); i-- > 0;) {
    const Node& node = program.nodes[i];
    if (parts_[i].root == no_value) parts_[i] = {static_cast<Value>(i), 0};
    if (!node.is_sum()) continue;
    for (std::size_t k = 0; k < node.in.size(); ++k) {
      const Value in = node.in[k];
      if (uses[at(in)] != 1 || !has_own_step(program.at(in))) continue;
      parts_[at(in)] = {parts_[i].root, parts_[i].column + node.at[k]};
      joins_[at(in)] = 1;
    }
  }
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {  // operands of views have their roots by now
    const Node& node = program.nodes[i];
    if (!node.is_view()) continue;
    const Part of = parts_[at(node.in[0])];
    parts_[i] = {of.root, of.column + node.attributes.sizes[0]};
  }
}

}  // namespace windrow
