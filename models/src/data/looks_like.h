// What a file is that is no text, by its first bytes, for errors.
#pragma once

#include <string>
#include <string_view>

namespace windrow {

/// "looks like a gzip file; expected text, or a name that ends in .gz", say; empty if the bytes may begin a text.
std::string why_no_text(std::string_view first_bytes);

}  // namespace windrow
