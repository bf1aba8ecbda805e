// Opens files of data. Knows no format but that of compression.
#pragma once

#include <filesystem>
#include <istream>
#include <memory>
#include <string>

namespace windrow {

enum class Pipes { refused, accepted };

/// Opens a file, whose content is decompressed by gzip while it is read if its name ends in .gz; a missing file is read
/// from its compressed form, if there is one. tellg() counts bytes of the file. Throws DataError if it is not a regular
/// file, nor a pipe if these are accepted, or cannot be opened; `what` names the expected content. Reading throws
/// DataError if a compressed file is damaged or cut off.
std::unique_ptr<std::istream> open_data(const std::filesystem::path& file, const std::string& what,
                                        Pipes pipes = Pipes::refused);

}  // namespace windrow
