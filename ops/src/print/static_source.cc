// Prints a recorded program of operators.
#include <algorithm>
#include <map>

#include "print/names.h"
#include "record/recorder.h"
#include "windrow/memory/internal/planner.h"
#include "windrow/ops/operators.h"
#include "windrow/ops/static.h"

namespace windrow {

namespace {

using print::identifier, print::literal, print::quoted;

class StaticPrinter {
 public:
  StaticPrinter(const Device& device, const StaticProgram& program) : device_(device), program_(program) {
    if (!device.on_host()) refuse("its device is not the host");
    if (!program.body) refuse("it has no body");
    if (program.outputs.empty()) refuse("it has no outputs");
    for (std::size_t i = 0; i < program.parameters.size(); ++i) {
      for (std::size_t k = 0; k < i; ++k) {
        if (program.parameters[i].second.buffer() != program.parameters[k].second.buffer()) continue;
        refuse("parameters '" + program.parameters[k].first + "' and '" + program.parameters[i].first +
               "' are one tensor; expected one name");
      }
    }
    record();
    plan();
  }

  std::string header() const;
  std::string source() const;
  const std::string& name() const { return name_; }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw MisuseError(program_.name + " cannot be exported: " + what);
  }
  void record();
  void plan();
  std::uint32_t buffer_of(const Tensor& tensor) const;
  std::uint32_t known(const Tensor& tensor);
  std::string matrix(const Tensor& tensor) const;
  std::string step(const RecordedOps::Applied& applied) const;

