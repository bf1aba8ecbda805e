// The manifest of a checkpoint, in memory, and the names of files in a folder of checkpoints. Knows no folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "windrow/training/internal/file_calls.h"
#include "windrow/training/record.h"
#include "windrow/training/tensor_file.h"

namespace windrow {

constexpr std::string_view manifest_ending = ".json", tensors_ending = ".safetensors";

/// "000000000300" for step 300.
std::string step_name(std::uint64_t step);
/// "000000000300.json".
std::string manifest_name(std::uint64_t step);

/// The step of a manifest's name; nothing for other names.
std::optional<std::uint64_t> step_of_manifest(std::string_view name);
/// The step of STEP.safetensors or STEP-N.safetensors; nothing for other names.
std::optional<std::uint64_t> step_of_tensors(std::string_view name);
/// Whether WholeFile makes files of this name for a manifest or a tensor file.
bool is_unfinished(std::string_view name);

struct Manifest {
  std::uint64_t step = 0;
  std::string tensor_file = {};  ///< its name, without a folder
  TensorFileSums sums = {};
  Record document = {};
};

/// As JSON with a checksum of all values, so that a digit that changes on the disk is noticed. Throws
/// MisuseError as Record::json() does, and for more than 100 MB.
std::string manifest_text(const Manifest& manifest);

/// The largest manifest that is written and read.
constexpr std::size_t most_manifest_bytes = 100'000'000;

/// Reads the manifest in `text`; errors start with `file`. Throws FileError unless it is a valid manifest.
Manifest parse_manifest(std::string_view text, const std::string& file);

/// Reads a manifest from a file.
Manifest read_manifest(const std::filesystem::path& file, const FileCalls& calls);

/// Throws FileError that names the first difference; `file` is the tensor file's name for errors.
void require_same(const TensorFileSums& found, const TensorFileSums& expected, const std::string& file);

}  // namespace windrow
