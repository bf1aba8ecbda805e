// Prints the files of an exported model around its steps.
#include <algorithm>
#include <array>
#include <cstdio>

#include "print/print.h"

namespace windrow::print {
namespace {

const char* rate_text(bool edges) { return edges ? "edges" : "vertices"; }

/// Calls visit(identifier, name, type of elements, width, edges) for the inputs that graphs have.
template <class Visit>
void each_input(const Subject& s, Visit visit) {
  const auto each = [&](const auto& fields, const std::vector<std::string>& names, const char* type) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i].empty()) continue;
      visit(names[i], fields[i].name, std::string(type), fields[i].width, fields[i].rows == windrow::Rows::edges());
    }
  };
  each(s.function().index_pulls, s.indices, "std::int32_t");
  each(s.function().pulls, s.values, "float");
}

std::string graph_members(const Subject& s) {
  std::string text;
  each_input(s,
             [&](const std::string& member, const std::string& name, const std::string& type, Index width, bool edges) {
               std::string what = "Input " + quoted(name) + " of each " + (edges ? "element of `children`" : "vertex");
               if (width != 1) what += ", " + std::to_string(width) + " numbers";
               if (type != "float" && !edges) what += "; -1 for none";
               text += "  std::vector<" + type + "> " + member + " = {};  ///< " + what + ".\n";
             });
  return text;
}

std::string kinds_text(const Subject& s) {
  if (s.function().kinds.size() == 1) return {};
  std::string kinds;
  for (const ir::Kind& kind : s.function().kinds) {
    kinds += (kinds.empty() ? "" : ", ") + std::to_string(&kind - s.function().kinds.data()) + " " + kind.name;
  }
  return "  /// What computes each vertex: " + kinds + ".\n  std::vector<std::int32_t> kinds = {};\n";
}

template <class List, class Text>
std::string braces(const List& list, Text text_of) {
  std::string text;
  for (const auto& one : list) text += (text.empty() ? "" : ", ") + text_of(one);
  return "{" + text + "}";
}
template <class List>
std::string numbers(const List& list) {
  return braces(list, [](auto one) { return std::to_string(one); });
}

std::string kind_text(const ir::Function& function, const ir::Kind& kind) {
  std::vector<std::size_t> bits;
  for (const std::size_t pull : kind.index_pulls) {
    if (function.index_pulls[pull].has_type_bit()) bits.push_back(pull);
  }
  return "      {.arity = " + std::to_string(kind.arity) + ", .per_edge = " + std::to_string(kind.per_edge) +
         ", .type_bits = " + numbers(bits) + "},\n";
}

std::string type_text(const Subject& s, std::size_t t, const std::string& steps) {
  constexpr std::array phases = {"eager", "level", "lazy"};
  const TypePlan& type = s.plan.types[t];
  std::string work, run;
  for (std::size_t p = 0; p < Subject::forward_phases; ++p) {
    const auto& costs = s.lowered.types[t].costs[p];
    const std::string function = s.types[t] + "_" + phases[p];
    const bool printed = steps.find("void " + function + "(") != std::string::npos;
    work += std::string(p > 0 ? ", " : "") + "{" + std::to_string(costs[0].work) + ", " +
            std::to_string(costs[1].work) + "}";
    run += (p > 0 ? ", " : "") + (printed ? function : "nullptr");
  }
  const std::string none;
  return "      {.key = 0x" +
         [&] {
           std::array<char, 17> hexadecimal{};
           std::snprintf(hexadecimal.data(), hexadecimal.size(), "%llx",
                         static_cast<unsigned long long>(s.plan.program.types[t]));
           return std::string(hexadecimal.data());
         }() +
         ",  // " + s.types[t] + "\n       .by_number = " + std::to_string(type.by_number) +
         ", .per_edge = " + std::to_string(type.per_edge) + ", .cost = " + std::to_string(type.cost) +
         ",\n       .regions = " +
         braces(type.regions,
                [](const TypePlan::Region& region) {
                  return "{" + std::to_string(region.stride) + ", " + rate_text(region.rate == Rate::edges) + "}";
                }) +
         ",\n       .links = " +
         braces(type.states,
                [](const ChildSlots& link) {
                  return "{" + std::to_string(link.region) + ", " + numbers(link.column) + "}";
                }) +
         ",\n       .work = {{" + work + "}},\n       .run = {" + run +
         "},\n       .reads_indices = " + numbers(s.reads_indices[t]) +
         ", .reads_values = " + numbers(s.reads_values[t]) + "},\n";
}

std::string input_text(const std::string& holds, const std::string& name, Index width, bool edges) {
  return "      {Input::Holds::" + holds + ", " + quoted(name) + ", " + std::to_string(width) + ", " +
         rate_text(edges) + "},\n";
}

