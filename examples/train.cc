// A complete training: a Tree-LSTM learns the sentiment of sentences from labelled trees.
//
//   example_train FOLDER EPOCHS [TRAIN VALID [LINE]]
//
// Trees are in the format of the Stanford Sentiment Treebank, "(3 (2 It) (4 works))"; without files they are generated.
// Each epoch ends with a checkpoint in FOLDER, from which the next call goes on. Last, the program labels one line.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <sstream>

#include "windrow/batching/runner.h"
#include "windrow/models/datasets.h"
#include "windrow/training/checkpoint.h"

namespace {

constexpr std::size_t minibatch_size = 25;
constexpr windrow::Index width = 32;  // of the embedding of a word, and of the states of a vertex
using Trees = std::vector<windrow::LabelledTree>;

Trees generated(std::size_t trees, std::uint64_t seed) {
  std::istringstream text(windrow::generate_treebank(trees, seed));
  return windrow::read_treebank(text, "generated trees");
}

/// The parameters, and what one vertex of a tree computes. Leaves have words, and inner vertices two children; what a
/// vertex lacks is zero.
struct TreeLstm {
  TreeLstm(const windrow::Device& device, windrow::Index vocabulary)
      : parameters(device, /*seed=*/1),
        words(parameters.add("words", vocabulary, width, windrow::Initial::normal(0, 0.1f))),
        gates(parameters.add_product("gates", 3 * width, 5 * width)),
        bias(parameters.add("bias", 1, 5 * width, windrow::Initial::zeros())),
        head(parameters.add_product("head", width, windrow::tree_labels)),
        head_bias(parameters.add("head_bias", 1, windrow::tree_labels, windrow::Initial::zeros())),
        function("tree_lstm", {.arity = 2}, [this](windrow::Vertex& v) { compute(v); }) {}

  void compute(windrow::Vertex& v) const {
    const windrow::State h_of = v.state("h", width), c_of = v.state("c", width);
    const auto word = embedding(words, v.pull_index("word", windrow::Presence::sometimes));
    const auto below = concat(dropout(word, {.rate = 0.2}), v.gather(0, h_of), v.gather(1, h_of));
    const auto all = matmul(below, gates) + bias;
    const auto gate = [&](int k) { return slice(all, k * width, (k + 1) * width); };
    const auto c =
        sigmoid(gate(0)) * tanh(gate(1)) + sigmoid(gate(2)) * v.gather(0, c_of) + sigmoid(gate(3)) * v.gather(1, c_of);
    const auto h = sigmoid(gate(4)) * tanh(c);
    v.scatter(h_of, h);
    v.scatter(c_of, c);
    const auto logits = matmul(dropout(h, {.rate = 0.2}), head) + head_bias;
    v.push("logits", logits);
    v.loss(softmax_cross_entropy(logits, v.pull_index("label")));
  }

  windrow::Parameters parameters;
  windrow::Parameter words, gates, bias, head, head_bias;
  windrow::VertexFunction function;
};

std::vector<windrow::InputGraph> graphs_of(const Trees& trees, const TreeLstm& model,
                                           const windrow::Vocabulary& words) {
  std::vector<windrow::InputGraph> graphs;
  for (const auto& tree : trees) {
    graphs.emplace_back(model.function, numbered(tree, words), "tree " + std::to_string(graphs.size() + 1));
  }
  return graphs;
}

double accuracy(windrow::Runner& runner, const std::vector<windrow::InputGraph>& graphs) {
  std::size_t right = 0;
  for (const auto& minibatch : windrow::minibatches(graphs, minibatch_size)) {
    const auto labels = argmax(runner.run(minibatch).at_roots("logits"));
    for (std::size_t i = 0; i < labels.size(); ++i)
      right += labels[i] == minibatch[i]->index("label").back();  // root's
  }
  return static_cast<double>(right) / static_cast<double>(graphs.size());
}

void train(const std::vector<std::string>& arguments) {
  const std::string& folder = arguments[0];
  const std::uint64_t epochs = std::strtoull(arguments[1].c_str(), nullptr, 10);
  const bool files = arguments.size() >= 4;
  const Trees training = files ? windrow::read_treebank(arguments[2]) : generated(500, 1);
  const Trees validation = files ? windrow::read_treebank(arguments[3]) : generated(100, 2);

  windrow::CheckpointWriter writer(folder, {.resume = true});  // refuses a bad folder now, and not after an epoch
  const auto newest = windrow::CheckpointFolder(folder).newest().checkpoint;
  const auto words = newest ? windrow::Vocabulary::of(newest->document.at("words").record())
                            : windrow::vocabulary_of(training, /*at_least=*/2);

  windrow::Engine engine;
  const windrow::Device host = windrow::host_device(engine);
  TreeLstm model(host, words.size());
  windrow::Runner runner(host, model.function, model.parameters);
  windrow::Optimiser optimiser(model.parameters, windrow::Method::adam(), {.rate = 5e-3, .clip_norm = 5});
  if (newest) windrow::restore(*newest, {model.parameters, &optimiser});

  const auto to_learn = graphs_of(training, model, words), to_score = graphs_of(validation, model, words);
  for (std::uint64_t epoch = newest ? newest->step + 1 : 1; epoch <= epochs; ++epoch) {
    std::mt19937_64 random(epoch);  // another order in each epoch, and the same one after a restart
    std::vector<std::function<double()>> losses;
    for (const auto& minibatch : windrow::shuffled_minibatches(to_learn, minibatch_size, random)) {
      losses.push_back(runner.differentiate(minibatch).pending_loss());  // pushed: nothing has waited yet
      optimiser.step(minibatch.size());
    }
    double loss = 0;
    for (const auto& wait : losses) loss += wait();
    std::printf("epoch %d: loss %.3f a tree, norm %.2f, accuracy %.2f\n", static_cast<int>(epoch),
                loss / static_cast<double>(training.size()), optimiser.last_norm(), accuracy(runner, to_score));
    const windrow::Snapshot snapshot({model.parameters, &optimiser});
    auto contents = snapshot.contents(epoch);
    contents.document.set("words", words.record());
    writer.write(contents);
    runner.forget();  // so that a restart gives the same bits
  }

  std::istringstream line(arguments.size() > 4 ? arguments[4] : windrow::generate_treebank(1, 3));
  const auto one = graphs_of(windrow::read_treebank(line, "line"), model, words);
  std::printf("label %d of %s\n", argmax(runner.run(one).at_roots("logits")).front(), line.str().c_str());
}

}  // namespace

int main(int count, char** arguments) {
  try {
    if (count < 3 || std::atoi(arguments[2]) < 1) throw windrow::MisuseError("expected FOLDER EPOCHS, 1 or more");
    train({arguments + 1, arguments + count});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "example_train: %s\n", error.what());
    return 2;
  }
}
