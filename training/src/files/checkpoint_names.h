// The names of files in a folder of checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

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

}  // namespace windrow
