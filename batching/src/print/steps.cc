// Prints the phases of each vertex type: the calls of kernels.
#include <array>

#include "print/print.h"

namespace windrow::print {
namespace {

/// Prints steps over rows `r` of a type, or over tensors.
class StepPrinter {
 public:
  explicit StepPrinter(const Subject& subject) : s_(subject) {}

  std::string phase(std::size_t type, std::size_t number_of_phase) const {
    std::string text;
    for (const Segment& segment : s_.lowered.types[type].phases[number_of_phase]) {
      std::string steps;
      const std::string indent = "    ";
      for (const Step& step : segment.steps) {
        if (s_.needs(step.node)) steps += step_text(indent, step, static_cast<int>(type), segment);
      }
      if (steps.empty()) continue;
      const std::string rows = segment.rate == Rate::edges ? "m.edges_of(" + number(type) + ", rows)" : "rows";
      if (segment.fused) {
        text += "  each_tile(" + rows + ", " + number(segment.tile_rows) + ", [&](Rows r) {\n" + steps + "  });\n";
      } else {
        text += "  {\n    const Rows r = " + rows + ";\n" + steps + "  }\n";
      }
    }
    return text;
  }

  std::string before() const {
    std::string text;
    for (const TensorStep& one : s_.lowered.before) {
      if (s_.tensors[one.step.out.number].empty()) continue;
      text += step_text("    ", one.step, -1, {});
    }
    return text;
  }

  /// All rows of an output of a type; empty if they are zero.
  std::string output(std::size_t type, const Place& place) const {
    if (place.in == Place::In::nowhere) return {};
    return operand(place, static_cast<int>(type), {.fused = false, .rate = Rate::vertices},
                   "m.all(" + number(type) + ", vertices)");
  }

 private:
  static std::string number(std::size_t value) { return std::to_string(value); }
  static std::string number(Index value) { return std::to_string(value); }

  std::string operand(const Place& place, int vertex_type, const Segment& segment, std::string rows = "r") const {
    const std::string columns = number(place.column) + ", " + number(place.width);
    if (place.in == Place::In::tensor) {
      const std::string tensor = (vertex_type < 0 ? "" : "n.") + s_.tensors[place.number];
      const bool all = place.column == 0 && place.width == s_.plan.tensors[place.number].width;
      return all ? tensor : "columns(" + tensor + ", " + columns + ")";
    }
    const auto t = static_cast<std::size_t>(vertex_type);
    const TypePlan& type = s_.plan.types[t];
    if (place.rate != segment.rate) {
      rows = "m.all(" + number(t) + ", " + (place.rate == Rate::edges ? "edges" : "vertices") + ")";
    }
    switch (place.in) {
      case Place::In::pull:
        return "m.values(" + number(t) + ", " + number(place.number) + ", " + columns + ", " + rows + ")";
      case Place::In::arena:
        return "m.region(" + number(t) + ", " + number(place.number) + ", " + columns + ", " + rows + ")";
      case Place::In::state:
        return "m.region(" + number(t) + ", " + number(type.states[place.number].region) + ", " + columns + ", " +
               rows + ")";
      case Place::In::local:
        return "tile_of(scratch + " + number(s_.lowered.types[t].local_offsets[place.number]) + ", " +
               number(type.locals[place.number]) + ", " + columns + ", " + rows + ")";
      default:
        throw MisuseError(s_.function().name + " cannot be exported: a place that inference has not");
    }
  }

