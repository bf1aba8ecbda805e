#include "lazy/lines.h"

#include <algorithm>

namespace windrow::lazy {

Lines::Lines(const Record& record, const std::vector<Run>& runs) {
  begin_.reserve(runs.size() + 1);
  lines_.reserve(runs.size());
  for (const Run& run : runs) {
    begin_.push_back(lines_.size());
    const NodeId end = run.call ? run.begin + 1 : run.end;  // results of a call have one line
    for (const Record::Node& node : record.nodes(run.begin, end)) lines_.push_back({node.key, node.from});
  }
  begin_.push_back(lines_.size());
  const auto keys = static_cast<std::uint32_t>(record.keys().size());
  ops_.reserve(keys);
  for (std::uint32_t key = 0; key < keys; ++key) ops_.push_back(record.keys()[key].op);
}

/// Names all lines in which the vertex applies the operator. Operators that planning introduced, such as a packed
/// product or a sum, have no line of their own; then names all lines of the vertex.
std::string Lines::of(std::int32_t vertex, const Operator* op) const {
  constexpr std::size_t most = 4;
  const auto first = lines_.begin() + static_cast<std::ptrdiff_t>(begin_[at(vertex)]);
  const auto last = lines_.begin() + static_cast<std::ptrdiff_t>(begin_[at(vertex) + 1]);
  const bool known = op != nullptr && std::any_of(first, last, [&](const Line& line) { return ops_[line.key] == op; });
  std::vector<std::string> texts;
  for (auto line = first; line != last; ++line) {
    const std::string text = line_of(line->from);
    if ((known && ops_[line->key] != op) || std::find(texts.begin(), texts.end(), text) != texts.end()) continue;
    texts.push_back(text);
  }
  std::string all = texts.front();
  for (std::size_t i = 1; i < std::min(texts.size(), most); ++i) all += " or " + texts[i];
  return texts.size() > most ? all + " or " + std::to_string(texts.size() - most) + " other lines" : all;
}

std::string Lines::of_row(const std::string& tensor, Index row) const {
  return line_of(rows_.at(tensor)[static_cast<std::size_t>(row)]);
}

}  // namespace windrow::lazy
