#include "windrow/batching/graph.h"

#include <algorithm>
#include <numeric>

#include "ir.h"

namespace windrow {
namespace {

std::string number(std::int64_t value) { return std::to_string(value); }

}  // namespace

InputGraph::InputGraph(const VertexFunction& function, const GraphData& data, std::string name)
    : name_(name.empty() ? nullptr : std::make_shared<const std::string>(std::move(name))),
      function_(function.function_) {
  check_children(data, function.arity());
  find_levels(data);
  sort(data, types_of(data));
  for (const ir::IndexField& pull : function_->index_pulls) {
    indices_.push_back(sorted(input(data.indices, pull.name, pull.width), pull.width));
  }
  for (const ir::Field& pull : function_->pulls) {
    values_.push_back(sorted(input(data.values, pull.name, pull.width), pull.width));
  }
}

void InputGraph::check_children(const GraphData& data, std::size_t arity) {
  const auto refuse = [&](const std::string& why) { throw MisuseError(this->name() + ": " + why); };
  const auto& begin = data.child_begin;
  if (begin.empty() || begin.front() != 0 || begin.back() != static_cast<std::int64_t>(data.children.size())) {
    refuse("child_begin does not span the " + number(static_cast<std::int64_t>(data.children.size())) +
           " children; expected the first to be 0 and the last their number");
  }
  const auto vertices = static_cast<std::int32_t>(begin.size()) - 1;
  for (std::int32_t v = 0; v < vertices; ++v) {
    const auto first = begin[static_cast<std::size_t>(v)], last = begin[static_cast<std::size_t>(v) + 1];
    const std::string vertex = "vertex " + number(v);
    if (last < first) refuse(vertex + ": its children end before they begin; expected child_begin to ascend");
    if (last > begin.back()) refuse(vertex + ": its children end behind the last; expected child_begin to ascend");
    if (static_cast<std::size_t>(last - first) > arity) {
      refuse(vertex + " has " + number(last - first) + " children; expected at most " +
             number(static_cast<std::int64_t>(arity)) + ", the arity of " + function_->name);
    }
    for (auto e = first; e < last; ++e) {
      const std::int32_t child = data.children[static_cast<std::size_t>(e)];
      if (child == no_child || (0 <= child && child < vertices)) continue;
      refuse(vertex + ", child " + number(e - first) + ": there is no vertex " + number(child) + "; expected 0 to " +
             number(vertices - 1) + ", or " + number(no_child) + " for none");
    }
  }
}

std::vector<std::uint32_t> InputGraph::types_of(const GraphData& data) {
  std::vector<std::uint32_t> types;
  std::size_t bit = function_->arity;
  for (std::size_t v = 0; v + 1 < data.child_begin.size(); ++v) {
    ir::VertexType type = 0;
    const auto first = static_cast<std::size_t>(data.child_begin[v]);
    for (std::size_t e = first; e < static_cast<std::size_t>(data.child_begin[v + 1]); ++e) {
      if (data.children[e] != no_child) type |= 1u << (e - first);
    }
    types.push_back(type);
  }
  for (const ir::IndexField& pull : function_->index_pulls) {
    if (!pull.optional) continue;
    const std::vector<std::int32_t>& rows = input(data.indices, pull.name, pull.width);
    for (std::size_t v = 0; v < types.size(); ++v) types[v] |= rows[v] != -1 ? 1u << bit : 0u;
    ++bit;
  }
  types_ = types;
  std::sort(types_.begin(), types_.end());
  types_.erase(std::unique(types_.begin(), types_.end()), types_.end());
  for (std::uint32_t& type : types) {
    type = static_cast<std::uint32_t>(std::lower_bound(types_.begin(), types_.end(), type) - types_.begin());
  }
  return types;
}

template <class T>
const std::vector<T>& InputGraph::input(const std::map<std::string, std::vector<T>>& inputs, const std::string& name,
                                        Index width) const {
  const auto found = inputs.find(name);
  if (found == inputs.end()) {
    throw MisuseError(this->name() + ": has no input '" + name + "', which " + function_->name + " pulls");
  }
  if (static_cast<Index>(found->second.size()) != vertices() * width) {
    throw MisuseError(this->name() + ": input '" + name + "' has " + number(static_cast<Index>(found->second.size())) +
                      " elements; expected " + number(vertices()) + " x " + number(width));
  }
  return found->second;
}

template <class T>
std::vector<T> InputGraph::sorted(const std::vector<T>& rows, Index width) const {
  std::vector<T> result;
  result.reserve(rows.size());
  for (std::int32_t v : vertex_) result.insert(result.end(), rows.begin() + v * width, rows.begin() + (v + 1) * width);
  return result;
}

void InputGraph::find_levels(const GraphData& data) {
  const std::size_t vertices = data.child_begin.size() - 1;
  const auto each_child = [&](std::size_t v, auto visit) {
    for (auto e = data.child_begin[v]; e < data.child_begin[v + 1]; ++e) {
      const std::int32_t child = data.children[static_cast<std::size_t>(e)];
      if (child != no_child) visit(static_cast<std::size_t>(child));
    }
  };
  // Kahn's order (1962), from the leaves up: a vertex is next when all its children had their turn.
  std::vector<std::int32_t> consumer_begin(vertices + 2, 0), waits_for(vertices, 0);
  for (std::size_t v = 0; v < vertices; ++v) {
    each_child(v, [&](std::size_t child) { ++consumer_begin[child + 2], ++waits_for[v]; });
  }
  for (std::size_t v = 2; v < consumer_begin.size(); ++v) consumer_begin[v] += consumer_begin[v - 1];
  std::vector<std::int32_t> consumers(static_cast<std::size_t>(consumer_begin.back()));
  for (std::size_t v = 0; v < vertices; ++v) {  // which leaves consumer_begin where it belongs
    each_child(v, [&](std::size_t child) {
      consumers[static_cast<std::size_t>(consumer_begin[child + 1]++)] = static_cast<std::int32_t>(v);
    });
  }
  level_.assign(vertices, 0);
  std::vector<std::int32_t> ready;
  for (std::size_t v = 0; v < vertices; ++v) {
    if (waits_for[v] == 0) ready.push_back(static_cast<std::int32_t>(v));
  }
  for (std::size_t i = 0; i < ready.size(); ++i) {
    const auto v = static_cast<std::size_t>(ready[i]);
    levels_ = std::max(levels_, level_[v] + 1);
    for (auto c = consumer_begin[v]; c < consumer_begin[v + 1]; ++c) {
      const auto consumer = static_cast<std::size_t>(consumers[static_cast<std::size_t>(c)]);
      level_[consumer] = std::max(level_[consumer], level_[v] + 1);
      if (--waits_for[consumer] == 0) ready.push_back(static_cast<std::int32_t>(consumer));
    }
  }
  if (ready.size() == vertices) return;
  // Whoever still waits waits for one who still waits; following these leads around a cycle.
  auto on_cycle = static_cast<std::size_t>(
      std::find_if(waits_for.begin(), waits_for.end(), [](std::int32_t n) { return n > 0; }) - waits_for.begin());
  for (std::size_t steps = 0; steps < vertices; ++steps) {
    std::size_t next = on_cycle;
    each_child(on_cycle, [&](std::size_t child) { next = waits_for[child] > 0 ? child : next; });
    on_cycle = next;
  }
  throw MisuseError(this->name() + ": vertex " + number(static_cast<std::int64_t>(on_cycle)) +
                    " is its own descendant; expected a graph without cycles");
}

void InputGraph::sort(const GraphData& data, const std::vector<std::uint32_t>& types) {
  const auto key = [&](std::int32_t v) {
    return std::pair(types[static_cast<std::size_t>(v)], level_[static_cast<std::size_t>(v)]);
  };
  vertex_.resize(level_.size());
  std::iota(vertex_.begin(), vertex_.end(), 0);
  std::stable_sort(vertex_.begin(), vertex_.end(), [&](std::int32_t a, std::int32_t b) { return key(a) < key(b); });
  std::vector<std::int32_t> place(vertex_.size());
  for (std::size_t i = 0; i < vertex_.size(); ++i) {
    place[static_cast<std::size_t>(vertex_[i])] = static_cast<std::int32_t>(i);
  }
  for (std::size_t i = 0; i < vertex_.size(); ++i) {
    const auto v = static_cast<std::size_t>(vertex_[i]);
    type_.push_back(types[v]);
    if (i == 0 || key(vertex_[i]) != key(vertex_[i - 1])) {
      const auto here = static_cast<std::int32_t>(i);
      runs_.push_back({types[v], level_[v], here, here, static_cast<std::int64_t>(children_.size())});
    }
    ++runs_.back().end;
    for (auto e = data.child_begin[v]; e < data.child_begin[v + 1]; ++e) {
      const std::int32_t child = data.children[static_cast<std::size_t>(e)];
      if (child != no_child) children_.push_back(place[static_cast<std::size_t>(child)]);
    }
  }
}

void InputGraph::append_to(TypedGraph& graph, std::span<const std::uint32_t> type_numbers) const {
  const std::int32_t base = graph.vertices();
  for (const Run& run : runs_) {
    const std::int32_t children = static_cast<std::int32_t>(ir::children(*function_, types_[run.type]));
    graph.type.insert(graph.type.end(), static_cast<std::size_t>(run.end - run.begin),
                      static_cast<std::int32_t>(type_numbers[run.type]));
    for (std::int32_t place = run.begin; place < run.end; ++place) {
      graph.child_begin.push_back(graph.child_begin.back() + children);
    }
  }
  for (const std::int32_t child : children_) graph.children.push_back(base + child);
}

}  // namespace windrow