  std::string step_text(const std::string& indent, const Step& step, int type, const Segment& segment) const {
    const std::string add = step.write == Write::add ? "Write::add" : "Write::overwrite";
    if (step.does == Step::Does::scatter) {
      return indent + "m.scatter(" + std::to_string(type) + ", " + number(step.state) + ", " +
             operand(step.in[0], type, segment) + ", r);  // " + s_.function().states[step.state].name + "\n";
    }
    const std::string out = operand(step.out, type, segment);
    if (step.does == Step::Does::fill) {
      return indent + "fill(" + out + ", " + literal(step.constant) + (step.write == Write::add ? ", " + add : "") +
             ");\n";
    }
    if (step.does != Step::Does::kernel) {
      throw MisuseError(s_.function().name + " cannot be exported: a step that inference has not");
    }
    std::string in, indices;
    for (const Place& place : step.in) in += (in.empty() ? "" : ", ") + operand(place, type, segment);
    for (const std::size_t pull : step.indices) {
      indices += (indices.empty() ? "" : ", ") + ("m.indices(" + std::to_string(type) + ", " + number(pull) + ", r)");
    }
    std::string text = indent + (type < 0 ? "op_" : "n.op_") + std::string(step.op->name.text()) + "({" + in + "}, {" +
                       indices + "},",
                rest = out;
    const bool plain = step.attributes == Attributes{};
    if (step.write == Write::add || !plain) rest += ", " + add;
    if (!plain) rest += ", " + literal(step.attributes);
    const bool fits = text.size() + rest.size() < 116;
    return text + (fits ? " " : "\n      " + indent) + rest + ");\n";
  }

  const Subject& s_;
};

constexpr std::array phases = {"eager", "level", "lazy"};

/// The constructor reads weights, binds kernels, and computes values of parameters alone.
std::string network(const Subject& s) {
  std::string text = "/// Weights, and Windrow's kernels.\nstruct Network {\n  explicit Network(Weights& w)";
  std::string made, members;
  for (std::size_t n = 0; n < s.tensors.size(); ++n) {
    if (s.tensors[n].empty()) continue;
    const TensorSpec& spec = s.plan.tensors[n];
    const std::string shape = std::to_string(spec.rows) + ", " + std::to_string(spec.width);
    const bool parameter = spec.is == TensorSpec::Is::parameter;
    made += std::string(made.empty() ? "\n      : " : ",\n        ") + s.tensors[n] +
            (!parameter ? "(w.make(" + shape + "))"
                        : std::string(s.tables[n] != 0 ? "(w.in_file(" : "(w.copy(") + quoted(spec.name) + ", " +
                              shape + "))");
    members += "  Matrix<" + std::string(parameter ? "const " : "") + "float> " + s.tensors[n] + ";  // " +
               std::to_string(spec.rows) + " x " + std::to_string(spec.width) + "\n";
  }
  const std::string before = StepPrinter(s).before();
  text += made + (before.empty() ? " {}\n\n" : " {\n" + before + "  }\n\n");
  for (const std::string& op : s.operators) text += "  Bound op_" + op + "{windrow::op::" + op + "};\n";
  return text + members + "};\n\n";
}

}  // namespace

std::string print_steps(const Subject& s) {
  std::string text = network(s);
  const StepPrinter printer(s);
  for (std::size_t t = 0; t < s.types.size(); ++t) {
    for (std::size_t p = 0; p < Subject::forward_phases; ++p) {
      const std::string body = printer.phase(t, p);
      if (body.empty()) continue;
      const bool uses_network = body.find("n.") != std::string::npos;
      const bool tiles = body.find("scratch") != std::string::npos;
      text += "void " + s.types[t] + "_" + phases[p] + "(const Minibatch& m, Rows rows, float*" +
              (tiles ? " scratch" : "") + ") {\n" + (uses_network ? "  const auto& n = m.network<Network>();\n" : "") +
              body + "}\n\n";
    }
  }
  text += "void collect(const Minibatch& m, Outputs& to) {\n";
  bool uses_network = false;
  std::string lines;
  for (std::size_t o = 0; o < s.outputs.size(); ++o) {
    for (std::size_t t = 0; t < s.types.size(); ++t) {
      const std::string from = printer.output(t, s.plan.types[t].pushes[o]);
      uses_network |= from.find("n.") != std::string::npos;
      lines += "  collect(m, " + std::to_string(t) + ", " + (from.empty() ? "Matrix<const float>{}" : from) + ", " +
               std::to_string(s.function().outputs[o].width) + ", to." + s.outputs[o] + ".data());\n";
    }
  }
  if (uses_network) text += "  const auto& n = m.network<Network>();\n";
  return text + lines + "}\n";
}

}  // namespace windrow::print
