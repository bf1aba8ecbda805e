// A Tree-LSTM learns the values of Boolean formulas, at every vertex of trees of any shape.
#include <cstdio>
#include <random>

#include "windrow/batching/runner.h"

enum Word { no, yes, both, either };

// Appends a random formula to the graph, children first; returns its vertex.
std::int32_t grow(windrow::GraphData& graph, int depth, std::mt19937& random) {
  const bool leaf = depth == 0 || random() % 3 == 0;
  const auto word = static_cast<std::int32_t>(random() % 2) + (leaf ? 0 : 2);
  std::int32_t value = word;
  if (!leaf) {
    const std::int32_t left = grow(graph, depth - 1, random), right = grow(graph, depth - 1, random);
    const auto of = [&](std::int32_t child) { return graph.indices["value"][static_cast<std::size_t>(child)]; };
    value = word == both ? of(left) & of(right) : of(left) | of(right);
    graph.children.insert(graph.children.end(), {left, right});
  }
  graph.child_begin.push_back(static_cast<std::int32_t>(graph.children.size()));
  graph.indices["word"].push_back(word);
  graph.indices["value"].push_back(value);
  return static_cast<std::int32_t>(graph.child_begin.size()) - 2;
}

int main() {
  windrow::Engine engine;
  windrow::Device host = windrow::host_device(engine);
  windrow::Parameters parameters(host, 1);
  constexpr windrow::Index h = 16;
  const auto words = parameters.add("words", 4, h, windrow::Initial::normal(0, 1));
  const auto w = parameters.add("w", 3 * h, 5 * h, windrow::Initial::glorot(3 * h, 5 * h));
  const auto b = parameters.add("b", 1, 5 * h, windrow::Initial::zeros());
  const auto head = parameters.add("head", h, 2, windrow::Initial::glorot(h, 2));

  windrow::VertexFunction cell("tree_lstm", {.arity = 2}, [&](windrow::Vertex& v) {
    const windrow::State h_of = v.state("h", h), c_of = v.state("c", h);
    const auto word = embedding(words, v.pull_index("word"));
    const auto gates = matmul(concat(word, v.gather(0, h_of), v.gather(1, h_of)), w) + b;
    const auto gate = [&](int k) { return slice(gates, k * h, (k + 1) * h); };
    const auto c =
        sigmoid(gate(0)) * tanh(gate(1)) + sigmoid(gate(2)) * v.gather(0, c_of) + sigmoid(gate(3)) * v.gather(1, c_of);
    const auto own = sigmoid(gate(4)) * tanh(c);
    v.scatter(h_of, own);
    v.scatter(c_of, c);
    v.loss(softmax_cross_entropy(matmul(own, head), v.pull_index("value")));
  });

  windrow::Runner runner(host, cell, parameters);
  std::mt19937 random(1);
  for (int step = 0; step <= 300; ++step) {
    std::vector<windrow::InputGraph> formulas;
    for (int i = 0; i < 32; ++i) {
      windrow::GraphData graph;
      grow(graph, 5, random);
      formulas.emplace_back(cell, std::move(graph));
    }
    const auto result = runner.differentiate(formulas);  // pushed; computed in batches while this thread continues
    const auto vertices = static_cast<double>(result.vertices());
    parameters.sgd(1 / vertices);
    if (step % 100 == 0) std::printf("step %d: loss %.3f a vertex\n", step, result.loss() / vertices);
  }
}
