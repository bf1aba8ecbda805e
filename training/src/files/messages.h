// Names in error messages.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace windrow {

/// A name from a file, with control characters escaped, and shortened if it is long. Errors thus stay one line.
std::string shortened(std::string_view name, std::size_t longest = 80);
/// The same in quotes.
std::string in_quotes(std::string_view name);
/// A path, with control characters escaped.
std::string shown(const std::filesystem::path& path);

/// Throws FileError: "PATH: CALL failed: DESCRIPTION".
[[noreturn]] void refuse_call(const std::filesystem::path& path, std::string_view call, int error);

}  // namespace windrow
