// Plans and names as text.
#include <string>

#include "windrow/batching/internal/plan.h"
#include "windrow/ops/internal/number.h"

namespace windrow {
namespace {

std::string to_string(const Place& place) {
  static constexpr const char* names[] = {"arena", "tile", "pull", "state", "state_gradient", "tensor", "nowhere"};
  return std::string(names[static_cast<std::size_t>(place.in)]) + std::to_string(place.number) + "[" +
         std::to_string(place.column) + ":" + std::to_string(place.column + place.width) + "]";
}

std::string line_of(const Plan& plan, const Step& step) {
  const ir::Node& node = plan.program.at(step.node);
  std::string text = "      ";
  if (step.does != Step::Does::scatter) text += to_string(step.out) + (step.write == Write::add ? " += " : " = ");
  static constexpr const char* names[] = {"copy", "fill", "scatter", "gather", "incoming"};
  const Operator* const op = step.does == Step::Does::kernel ? node.op : step.op;
  if (step.does == Step::Does::fill) {
    text += shortest_text(step.constant);
  } else {
    text += op != nullptr ? std::string(op->name.text()) : names[static_cast<std::size_t>(step.does)];
  }
  if (step.does >= Step::Does::scatter) text += " " + plan.program.function->states[step.state].name;
  for (const Place& place : step.in) text += " " + to_string(place);
  for (std::size_t pull : step.indices) text += " " + plan.program.function->index_pulls[pull].name;
  return text + "\n";
}

std::string lines_of(const Plan& plan, const std::vector<TensorStep>& steps, const std::string& title) {
  if (steps.empty()) return {};
  std::string text = "  " + title + "\n";
  for (const TensorStep& step : steps) text += line_of(plan, step.step);
  return text;
}

}  // namespace

std::string to_string(const Plan& plan) {
  std::string text = plan.program.function->name + (plan.training ? ", training\n" : ", inference\n");
  text += lines_of(plan, plan.before, "of parameters alone");
  for (std::size_t t = 0; t < plan.types.size(); ++t) {
    const ir::Function& f = *plan.program.function;
    const ir::VertexType type = plan.program.types[t];
    const std::uint32_t by_number = (1u << plan.types[t].by_number) - 1;
    std::string children = std::to_string(std::popcount(ir::children(f, type) & by_number));
    if (plan.types[t].per_edge > 0) children = plan.types[t].by_number > 0 ? children + " and any number of" : "any";
    text += "  " + ir::kind_of(f, type).name + ", type " + std::to_string(type & UINT32_MAX) + ", " + children +
            " children" + (plan.program.general[t] != 0 ? ", or fewer, for all others of its kind\n" : "\n");
    for (std::size_t p = 0; p < phase_count; ++p) {
      for (const Segment& segment : plan.types[t].phases[p]) {
        text += "    " + std::string(phase_names[p]) + (segment.rate == Rate::edges ? ", edges" : "") +
                (segment.fused ? ", fused\n" : "\n");
        for (const Step& step : segment.steps) text += line_of(plan, step);
      }
    }
  }
  return text + lines_of(plan, plan.after, "gradients of parameters");
}

std::string ir::listed(const std::vector<Field>& fields) {
  std::string text;
  for (const Field& field : fields) text += (text.empty() ? ": '" : ", '") + field.name + "'";
  return text;
}

}  // namespace windrow
