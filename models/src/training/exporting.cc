#include "windrow/models/exporting.h"

#include <algorithm>
#include <map>
#include <vector>

#include "windrow/models/trainer.h"
#include "windrow/ops/printing.h"
#include "windrow/training/file_error.h"
#include "windrow/training/tensor_file.h"
#include "windrow/training/whole_file.h"

namespace windrow {
namespace {

void write_text(const std::filesystem::path& path, const std::string& text) {
  WholeFile file(path);
  file.write(text);
  file.commit();
}

void require_empty(const std::filesystem::path& folder) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(folder, error);
  if (!std::filesystem::exists(status)) return;
  if (!std::filesystem::is_directory(status)) throw FileError(folder.string() + ": a file; expected an empty folder");
  const bool empty = std::filesystem::is_empty(folder, error);
  if (error) throw FileError(folder.string() + ": " + error.message());
  if (!empty) throw FileError(folder.string() + ": a folder that is not empty; expected an empty one, or a new name");
}

void write_weights(const std::filesystem::path& path, const Parameters& parameters, const PrintedSource& source) {
  std::vector<std::vector<float>> values;
  TensorFileContents contents;
  for (const std::string& name : source.parameters) {
    const Tensor value = parameters.value(parameters.find(name));
    values.push_back(value.get());
    const TensorShape shape = {static_cast<std::uint64_t>(value.rows()), static_cast<std::uint64_t>(value.width())};
    contents.tensors.push_back({name, shape, std::span<const float>(values.back())});
  }
  write_tensor_file(path, contents);
}

/// A line each.
void write_lines(const std::filesystem::path& path, const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  write_text(path, text);
}

}  // namespace

std::string export_model(const Device& device, const SavedCheckpoint& checkpoint, const std::filesystem::path& to,
                         const ExportOptions& options) {
  require_empty(to);
  const Workload workload = load_model(device, checkpoint, model_alone(checkpoint));
  const std::vector<std::int64_t> types = saved_vertex_types(checkpoint);
  const PrintedSource source = workload.network->source({.types = types, .rows = options.rows, .name = options.name});
  std::error_code error;
  std::filesystem::create_directories(to, error);
  if (error) throw FileError(to.string() + ": " + error.message());
  for (const auto& [name, text] : source.files) write_text(to / name, text);
  write_weights(to / "weights.safetensors", *workload.parameters, source);
  for (const auto& [name, words] : workload.vocabularies) write_lines(to / (print::identifier(name) + ".txt"), words);
  const std::vector<std::string> labels = workload.network->labels();
  if (!labels.empty()) write_lines(to / "labels.txt", labels);
  return compile_command(source.name);
}

}  // namespace windrow
