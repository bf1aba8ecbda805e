// A network learns how often words occur, letter by letter. Beam search then finds the most probable words.
#include "windrow/models/beam_search.h"

#include <cmath>
#include <cstdio>
#include <string>

#include "windrow/batching/lazy_cell.h"

constexpr windrow::Index h = 32, marks_and_letters = 28;
constexpr std::int32_t begin = 0, end = 27;  // the marks; letters are between them

int main() {
  windrow::Engine engine;
  windrow::Device host = windrow::host_device(engine);
  windrow::Parameters parameters(host, 1);
  const auto letters = parameters.add("letters", marks_and_letters, h, windrow::Initial::normal(0, 1));
  const auto w = parameters.add("w", 2 * h, h, windrow::Initial::glorot(2 * h, h));
  const auto out = parameters.add("out", h, marks_and_letters, windrow::Initial::glorot(h, marks_and_letters));

  windrow::LazyGraph graph(host, parameters);
  const windrow::LazyCell next = graph.cell("next letter", [&](windrow::CellBody& cell) {
    const windrow::Expr state = tanh(matmul(concat(cell.operand(h), embedding(letters, cell.index())), w));
    cell.result(state);
    cell.result(log_softmax(matmul(state, out)));
  });

  const std::vector<std::string> text = {"eins", "eins", "eins", "eins", "elf", "elf", "zwei", "zehn"};
  for (int step = 0; step < 1000; ++step) {
    std::vector<windrow::LazyExpr> losses;
    for (const std::string& word : text) {
      windrow::LazyExpr state;  // empty: counts as zero
      std::int32_t last = begin;
      for (std::size_t i = 0; i <= word.size(); ++i) {
        auto [after, log_probabilities] = next.call<2>({state}, {graph.index(last)});
        last = i < word.size() ? word[i] - 'a' + 1 : end;
        losses.push_back(-pick(log_probabilities, graph.index(last)));
        state = after;
      }
    }
    graph.backward(losses);
    parameters.sgd(0.01);
    graph.clear();
  }

  const auto step = [&](const windrow::LazyExpr& state, std::int32_t letter) {
    auto [after, log_probabilities] = next.call<2>({state}, {graph.index(letter)});
    return std::pair(after, log_probabilities);
  };
  // Greedy search would begin with the most probable letter, and find one word only.
  std::vector<windrow::LazyTask<std::vector<windrow::Hypothesis>>> tasks;
  tasks.push_back(windrow::beam_search(windrow::LazyExpr(), step,
                                       {.width = 4, .length_power = 0, .longest = 8, .begin = begin, .end = end}));
  for (const auto& hypotheses : windrow::run(graph, std::move(tasks))) {  // of one task
    for (const windrow::Hypothesis& found : hypotheses) {
      std::string word;
      for (const std::int32_t letter : found.words) word += static_cast<char>('a' + letter - 1);
      std::printf("%s %.2f\n", word.c_str(), std::exp(found.log_probability));
    }
  }
}
