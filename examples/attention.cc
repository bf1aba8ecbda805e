// Attention: a question looks up the value of its key among facts, of which each sample has another number. Keys are
// only multiplied with the query, and values only scaled and summed, so edges have no copies of them.
#include <cstdio>
#include <random>

#include "windrow/batching/runner.h"

constexpr windrow::Index h = 16, all_keys = 20, all_values = 5;
enum Kind { fact, question };

// Facts with different keys, and a question for one of these keys.
windrow::GraphData draw(std::mt19937& random) {
  windrow::GraphData graph;
  auto &keys = graph.indices["key"], &values = graph.indices["value"];
  const auto facts = static_cast<std::int32_t>(2 + random() % 8);
  const auto first = static_cast<std::int32_t>(random() % all_keys);
  for (std::int32_t i = 0; i < facts; ++i) {
    keys.push_back((first + i) % all_keys);
    values.push_back(static_cast<std::int32_t>(random() % all_values));
    graph.kinds.push_back(fact);
    graph.child_begin.push_back(0);
    graph.children.push_back(i);  // of the question
  }
  const std::size_t asked = random() % keys.size();
  keys.push_back(keys[asked]);
  values.push_back(values[asked]);  // the answer
  graph.kinds.push_back(question);
  graph.child_begin.push_back(facts);
  return graph;
}

int main() {
  windrow::Engine engine;
  windrow::Device host = windrow::host_device(engine);
  windrow::Parameters parameters(host, 1);
  const auto keys = parameters.add("keys", all_keys, h, windrow::Initial::normal(0, 1));
  const auto values = parameters.add("values", all_values, h, windrow::Initial::normal(0, 1));
  const auto questions = parameters.add("questions", all_keys, h, windrow::Initial::normal(0, 1));
  const auto out = parameters.add("out", h, all_values, windrow::Initial::glorot(h, all_values));

  const windrow::VertexFunction of_fact("fact", {}, [&](windrow::Vertex& v) {
    v.scatter(v.state("key", h), embedding(keys, v.pull_index("key")));
    v.scatter(v.state("value", h), embedding(values, v.pull_index("value")));
  });
  const windrow::VertexFunction of_question("question", {.arity = windrow::any_arity}, [&](windrow::Vertex& v) {
    const auto query = embedding(questions, v.pull_index("key"));
    const auto weights = softmax_children(row_dot(v.each(v.state("key", h)), query));
    const auto read = sum_children(v.each(v.state("value", h)) * weights);
    v.loss(softmax_cross_entropy(matmul(read, out), v.pull_index("value")));
  });
  const windrow::VertexFunction function("lookup", {of_fact, of_question});

  windrow::Runner runner(host, function, parameters);
  std::mt19937 random(1);
  for (int step = 0; step <= 300; ++step) {
    std::vector<windrow::InputGraph> samples;
    for (int i = 0; i < 64; ++i) samples.emplace_back(function, draw(random));
    const auto result = runner.differentiate(samples);
    parameters.sgd(2.0 / 64);
    if (step % 100 == 0) std::printf("step %d: loss %.3f a question\n", step, result.loss() / 64);
  }
}
