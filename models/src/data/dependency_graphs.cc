// Graphs of dependencies: trees, acyclic graphs, and a test for crossing arcs.
#include <algorithm>

#include "windrow/models/datasets.h"

namespace windrow {
namespace {

/// The dependents of heads 0 to `last` in CSR format; the dependents of a head keep the given order.
struct Dependents {
  struct Edge {
    std::int32_t head, dependent;
  };

  Dependents(const std::vector<Edge>& edges, std::size_t last) : begin(last + 2, 0), dependent(edges.size()) {
    for (const Edge& edge : edges) ++begin[static_cast<std::size_t>(edge.head) + 1];
    for (std::size_t head = 1; head < begin.size(); ++head) begin[head] += begin[head - 1];
    std::vector<std::size_t> next = begin;
    for (const Edge& edge : edges) dependent[next[static_cast<std::size_t>(edge.head)]++] = edge.dependent;
  }

  std::vector<std::size_t> begin;
  std::vector<std::int32_t> dependent;
};

/// Which edges remain: a depth-first search drops those that lead back to its current path.
std::vector<bool> without_circles(const Dependents& graph) {
  enum class State : char { unseen, on_path, done };
  std::vector<State> state(graph.begin.size() - 1, State::unseen);
  std::vector<std::size_t> next = graph.begin, path;
  std::vector<bool> kept(graph.dependent.size());
  const auto enter = [&](std::size_t vertex) {
    state[vertex] = State::on_path;
    path.push_back(vertex);
  };
  for (std::size_t start = 0; start < state.size(); ++start) {
    if (state[start] == State::unseen) enter(start);
    while (!path.empty()) {
      const std::size_t vertex = path.back(), edge = next[vertex]++;
      if (edge == graph.begin[vertex + 1]) {
        state[vertex] = State::done;
        path.pop_back();
        continue;
      }
      const auto dependent = static_cast<std::size_t>(graph.dependent[edge]);
      kept[edge] = state[dependent] != State::on_path;
      if (state[dependent] == State::unseen) enter(dependent);
    }
  }
  return kept;
}

/// The root gets no vertex.
GraphData graph_of(const Dependents& dependents, const std::vector<bool>& kept) {
  GraphData graph;
  for (std::size_t head = 1; head + 1 < dependents.begin.size(); ++head) {
    for (std::size_t edge = dependents.begin[head]; edge < dependents.begin[head + 1]; ++edge) {
      if (kept[edge]) graph.children.push_back(dependents.dependent[edge] - 1);
    }
    graph.child_begin.push_back(static_cast<std::int32_t>(graph.children.size()));
  }
  return graph;
}

}  // namespace

bool projective(const DependencySentence& sentence) {
  struct Span {
    std::int32_t left, right;
  };
  std::vector<Span> spans;
  for (std::int32_t word = 1; word <= static_cast<std::int32_t>(sentence.heads.size()); ++word) {
    const std::int32_t head = sentence.heads[static_cast<std::size_t>(word) - 1];
    spans.push_back({std::min(word, head), std::max(word, head)});
  }
  const auto outer_first = [](Span a, Span b) { return a.left != b.left ? a.left < b.left : a.right > b.right; };
  std::sort(spans.begin(), spans.end(), outer_first);
  std::vector<std::int32_t> ends;  // of the enclosing spans, innermost last
  for (const Span span : spans) {
    while (!ends.empty() && ends.back() <= span.left) ends.pop_back();
    if (!ends.empty() && ends.back() < span.right) return false;
    ends.push_back(span.right);
  }
  return true;
}

GraphData dependency_tree(const DependencySentence& sentence) {
  std::vector<Dependents::Edge> edges;
  for (std::size_t word = 0; word < sentence.heads.size(); ++word) {
    edges.push_back({sentence.heads[word], static_cast<std::int32_t>(word) + 1});
  }
  return graph_of({edges, sentence.heads.size()}, std::vector<bool>(edges.size(), true));
}

GraphData enhanced_graph(const DependencySentence& sentence) {
  std::vector<Dependents::Edge> edges;
  for (std::size_t vertex = 0; vertex < sentence.enhanced.size(); ++vertex) {
    std::vector<std::int32_t> heads;
    for (const Arc& arc : sentence.enhanced[vertex]) heads.push_back(arc.head);
    std::sort(heads.begin(), heads.end());
    heads.erase(std::unique(heads.begin(), heads.end()), heads.end());
    for (const std::int32_t head : heads) edges.push_back({head, static_cast<std::int32_t>(vertex) + 1});
  }
  const Dependents dependents(edges, sentence.enhanced.size());
  return graph_of(dependents, without_circles(dependents));
}

GraphData enhanced_graph(const DependencySentence& sentence, const Vocabulary& relations) {
  GraphData graph = enhanced_graph(sentence);
  auto& numbers = graph.edge_indices["relation"];
  for (std::size_t head = 0; head + 1 < graph.child_begin.size(); ++head) {
    for (auto edge = graph.child_begin[head]; edge < graph.child_begin[head + 1]; ++edge) {
      const auto& arcs = sentence.enhanced[static_cast<std::size_t>(graph.children[static_cast<std::size_t>(edge)])];
      const auto number = static_cast<std::int32_t>(head) + 1;
      const auto arc = std::find_if(arcs.begin(), arcs.end(), [&](const Arc& one) { return one.head == number; });
      numbers.push_back(relations.number(arc->relation));
    }
  }
  return graph;
}

}  // namespace windrow