std::string inputs_text(const Subject& s) {
  std::string text = "  model.indices = {\n";
  for (const ir::IndexField& field : s.function().index_pulls) {
    using Holds = ir::IndexField::Holds;
    const std::string holds = field.holds == Holds::edges      ? "edges"
                              : field.holds == Holds::consumer ? "consumer"
                              : field.holds == Holds::sibling  ? "sibling"
                                                               : "input";
    text += input_text(holds, field.name, field.width, field.rows == windrow::Rows::edges());
  }
  text += "  };\n  model.values = {\n";
  for (const ir::Field& field : s.function().pulls) {
    const bool shares = field.holds == ir::Field::Holds::share_of_child;
    text += input_text(shares ? "share" : "input", field.name, field.width, field.rows == windrow::Rows::edges());
  }
  return text + "  };\n";
}

std::string arrays_text(const Subject& s) {
  const bool kinds = s.function().kinds.size() > 1;
  std::string text =
      "GraphArrays arrays_of(const Graph& graph) {\n  GraphArrays arrays{graph.child_begin, graph.children, " +
      std::string(kinds ? "graph.kinds" : "{}") + "};\n  arrays.indices.resize(" + std::to_string(s.indices.size()) +
      ");\n  arrays.values.resize(" + std::to_string(s.values.size()) + ");\n";
  const auto add = [&](const char* to, const std::vector<std::string>& names) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i].empty()) continue;
      text += std::string("  arrays.") + to + "[" + std::to_string(i) + "] = graph." + names[i] + ";\n";
    }
  };
  add("indices", s.indices);
  add("values", s.values);
  return text + "  return arrays;\n}\n";
}

}  // namespace

std::string print_model_header(const Subject& s) {
  std::string widths, outputs;
  for (std::size_t o = 0; o < s.outputs.size(); ++o) {
    const ir::Field& output = s.function().outputs[o];
    outputs += "  std::vector<float> " + s.outputs[o] + ";  ///< Output " + quoted(output.name) + ", " +
               std::to_string(output.width) + " numbers for each vertex.\n";
  }
  return "// " + s.function().name + ", exported by windrow export. " +
         "It computes minibatches of graphs on the host.\n//\n//   " + s.name +
         "::Predictor predictor(\"weights.safetensors\");\n//   " + s.name +
         "::Graph graph = ...;\n//   predictor.run({&graph, 1})." + s.outputs.front() + ";\n//\n// Compile:\n//   " +
         compile_command(s.name) +
         "\n#pragma once\n\n#include <cstdint>\n#include <memory>\n#include <span>\n#include <string>\n"
         "#include <vector>\n\nnamespace " +
         s.name +
         " {\n\n/// A sample. Vertices are numbered from 0, in any order.\nstruct Graph {\n"
         "  /// The children of vertex v are children[child_begin[v]] ... children[child_begin[v + 1] - 1]. One "
         "element\n"
         "  /// more than there are vertices.\n"
         "  std::vector<std::int32_t> child_begin = {0};\n"
         "  std::vector<std::int32_t> children = {};  ///< Vertices, or -1 for a missing child.\n" +
         kinds_text(s) + graph_members(s) +
         "};\n\n/// By vertex, in the order of graphs and vertices.\nstruct Outputs {\n" + outputs +
         "};\n\n/// The model with its weights. One call at a time.\nclass Predictor {\n public:\n"
         "  /// Reads the weights. Throws std::runtime_error for a file that does not fit.\n"
         "  explicit Predictor(const std::string& weights, int threads = 1);\n  ~Predictor();\n"
         "  Predictor(const Predictor&) = delete;\n  Predictor& operator=(const Predictor&) = delete;\n\n"
         "  /// Computes a minibatch. The bits do not depend on the number of threads. Throws std::invalid_argument "
         "for a\n"
         "  /// graph that does not fit, and windrow::MisuseError for an index out of range.\n"
         "  Outputs run(std::span<const Graph> graphs);\n\n private:\n  struct Parts;\n"
         "  const std::unique_ptr<Parts> parts_;\n};\n\n}  // namespace " +
         s.name + "\n";
}

