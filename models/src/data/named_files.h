// Files of data in a folder, by the names under which they are published. Knows no workload.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace windrow {

/// The path without the ending of a compression, such as .gz.
std::filesystem::path uncompressed_name(const std::filesystem::path& file);

/// The files in the folder of that name, in which * stands for any text, sorted. One that is there with and without the
/// ending of a compression counts once, without it.
std::vector<std::filesystem::path> files_named(const std::filesystem::path& folder, const std::string& name);

/// The file itself or, if it does not exist, its compressed form; none if neither exists.
std::filesystem::path file_or_compressed(const std::filesystem::path& file);

}  // namespace windrow
