// Finds files of data by the names under which they are published, and opens them. Knows no workload, and no format
// except compression.
#pragma once

#include <filesystem>
#include <istream>
#include <memory>
#include <string>
#include <vector>

namespace windrow {

/// The path without the ending of a compression, such as .gz.
std::filesystem::path uncompressed_name(const std::filesystem::path& file);

/// The files in the folder of that name, in which * stands for any text, sorted. A file that exists with and without
/// the ending of a compression counts once, without the ending.
std::vector<std::filesystem::path> files_named(const std::filesystem::path& folder, const std::string& name);

/// The file itself or, if it does not exist, its compressed form; none if neither exists.
std::filesystem::path file_or_compressed(const std::filesystem::path& file);

enum class Pipes { refused, accepted };

/// Opens a file. If its name ends in .gz, its content is decompressed while it is read. A missing file is read from its
/// compressed form, if there is one. tellg() counts bytes of the file on disk. Throws DataError if it cannot be opened,
/// or is neither a regular file nor an accepted pipe; `what` names the expected content. Reading throws DataError if a
/// compressed file is damaged or cut off.
std::unique_ptr<std::istream> open_data(const std::filesystem::path& file, const std::string& what,
                                        Pipes pipes = Pipes::refused);

}  // namespace windrow
