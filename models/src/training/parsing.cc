// Dependency treebanks as a workload of the transition parser, which builds the graph of a sentence step by step.
#include <algorithm>

#include "training/making.h"
#include "training/random_numbers.h"
#include "windrow/models/conllu.h"
#include "windrow/models/dependency_parser.h"

namespace windrow {
namespace {

using Treebank = std::vector<DependencySentence>;

[[noreturn]] void refuse_graphs() {
  throw MisuseError("parser: builds its graphs while it runs; expected a model whose graphs are known in advance");
}

class ParserNetwork final : public Network {
 public:
  ParserNetwork(const Device& device, Parameters& parameters, DependencyParser parser, std::uint64_t seed)
      : device_(device), parameters_(parameters), parser_(std::move(parser)), seed_(seed) {}

  std::unique_ptr<Learner> learner(const RunnerOptions& options) override;
  std::vector<TypedGraph> typed_graphs(std::size_t) const override { refuse_graphs(); }

  std::vector<DependencyParser::Sentence> training;
  Treebank validation;

 private:
  class ParserLearner;
  class Attachment;

  const Device device_;
  Parameters& parameters_;
  const DependencyParser parser_;
  const std::uint64_t seed_;  // of random draws during training
};

/// The shares of words with the right head, and with the right head and relation. Punctuation counts.
class ParserNetwork::Attachment final : public Score {
 public:
  Attachment(const ParserNetwork& network, const RunnerOptions& options)
      : network_(network),
        graph_(network.device_, network.parameters_, {.use = LazyOptions::For::inference, .runner = options}) {}

  void add(SampleNumbers numbers) override {
    Treebank sentences;
    for (const std::size_t number : numbers) sentences.push_back(network_.validation[number]);
    const std::vector<DependencyTree> trees = network_.parser_.parse(graph_, sentences);
    for (std::size_t s = 0; s < sentences.size(); ++s) {
      for (std::size_t i = 0; i < trees[s].heads.size(); ++i, ++words_) {
        const bool right = trees[s].heads[i] == sentences[s].heads[i];
        heads_ += right;
        both_ += right && trees[s].relations[i] == sentences[s].relations[i];
      }
    }
  }
  std::vector<Metric> metrics() override {
    const auto all = static_cast<double>(std::max<std::int64_t>(words_, 1));
    return {{"UAS", static_cast<double>(heads_) / all}, {"LAS", static_cast<double>(both_) / all}};
  }

 private:
  const ParserNetwork& network_;
  LazyGraph graph_;
  std::int64_t words_ = 0, heads_ = 0, both_ = 0;
};

class ParserNetwork::ParserLearner final : public Learner {
 public:
  ParserLearner(const ParserNetwork& network, const RunnerOptions& options)
      : network_(network),
        options_(options),
        graph_(network.device_, network.parameters_, {.runner = options}),
        random_(network.seed_) {}

  Loss differentiate(SampleNumbers numbers) override {
    std::vector<LazyTask<DependencyParser::Learned>> tasks;
    for (const std::size_t number : numbers) {
      tasks.push_back(network_.parser_.learn(graph_, network_.training[number], random_()));
    }
    double loss = 0;
    std::vector<LazyExpr> losses;
    for (DependencyParser::Learned& learned : run(graph_, std::move(tasks))) {
      loss += learned.loss;
      losses.insert(losses.end(), learned.losses.begin(), learned.losses.end());
    }
    losses.empty() ? network_.parameters_.forget_gradients() : graph_.backward(losses);
    graph_.clear();
    return [loss] { return loss; };
  }
  std::unique_ptr<Score> score() override { return std::make_unique<Attachment>(network_, options_); }
  RunnerStats stats() const override { return graph_.stats().runner; }
  GroupedMinibatch grouped(SampleNumbers) override { refuse_graphs(); }
  std::vector<std::int64_t> history() const override { return numbers_of(random_); }
  void set_history(std::span<const std::int64_t> history) override { random_ = random_of(history); }

 private:
  const ParserNetwork& network_;
  const RunnerOptions options_;
  LazyGraph graph_;
  std::mt19937_64 random_;
};

std::unique_ptr<Learner> ParserNetwork::learner(const RunnerOptions& options) {
  return std::make_unique<ParserLearner>(*this, options);
}

Workload make_parsing(const WorkloadKind& kind, const Device& device, const WorkloadOptions& options) {
  const auto read = [](auto&&... from) { return read_conllu(from...); };
  Split<DependencySentence> split = make_split(kind, device, options, read, generate_conllu);
  const auto crossed =
      std::erase_if(split.training, [](const DependencySentence& sentence) { return !projective(sentence); });
  if (split.training.empty()) {
    const std::string from = options.data.empty() ? kind.name : files_of(kind, options.data).front().string();
    throw DataError(from + ": 0 of " + std::to_string(crossed) +
                    " training sentences are projective; expected at least 1");
  }
  auto parameters = std::make_unique<Parameters>(device, options.seed);
  VocabularySource source(options);
  DependencyVocabularies vocabularies = DependencyVocabularies::of(split.training);
  const auto take = [&](const char* name, Vocabulary& vocabulary) {
    vocabulary = source.get(name, [&] { return vocabulary; });
  };
  take("words", vocabularies.words);
  take("tags", vocabularies.tags);
  take("relations", vocabularies.relations);
  vocabularies.seen.resize(static_cast<std::size_t>(vocabularies.words.size()));  // of others only to be evaluated
  const DependencyParser parser(*parameters, std::move(vocabularies),
                                {.word = options.size("embedding"),
                                 .tag = options.size("tag-embedding"),
                                 .hidden = options.size("hidden"),
                                 .scorer = options.size("scorer"),
                                 .layers = options.size("layers")});
  auto network = std::make_unique<ParserNetwork>(device, *parameters, parser, options.seed);
  const auto counted = [&](const DependencySentence& sentence) -> Sample {
    const auto words = static_cast<std::int64_t>(sentence.heads.size());
    return {.units = 1, .vertices = parser.steps(words), .labels = words, .flops = parser.flops(words)};
  };
  Workload workload{
      .kind = &kind,
      .formula =
          "16 h (input + h) per word and layer, 16 h input for a first word, 16 h s per word including the "
          "root, 2 s actions per step",
      .parameters = std::move(parameters),
      .vocabularies = source.all()};
  for (const DependencySentence& sentence : split.training) {
    network->training.push_back(parser.numbered(sentence));
    workload.training.push_back(counted(sentence));
  }
  for (const DependencySentence& sentence : split.validation) workload.validation.push_back(counted(sentence));
  network->validation = std::move(split.validation);
  workload.network = std::move(network);
  return workload;
}

}  // namespace

WorkloadKind parser_kind() {
  return {.name = "parser",
          .about = "transition-based dependency parser, builds its graph step by step (Kiperwasser and Goldberg 2016)",
          .sample = "sentence",
          .unit = "sentences",
          .files = {"train.conllu", "dev.conllu", "test.conllu"},
          .sizes = {hidden(200),
                    embedding(100),
                    layers(1),
                    {"tag-embedding", "Tag embedding size", 25},
                    {"scorer", "Hidden size of the layer that scores the parser's actions", 100}},
          .cells = {},
          .graphs_known = false,
          .samples = 2048,
          .learning_rate = 0.04,
          .make = make_parsing};
}

}  // namespace windrow
