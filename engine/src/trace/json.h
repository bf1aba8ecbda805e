// A trace as JSON, in the format of Chrome's trace events.
#pragma once

#include <functional>
#include <ostream>
#include <string>

#include "trace/graph.h"

namespace windrow {

void write_json(std::ostream& out, const TraceGraph& graph, std::uint32_t engine);

/// Writes a file with `write(stream)`. The file appears at once and complete. Throws Error, naming the path, on
/// failure.
void write_file(const std::string& path, const std::function<void(std::ostream&)>& write);

/// The text as a JSON string literal. Bytes that are not UTF-8 become the replacement character.
std::string quoted(std::string_view text);

}  // namespace windrow