  const Device& device_;
  const StaticProgram& program_;
  const std::string name_ = identifier(program_.name) + "_model";  // as nothing of the C library
  std::vector<Tensor> inputs_, outputs_;
  RecordedOps recording_;
  // Buffers by number: the input, the parameters, then those that the body made.
  std::map<const Buffer*, std::uint32_t> numbers_;
  std::vector<Tensor> tensors_;  // of each buffer, whole
  MemoryPlan plan_;
  std::vector<std::string> members_, outputs_names_;  // of parameters; of outputs
};

void StaticPrinter::record() {
  Recorder recorder(*device_.engine, Recorder::Keeps::operators);
  {
    const Unrecorded once;
    inputs_.emplace_back(device_, program_.rows, program_.width, OpName("input"));
  }
  outputs_ = program_.body({.in = inputs_});
  recording_ = recorder.finish();
  if (outputs_.size() != program_.outputs.size()) refuse("it has not as many outputs as names");
  if (recording_.applied.size() != recording_.ops.size()) refuse("it does more than to apply operators");
}

std::uint32_t StaticPrinter::buffer_of(const Tensor& tensor) const { return numbers_.at(tensor.buffer().get()); }

/// The number of a tensor's buffer, which is a new one unless it was seen before.
std::uint32_t StaticPrinter::known(const Tensor& tensor) {
  if (!tensor.whole()) refuse("it uses a view of a part of a tensor");
  const auto [found, fresh] = numbers_.emplace(tensor.buffer().get(), static_cast<std::uint32_t>(tensors_.size()));
  if (fresh) tensors_.push_back(tensor);
  return found->second;
}

void StaticPrinter::plan() {
  MemoryProgram memory;
  known(inputs_.front());
  print::Identifiers names, of_outputs;
  for (const char* const taken : {"input", "memory", "weights", "rows", "width"}) names.add(taken);
  for (const auto& [name, tensor] : program_.parameters) {
    known(tensor);
    members_.push_back(names.add(name));
  }
  for (const std::string& output : program_.outputs) outputs_names_.push_back(of_outputs.add(output));
  const std::size_t outside = tensors_.size();
  const auto listed = op::all();
  for (const auto& [number, op, operands, out] : recording_.applied) {
    if (std::ranges::find(listed, op) == listed.end()) {
      refuse("operator '" + std::string(op->name.text()) + "' is not one of Windrow's own");
    }
    if (!operands.indices.empty()) refuse("it has tensors of indices");
    for (const Tensor& operand : operands.in) {
      if (!numbers_.contains(operand.buffer().get())) refuse("it reads a tensor from outside that is no parameter");
      known(operand);
    }
    known(out);
    const auto item = std::ranges::find(recording_.items, out.var(), &RecordedOps::Item::var);
    if (item == recording_.items.end() || !item->made) refuse("it writes a tensor from outside");
  }
  for (const Tensor& tensor : tensors_) {
    const bool made = memory.buffers.size() >= outside;
    memory.add(PlannedBuffer{.bytes = made ? tensor.buffer()->size() : 0, .held = made ? Held::no : Held::throughout});
  }
  for (const Tensor& output : outputs_) {
    if (!numbers_.contains(output.buffer().get())) refuse("it returns a tensor that no operator made");
    memory.buffers[known(output)].held = buffer_of(output) < outside ? Held::throughout : Held::after;
  }
  for (const auto& [number, op, operands, out] : recording_.applied) {
    PlannedStep step{.writes = {buffer_of(out)}};
    for (const Tensor& operand : operands.in) {
      step.reads.push_back(buffer_of(operand));
      const bool in_place = op->locality == Locality::elementwise && buffer_of(operand) >= outside &&
                            operands.write == Write::overwrite && buffer_of(operand) != buffer_of(out);
      if (in_place) step.in_place.push_back({buffer_of(operand), buffer_of(out)});
    }
    if (operands.write == Write::add) step.reads.push_back(buffer_of(out));
    memory.add(std::move(step));
  }
  plan_ = plan_memory(memory);
}

std::string StaticPrinter::matrix(const Tensor& tensor) const {
  const std::uint32_t buffer = buffer_of(tensor);
  if (buffer == 0) return "n.input";
  if (buffer <= program_.parameters.size()) return "n." + members_[buffer - 1];
  return "Matrix{n.memory.data() + " + std::to_string(plan_.offsets[buffer] / sizeof(float)) + ", " +
         std::to_string(tensor.rows()) + ", " + std::to_string(tensor.width()) + ", " +
         std::to_string(row_stride(tensor.width())) + "}";
}

std::string StaticPrinter::step(const RecordedOps::Applied& applied) const {
  std::string in;
  for (const Tensor& operand : applied.operands.in) in += (in.empty() ? "" : ", ") + matrix(operand);
  std::string text = "  apply(op::" + std::string(applied.op->name.text()) + ", {" + in + "}, " + matrix(applied.out);
  const bool plain = applied.operands.attributes == Attributes{};
  if (applied.operands.write == Write::add || !plain) {
    text += applied.operands.write == Write::add ? ", Write::add" : ", Write::overwrite";
  }
  if (!plain) text += ", " + literal(applied.operands.attributes);
  return text + ");\n";
}

std::string StaticPrinter::header() const {
  const auto member = [](const std::string& type, const std::string& name, const std::string& of, const Tensor& shape) {
    return "  " + type + " " + name + ";  ///< " + of + ": " + std::to_string(shape.rows()) + " x " +
           std::to_string(shape.width()) + ".\n";
  };
  std::string weights, outputs;
  for (std::size_t k = 0; k < members_.size(); ++k) {
    const auto& [name, tensor] = program_.parameters[k];
    weights += member("std::span<const float>", members_[k], "Parameter " + quoted(name), tensor);
  }
  for (std::size_t o = 0; o < outputs_.size(); ++o) {
    outputs += member("std::vector<float>", outputs_names_[o], "Output " + quoted(program_.outputs[o]), outputs_[o]);
  }
  return "// " + program_.name + ", printed by windrow::print_source(): a schedule that was recorded for " +
         std::to_string(program_.rows) + " rows. Matrices lie row by row.\n//\n//   " + name_ +
         "::Predictor predictor(weights);\n//   std::vector<float> rows(" + name_ + "::rows * " + name_ +
         "::width);\n//   predictor.run(rows)." + outputs_names_.front() +
         ";\n//\n// Compile:\n//   c++ -std=c++20 -O2 -c model.cc $(pkg-config --cflags windrow-ops)\n"
         "#pragma once\n\n#include <cstddef>\n#include <memory>\n#include <span>\n#include <vector>\n\nnamespace " +
         name_ + " {\n\n/// Of the input.\ninline constexpr std::size_t rows = " + std::to_string(program_.rows) +
         ", width = " + std::to_string(program_.width) + ";\n\nstruct Weights {\n" + weights +
         "};\n\nstruct Outputs {\n" + outputs +
         "};\n\n/// The model with its weights. One call at a time, on the calling thread.\nclass Predictor {\n "
         "public:\n  /// Copies the weights. Throws std::invalid_argument for one of another size.\n"
         "  explicit Predictor(const Weights& weights);\n  ~Predictor();\n"
         "  Predictor(const Predictor&) = delete;\n  Predictor& operator=(const Predictor&) = delete;\n\n"
         "  /// Throws std::invalid_argument unless the input has rows * width elements.\n"
         "  Outputs run(std::span<const float> input);\n\n private:\n  struct Parts;\n"
         "  const std::unique_ptr<Parts> parts_;\n};\n\n}  // namespace " +
         name_ + "\n";
}

/// Values that are never needed together share memory.
std::string StaticPrinter::source() const {
  std::string initial, members, steps, outputs;
  for (std::size_t k = 0; k < members_.size(); ++k) {
    const Tensor& tensor = program_.parameters[k].second;
    initial += (k == 0 ? " : " : ", ") + members_[k] + "(" + std::to_string(tensor.rows()) + ", " +
               std::to_string(tensor.width()) + ", " + "weights." + members_[k] + ")";
    members += ", " + members_[k];
  }
  for (const RecordedOps::Applied& applied : recording_.applied) steps += step(applied);
  for (std::size_t o = 0; o < outputs_.size(); ++o) {
    outputs += (o == 0 ? "" : ", ") + std::string("elements_of(") + matrix(outputs_[o]) + ")";
  }
  return "// Printed by windrow::print_source(); model.h says how to compile and use it.\n#include \"model.h\"\n\n"
         "#include <limits>\n\n#include \"windrow/ops/internal/printed.h\"\n#include "
         "\"windrow/ops/operators.h\"\n\nnamespace " +
         name_ +
         " {\n\nusing namespace windrow::printed;\nusing windrow::Write;\nnamespace op = windrow::op;\n"
         "using Matrix = windrow::Matrix<float>;\n\nstruct Predictor::Parts {\n"
         "  explicit Parts([[maybe_unused]] const Weights& weights)" +
         initial + " {}\n  OwnMatrix input{rows, width}, memory{1, " + std::to_string(plan_.bytes / sizeof(float)) +
         "}" + members +
         ";\n};\n\nPredictor::Predictor(const Weights& weights) : parts_(std::make_unique<Parts>(weights)) {}\n"
         "Predictor::~Predictor() = default;\n\nOutputs Predictor::run(std::span<const float> elements) {\n"
         "  Parts& n = *parts_;\n  n.input.set(elements);\n" +
         steps + "  return {" + outputs + "};\n}\n\n}  // namespace " + name_ + "\n";
}

}  // namespace

PrintedSource print_source(const Device& device, const StaticProgram& program) {
  const StaticPrinter printer(device, program);
  PrintedSource made{.name = printer.name(), .files = {{"model.h", printer.header()}, {"model.cc", printer.source()}}};
  for (const auto& [name, tensor] : program.parameters) made.parameters.push_back(name);
  return made;
}

}  // namespace windrow
