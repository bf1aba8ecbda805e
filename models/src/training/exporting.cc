#include "windrow/models/exporting.h"

#include "windrow/training/program.h"

namespace windrow {

void export_model(const Device& device, const SavedCheckpoint& checkpoint, const std::filesystem::path& to) {
  const Workload workload = load_model(device, checkpoint, model_alone(checkpoint));
  ProgramLists lists = workload.vocabularies;
  if (const std::vector<std::string> labels = workload.network->labels(); !labels.empty()) lists["labels"] = labels;
  const VertexFunction function = workload.network->function_for_use();
  save_program(to, {.function = function, .parameters = *workload.parameters, .lists = std::move(lists)});
}

}  // namespace windrow
