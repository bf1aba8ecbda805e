// A trace as JSON, in the format of Chrome's trace events.
#pragma once

#include <functional>
#include <ostream>
#include <string>

#include "trace/graph.h"

namespace windrow {

void write_json(std::ostream& out, const TraceGraph& graph, std::uint32_t engine);

/// Writes a file by `write(stream)`, which appears at once and whole. Throws Error, naming the path, if it cannot.
void write_file(const std::string& path, const std::function<void(std::ostream&)>& write);

/// As a string literal of JSON. What is no UTF-8 becomes the replacement character.
std::string quoted(std::string_view text);

}  // namespace windrow