std::string print_model_source(const Subject& s, const RunnerOptions& options) {
  const std::string steps = print_steps(s);
  std::string text =
      "// Printed by windrow export; model.h says how to compile and use it.\n#include \"model.h\"\n\n"
      "#include <limits>\n\n#include \"level_loop.h\"\n#include \"phases.h\"\n#include \"weights.h\"\n\n"
      "namespace " +
      s.name + " {\nnamespace {\n\nusing namespace exported;\n\n";
  text += steps + "\n" + arrays_text(s) +
          "\nModel model_of(const Network& network) {\n  Model model;\n"
          "  model.network = &network;\n  model.kinds = {\n";
  for (const ir::Kind& kind : s.function().kinds) text += kind_text(s.function(), kind);
  text += "  };\n  model.types = {\n";
  for (std::size_t t = 0; t < s.types.size(); ++t) text += type_text(s, t, steps);
  text += "  };\n" + inputs_text(s);
  Index scratch = 0;
  for (const TypePlan& type : s.lowered.types) scratch = std::max(scratch, type.tile_elements);
  text += "  model.states = " + std::to_string(s.function().states.size()) +
          ";\n  model.scratch = " + std::to_string(scratch) +
          ";\n  model.division = {.groups = " + std::to_string(options.groups) +
          ", .group_flops = " + std::to_string(options.group_flops) +
          ", .op_flops = " + std::to_string(options.op_flops) +
          ", .split_rows = " + std::to_string(options.split_rows) + "};\n  return model;\n}\n\n}  // namespace\n\n";
  text +=
      "struct Predictor::Parts {\n  Parts(const std::string& path, int count) : weights(path), threads(count) {}\n\n"
      "  Weights weights;\n  Network network{weights};\n  Model model = model_of(network);\n"
      "  Floats memory = {};\n  Threads threads;\n};\n\n"
      "Predictor::Predictor(const std::string& weights, int threads)\n"
      "    : parts_(std::make_unique<Parts>(weights, threads)) {}\n"
      "Predictor::~Predictor() = default;\n\n"
      "Outputs Predictor::run(std::span<const Graph> graphs) {\n  std::vector<GraphArrays> arrays;\n"
      "  for (const Graph& graph : graphs) arrays.push_back(arrays_of(graph));\n"
      "  const Minibatch minibatch(parts_->model, arrays, parts_->memory);\n"
      "  exported::run(minibatch, parts_->threads);\n  Outputs outputs;\n"
      "  const auto vertex_count = static_cast<std::size_t>(minibatch.vertex_count());\n";
  for (std::size_t o = 0; o < s.outputs.size(); ++o) {
    text += "  outputs." + s.outputs[o] + ".resize(vertex_count * " + std::to_string(s.function().outputs[o].width) +
            ");\n";
  }
  return text + "  collect(minibatch, outputs);\n  return outputs;\n}\n\n}  // namespace " + s.name + "\n";
}

std::string print_main(const Subject& s) {
  std::string text = exported_files().at("main.cc"), reads, prints;
  if (s.function().kinds.size() > 1) reads += "  if (name == \"kinds\") return read(numbers, to.kinds);\n";
  each_input(s, [&](const std::string& member, const std::string&, const std::string&, Index, bool) {
    reads += "  if (name == \"" + member + "\") return read(numbers, to." + member + ");\n";
  });
  for (std::size_t o = 0; o < s.outputs.size(); ++o) {
    const std::string name = quoted(quoted(s.function().outputs[o].name));
    prints += std::string("    print(") + (o > 0 ? "\", \"" : "\"\"") + ", " + name + ", outputs." + s.outputs[o] +
              ", " + std::to_string(s.function().outputs[o].width) + ", first, graph);\n";
  }
  // One vertex without children.
  std::string example = "child_begin=0,0 children=";
  if (s.function().kinds.size() > 1) example += " kinds=0";
  each_input(s, [&](const std::string& member, const std::string&, const std::string&, Index width, bool edges) {
    constexpr Index most_shown = 8;
    example += " " + member + "=";
    for (Index i = 0; i < std::min(width, most_shown) && !edges; ++i) example += i > 0 ? ",0" : "0";
    if (width > most_shown && !edges) example += ",... (" + std::to_string(width) + " numbers)";
  });
  print::replace_all(text, "// EXAMPLE", "//   " + example);
  print::replace_all(text, "  // READS\n", reads);
  print::replace_all(text, "    // PRINTS\n", prints);
  print::replace_all(text, "model_name", s.name);
  return text;
}

PrintedSource print_source(const Plan& plan, const Plan& lowered, const RunnerOptions& options,
                           const std::string& name) {
  const Subject subject(plan, lowered, name);
  PrintedSource made = source_files(subject.name);
  made.files.merge(exported_files());
  made.files["model.h"] = print_model_header(subject);
  made.files["model.cc"] = print_model_source(subject, options);
  made.files["main.cc"] = print_main(subject);
  for (std::size_t n = 0; n < plan.tensors.size(); ++n) {
    const bool read = !subject.tensors[n].empty() && plan.tensors[n].is == TensorSpec::Is::parameter;
    if (read) made.parameters.push_back(plan.tensors[n].name);
  }
  return made;
}

}  // namespace windrow::print
