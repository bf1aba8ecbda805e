// Files of data: by the names under which they are published, and opened. Knows no workload, and no format but that of
// compression.
#pragma once

#include <filesystem>
#include <istream>
#include <memory>
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

enum class Pipes { refused, accepted };

/// Opens a file, whose content is decompressed by gzip while it is read if its name ends in .gz; a missing file is read
/// from its compressed form, if there is one. tellg() counts bytes of the file. Throws DataError if it is not a regular
/// file, nor a pipe if these are accepted, or cannot be opened; `what` names the expected content. Reading throws
/// DataError if a compressed file is damaged or cut off.
std::unique_ptr<std::istream> open_data(const std::filesystem::path& file, const std::string& what,
                                        Pipes pipes = Pipes::refused);

}  // namespace windrow
