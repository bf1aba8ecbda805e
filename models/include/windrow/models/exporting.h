// Trained models as programs for inference.
#pragma once
#include "windrow/engine/requirements.h"

#include <filesystem>

#include "windrow/models/saved_model.h"

namespace windrow {

/// Writes a trained model as a file for load_program() (windrow/training/program.h), with its vocabularies and its
/// "labels" as lists. Throws FileError for a checkpoint without a model, and if writing fails; MisuseError for a model
/// whose graphs depend on what it computes, and for one without outputs.
void export_model(const Device& device, const SavedCheckpoint& checkpoint, const std::filesystem::path& to);

}  // namespace windrow
