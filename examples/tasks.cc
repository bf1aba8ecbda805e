// A network learns to spell the names of digits. Each step of a coroutine depends on the letter that it read last.
#include <algorithm>
#include <cstdio>
#include <string>

#include "windrow/batching/lazy_task.h"

constexpr windrow::Index h = 32, letters = 27;
const std::vector<std::string> words = {"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"};
// 0 marks the start and the end of a word.
int number_of(const std::string& word, std::size_t i) { return i < word.size() ? word[i] - 'a' + 1 : 0; }

struct Speller {
  windrow::Parameter numbers, letters, w, b, out;

  windrow::LazyExpr next(const windrow::LazyExpr& state, const windrow::LazyIndex& letter) const {
    return tanh(affine(concat(state, embedding(letters, letter)), w, b));
  }
};

windrow::LazyTask<std::string> say(windrow::LazyGraph& graph, const Speller& speller, int number) {
  std::string word;
  windrow::LazyExpr state = embedding(speller.numbers, graph.index(number));
  for (int letter = 0; word.size() < 10; word += static_cast<char>('a' + letter - 1)) {
    state = speller.next(state, graph.index(letter));
    const std::vector<float> scores = co_await value(matmul(state, speller.out));
    letter = static_cast<int>(std::max_element(scores.begin(), scores.end()) - scores.begin());
    if (letter == 0) break;
  }
  co_return word;
}

int main() {
  windrow::Engine engine;
  windrow::Device host = windrow::host_device(engine);
  windrow::Parameters parameters(host, 1);
  const Speller speller = {parameters.add("numbers", 10, h, windrow::Initial::normal(0, 1)),
                           parameters.add("letters", letters, h, windrow::Initial::normal(0, 1)),
                           parameters.add("w", 2 * h, h, windrow::Initial::glorot(2 * h, h)),
                           parameters.add("b", 1, h, windrow::Initial::zeros()),
                           parameters.add("out", h, letters, windrow::Initial::glorot(h, letters))};
  windrow::LazyGraph graph(host, parameters);
  for (int step = 0; step < 200; ++step) {
    std::vector<windrow::LazyExpr> losses;
    for (int number = 0; number < 10; ++number) {
      const std::string& word = words[static_cast<std::size_t>(number)];
      windrow::LazyExpr state = embedding(speller.numbers, graph.index(number));
      for (std::size_t i = 0; i <= word.size(); ++i) {
        state = speller.next(state, graph.index(i == 0 ? 0 : number_of(word, i - 1)));
        losses.push_back(softmax_cross_entropy(matmul(state, speller.out), graph.index(number_of(word, i))));
      }
    }
    graph.backward(losses);
    parameters.sgd(0.02);
    graph.clear();
  }
  std::vector<windrow::LazyTask<std::string>> tasks;
  for (int number = 0; number < 10; ++number) tasks.push_back(say(graph, speller, number));
  for (const std::string& word : windrow::run(graph, std::move(tasks))) std::printf("%s ", word.c_str());
  std::printf("\n");
}
