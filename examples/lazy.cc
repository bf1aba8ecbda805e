// The Tree-LSTM of tree_lstm.cc as lazy expressions: generating a random formula records its network.
#include "windrow/batching/lazy.h"

#include <cstdio>
#include <random>

constexpr windrow::Index h = 16;
enum Word { no, yes, both, either };

struct Formula {
  windrow::LazyExpr h, c;
  int value;
};

struct Model {
  windrow::Parameter words, w, b, head;
  windrow::LazyGraph& graph;
  std::vector<windrow::LazyExpr> losses = {};
  std::mt19937 random = std::mt19937(1);

  Formula grow(int depth) {
    const bool leaf = depth == 0 || random() % 3 == 0;
    const int word = static_cast<int>(random() % 2) + (leaf ? 0 : 2);
    const auto of_word = embedding(words, graph.index(word));
    if (leaf) return judged({of_word, of_word, word});
    const Formula left = grow(depth - 1), right = grow(depth - 1);
    const auto gates = affine(concat(of_word, left.h, right.h), w, b);
    const auto gate = [&](int k) { return slice(gates, k * h, (k + 1) * h); };
    const auto c = sigmoid(gate(0)) * tanh(gate(1)) + sigmoid(gate(2)) * left.c + sigmoid(gate(3)) * right.c;
    const int value = word == both ? left.value & right.value : left.value | right.value;
    return judged({sigmoid(gate(4)) * tanh(c), c, value});
  }

  Formula judged(Formula formula) {
    losses.push_back(softmax_cross_entropy(matmul(formula.h, head), graph.index(formula.value)));
    return formula;
  }
};

int main() {
  windrow::Engine engine;
  windrow::Device host = windrow::host_device(engine);
  windrow::Parameters parameters(host, 1);
  windrow::LazyGraph graph(host, parameters);
  Model model = {parameters.add("words", 4, h, windrow::Initial::normal(0, 1)),
                 parameters.add("w", 3 * h, 5 * h, windrow::Initial::glorot(3 * h, 5 * h)),
                 parameters.add("b", 1, 5 * h, windrow::Initial::zeros()),
                 parameters.add("head", h, 2, windrow::Initial::glorot(h, 2)), graph};
  for (int step = 0; step <= 300; ++step) {
    model.losses.clear();
    for (int i = 0; i < 32; ++i) model.grow(5);
    graph.backward(model.losses);  // computed here, all formulas at once
    const auto vertices = static_cast<double>(model.losses.size());
    parameters.sgd(1 / vertices);
    double total = 0;
    for (const auto& loss : model.losses) total += loss.scalar();
    if (step % 100 == 0) std::printf("step %d: loss %.3f a vertex\n", step, total / vertices);
    graph.clear();
  }
}
