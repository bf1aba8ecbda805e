// Trained models as programs of C++ that run without Windrow but for its kernels.
#pragma once
#include "windrow/engine/requirements.h"

#include <filesystem>
#include <string>

#include "windrow/models/saved_model.h"

namespace windrow {

struct ExportOptions {
  /// Of mlp and cnn: the images that the recorded schedule computes together.
  std::size_t rows = 64;
  std::string name = {};  ///< of the program and its namespace; empty: the network's
};

/// Writes a trained model into a folder, which is made unless it exists: the printed source (ops/source.h), the weights
/// that it reads in weights.safetensors, and a file for each list of words, such as words.txt, and for the labels,
/// labels.txt, with a line each. Returns the command that compiles it there.
///
/// Throws FileError for a folder that is not empty, for a checkpoint without a model, and if writing fails; MisuseError
/// for a model that cannot be printed, before it writes anything.
std::string export_model(const Device& device, const SavedCheckpoint& checkpoint, const std::filesystem::path& to,
                         const ExportOptions& options = {});

}  // namespace windrow
