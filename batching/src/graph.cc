#include "windrow/batching/graph.h"

#include <algorithm>
#include <unordered_map>

#include "ir.h"

namespace windrow {
namespace {

std::string number(std::int64_t value) { return std::to_string(value); }

}  // namespace

Graph::Graph(const VertexFunction& function, GraphData data, const std::string& name)
    : name_(name), function_(function.function_) {
  check_children(data, function.arity());
  take_inputs(data);
  find_types(data);
  child_begin_.push_back(0);
  for (std::size_t v = 0; v + 1 < data.child_begin.size(); ++v) {
    for (auto e = data.child_begin[v]; e < data.child_begin[v + 1]; ++e) {
      const std::int32_t child = data.children[static_cast<std::size_t>(e)];
      if (child != no_child) children_.push_back(child);
    }
    child_begin_.push_back(static_cast<std::int32_t>(children_.size()));
  }
  find_levels();
}

void Graph::check_children(const GraphData& data, std::size_t arity) {
  const auto refuse = [&](const std::string& why) { throw MisuseError(name_ + ": " + why); };
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

void Graph::take_inputs(GraphData& data) {
  const auto vertices = static_cast<std::int64_t>(data.child_begin.size()) - 1;
  const auto take = [&](auto& from, const std::string& name, Index width, auto& to) {
    const auto found = from.find(name);
    if (found == from.end())
      throw MisuseError(name_ + ": has no input '" + name + "', which " + function_->name + " pulls");
    const auto size = static_cast<std::int64_t>(found->second.size());
    if (size != vertices * width) {
      throw MisuseError(name_ + ": input '" + name + "' has " + number(size) + " elements; expected " +
                        number(vertices) + " x " + number(width));
    }
    to.push_back(std::move(found->second));
  };
  for (const auto& pull : function_->index_pulls) take(data.indices, pull.name, pull.width, indices_);
  for (const auto& pull : function_->pulls) take(data.values, pull.name, pull.width, values_);
}

void Graph::find_types(const GraphData& data) {
  const auto vertices = data.child_begin.size() - 1;
  std::unordered_map<ir::VertexType, std::uint16_t> known;
  for (std::size_t v = 0; v < vertices; ++v) {
    ir::VertexType type = 0;
    const auto first = static_cast<std::size_t>(data.child_begin[v]);
    for (std::size_t e = first; e < static_cast<std::size_t>(data.child_begin[v + 1]); ++e) {
      if (data.children[e] != no_child) type |= 1u << (e - first);
    }
    std::size_t bit = function_->arity;
    for (std::size_t i = 0; i < function_->index_pulls.size(); ++i) {
      if (!function_->index_pulls[i].optional) continue;
      if (indices_[i][v] != -1) type |= 1u << bit;
      ++bit;
    }
    const auto [place, added] = known.try_emplace(type, static_cast<std::uint16_t>(types_.size()));
    if (added && types_.size() == UINT16_MAX) throw MisuseError(name_ + ": more than 65535 types of vertices");
    if (added) types_.push_back(type);
    type_of_.push_back(place->second);
  }
}

void Graph::find_levels() {
  const std::size_t vertices = child_begin_.size() - 1;
  // Kahn's order (1962), from the leaves up: a vertex is next when all its children had their turn.
  std::vector<std::int32_t> consumer_begin(vertices + 1, 0), consumers(children_.size()), waits_for(vertices);
  for (std::int32_t child : children_) ++consumer_begin[static_cast<std::size_t>(child) + 1];
  for (std::size_t v = 0; v < vertices; ++v) consumer_begin[v + 1] += consumer_begin[v];
  std::vector<std::int32_t> next(consumer_begin.begin(), consumer_begin.end() - 1);
  for (std::size_t v = 0; v < vertices; ++v) {
    waits_for[v] = child_begin_[v + 1] - child_begin_[v];
    for (auto e = child_begin_[v]; e < child_begin_[v + 1]; ++e) {
      const auto child = static_cast<std::size_t>(children_[static_cast<std::size_t>(e)]);
      consumers[static_cast<std::size_t>(next[child]++)] = static_cast<std::int32_t>(v);
    }
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
    for (auto e = child_begin_[on_cycle]; e < child_begin_[on_cycle + 1]; ++e) {
      const auto child = static_cast<std::size_t>(children_[static_cast<std::size_t>(e)]);
      if (waits_for[child] == 0) continue;
      on_cycle = child;
      break;
    }
  }
  throw MisuseError(name_ + ": vertex " + number(static_cast<std::int64_t>(on_cycle)) +
                    " is its own descendant; expected a graph without cycles");
}

}  // namespace windrow
