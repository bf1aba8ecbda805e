// A graph as text for Graphviz.
#include <algorithm>
#include <locale>
#include <sstream>

#include "graph/capture.h"

namespace windrow {
namespace {

std::string in_quotes(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (c == '\n') {
      result += "\\n";
    } else {
      result += c;
    }
  }
  return result + '"';
}

std::string label(const CapturedOp& op) {
  const std::source_location& at = op.info->pushed_at;
  return in_quotes(std::string(op.info->name) + "\n" + at.file_name() + ":" + std::to_string(at.line()));
}

/// Prints the variables. Returns the number of each gate's variable: numbers distinguish variables, since several may
/// have the same name.
std::vector<int> print_variables(const GraphPlan& plan, std::ostringstream& out) {
  std::vector<int> var_of_gate;
  const Dep::Var* last = nullptr;
  int var = -1;
  for (const PlanGate& gate : plan.gates()) {
    if (&gate.access.var() != last) {
      last = &gate.access.var();
      const std::string name = name_of(var_of(gate.access));
      out << "  var" << ++var << " [shape=ellipse, label=" << in_quotes(name.empty() ? "a variable" : name) << "];\n";
    }
    var_of_gate.push_back(var);
    for (const std::uint32_t node : gate.opens) out << "  var" << var << " -> op" << node << ";\n";
  }
  return var_of_gate;
}

void print_ops(const GraphPlan& plan, const std::vector<int>& var_of_gate, std::ostringstream& out) {
  for (const PlanNode& node : plan.nodes()) {
    out << "  op" << node.number << " [label=" << label(*node.op) << "];\n";
    for (const PlanNode::Successor next : plan.successors_of(node)) {
      out << "  op" << node.number << " -> op" << next.node << ";\n";
    }
    for (const std::uint32_t gate : std::span(node.gates_to_leave, node.gate_count)) {
      if (!plan.gates()[gate].access.exclusive()) continue;  // the variable is not changed
      out << "  op" << node.number << " -> var" << var_of_gate[gate] << ";\n";
    }
  }
}

}  // namespace

std::string Graph::dot() const {
  static_cast<void>(state().core_there());  // throws if the engine, whose variables are named, is gone
  const std::shared_ptr<const GraphPlan> plan = state().plan_now();
  std::ostringstream out;
  out.imbue(std::locale::classic());  // numbers have no separators in any locale of the program
  out << "digraph " << in_quotes(state().name.text()) << " {\n  node [shape=box];\n";
  print_ops(*plan, print_variables(*plan, out), out);
  out << "}\n";
  return out.str();
}

}  // namespace windrow
