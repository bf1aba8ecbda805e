#include "windrow/training/program.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "files/messages.h"
#include "function_record.h"
#include "windrow/training/tensor_file.h"

namespace windrow {
namespace {

// In the metadata. All other entries are lists, a line for each text.
const std::string function_key = "windrow program";

std::string text_of(const std::string& name, const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    if (line.find('\n') != std::string::npos || name == function_key) {
      throw MisuseError("list '" + name + "' of a program: expected another name, and texts without line breaks");
    }
    text += line + '\n';
  }
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    lines.push_back(text.substr(begin, end - begin));
  }
  return lines;
}

/// Throws FileError.
Record record_in(const TensorFile& file) {
  const std::string name = shown(file.path());
  const auto text = file.metadata().find(function_key);
  if (text == file.metadata().end()) {
    throw FileError(name + ": tensors that are no program; expected a file that windrow export has written");
  }
  Record record = Record::parse(text->second, name + ": program");
  record.require_format(program_format);
  return record;
}

Tensor read_tensor(const Device& device, const TensorFile& file, const std::string& name) {
  const auto& [unused, type, shape, offset, bytes] = file.at(name);
  constexpr std::uint64_t most = INT32_MAX, most_of_nothing = 1 << 16;  // sizes beside a size of 0
  if (shape.size() != 2 || std::max(shape[0], shape[1]) > (bytes > 0 ? most : most_of_nothing)) {
    throw MisuseError("parameter " + in_quotes(name) + " is no matrix of a usual size; expected rows and columns");
  }
  std::vector<float> elements(static_cast<std::size_t>(shape[0] * shape[1]));
  file.read(name, shape, std::span(elements));
  const Tensor tensor(device, static_cast<Index>(shape[0]), static_cast<Index>(shape[1]), "parameter");
  tensor.set(std::move(elements));
  return tensor;
}

LoadedProgram program_in(const Device& device, const TensorFile& file, const Record& record) {
  ir::Function read = function_of(record, device.kernels);  // before the weights, which are large
  auto parameters = std::make_unique<Parameters>(device, 0);
  std::vector<Parameter> used;
  for (const RecordValue& name : record.at("parameters").list()) {
    used.push_back(parameters->add(name.text(), read_tensor(device, file, name.text())));
  }
  if (used.size() != file.tensors().size()) throw MisuseError("tensors that it does not use; expected its parameters");

  LoadedProgram program{.parameters = std::move(parameters),
                        .function = ir::vertex_function_of(std::move(read), used),
                        .kinds = {},
                        .indices = {},
                        .values = {},
                        .edge_indices = {},
                        .edge_values = {},
                        .tensors = {},
                        .outputs = {},
                        .lists = {}};
  const ir::Function& function = ir::function_of(program.function);
  for (const ir::VertexKind& kind : function.kinds) program.kinds.push_back(kind.name);
  for (const ir::IndexField& field : function.index_pulls) {
    if (field.holds != ir::IndexField::Holds::input) continue;
    (field.rows == Rows::edges() ? program.edge_indices : program.indices).push_back({field.name, field.width});
  }
  for (const ir::Field& field : function.pulls) {
    if (field.holds != ir::Field::Holds::input) continue;
    (field.rows == Rows::edges() ? program.edge_values : program.values).push_back({field.name, field.width});
  }
  for (const ir::Field& field : function.tensors) program.tensors.push_back({field.name, field.width});
  for (const ir::Field& field : function.outputs) program.outputs.push_back({field.name, field.width});
  for (const auto& [name, text] : file.metadata()) {
    if (name != function_key) program.lists.emplace(name, lines_of(text));
  }
  return program;
}

}  // namespace

LoadedProgram load_program(const Device& device, const std::filesystem::path& path) {
  const TensorFile file(path);
  const Record record = record_in(file);
  try {
    return program_in(device, file, record);
  } catch (const MisuseError& error) {
    throw FileError(shown(path) + ": " + shortened(error.what(), 400));
  }
}

void save_program(const std::filesystem::path& path, const ProgramContents& contents) {
  const auto& [function, parameters, lists] = contents;
  static_cast<void>(Runner(parameters.device(), function, parameters));  // throws for parameters of other sets
  const ir::Function needed = ir::for_outputs(ir::function_of(function));
  if (needed.outputs.empty()) throw MisuseError(function.name() + ": it pushes no output; expected one to save");
  std::vector<std::string> names;
  std::vector<std::vector<float>> values;
  TensorFileContents file;
  for (const ir::ParameterName& used : needed.parameters) {
    const Tensor& value = parameters.value(parameters[used.number]);
    names.push_back(parameters.name(parameters[used.number]));
    values.push_back(value.get());
    const TensorShape shape = {static_cast<std::uint64_t>(value.rows()), static_cast<std::uint64_t>(value.width())};
    file.tensors.push_back({names.back(), shape, std::span<const float>(values.back())});
  }
  for (const auto& [name, lines] : lists) file.metadata[name] = text_of(name, lines);
  Record record = record_of(needed);
  record.set("parameters", RecordValue::List(names.begin(), names.end()));
  file.metadata[function_key] = record.json(JsonStyle::compact);
  write_tensor_file(path, file);
}

}  // namespace windrow
