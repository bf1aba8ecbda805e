// What a file is that was taken for a tensor file.
#pragma once

#include <string_view>

namespace windrow {

/// What the first bytes of a file look like, such as "a zip archive ..."; empty if they may begin a tensor file, or
/// look like nothing that is known.
std::string_view other_format(std::string_view begin);

}  // namespace windrow
