// Dependency treebanks as a workload of the transition parser, which builds the graph of a sentence step by step.
#include <algorithm>
#include <map>
#include <sstream>

#include "training/splits.h"
#include "windrow/models/datasets.h"
#include "windrow/models/dependency_parser.h"

namespace windrow {
namespace {

using Treebank = std::vector<DependencySentence>;

class ParserNetwork final : public Network {
 public:
  ParserNetwork(const Device& device, Parameters& parameters, DependencyParser parser)
      : device_(device), parameters_(parameters), parser_(std::move(parser)) {}

  std::unique_ptr<Learner> learner(const RunnerOptions& options) override;
  std::vector<Prediction> predict(std::span<const std::string> lines, const PredictOptions& options) override;
  std::int64_t fingerprint() const override;

  std::vector<DependencyParser::Sentence> training;
  Treebank validation;
  std::map<std::string, std::string> usual_tags;  ///< by word

 private:
  DependencySentence typed_sentence(const std::string& line, const std::string& name) const;
  std::string usual_tag(const std::string& word) const {
    const auto usual = usual_tags.find(word);
    return usual == usual_tags.end() ? "" : usual->second;
  }

  class ParserLearner;
  class Attachment;

  const Device device_;
  Parameters& parameters_;
  const DependencyParser parser_;
};

std::int64_t ParserNetwork::fingerprint() const {
  std::string all;
  for (const DependencyParser::Sentence& one : training) {
    for (const auto* column : {&one.words, &one.tags, &one.heads, &one.relations}) add_fingerprint(all, *column);
  }
  for (const DependencySentence& one : validation) {
    for (const auto* column : {&one.forms, &one.tags, &one.relations}) {
      for (const std::string& text : *column) all += text + '\n';
      all += '\n';
    }
    add_fingerprint(all, one.heads);
  }
  return windrow::fingerprint(all);
}

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
      : network_(network), options_(options), graph_(network.device_, network.parameters_, {.runner = options}) {}

  Loss differentiate(SampleNumbers numbers) override {
    std::vector<LazyTask<DependencyParser::Learned>> tasks;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const std::uint64_t seed = network_.parameters_.sample_seed(i);
      tasks.push_back(network_.parser_.learn(graph_, network_.training[numbers[i]], seed));
    }
    double loss = 0;
    std::vector<LazyExpr> losses;
    for (DependencyParser::Learned& learned : run(graph_, std::move(tasks))) {
      loss += learned.loss;
      losses.insert(losses.end(), learned.losses.begin(), learned.losses.end());
    }
    if (losses.empty()) {
      network_.parameters_.begin_minibatch();  // it has no gradients, and keeps the gradients of earlier parts
    } else {
      graph_.backward(losses);
    }
    graph_.clear();
    return [loss] { return loss; };
  }
  std::unique_ptr<Score> score() override { return std::make_unique<Attachment>(network_, options_); }
  RunnerStats stats() const override { return graph_.stats().runner; }
  void forget() override { graph_.forget(); }

 private:
  const ParserNetwork& network_;
  const RunnerOptions options_;
  LazyGraph graph_;
};

std::unique_ptr<Learner> ParserNetwork::learner(const RunnerOptions& options) {
  return std::make_unique<ParserLearner>(*this, options);
}

/// Whether a text consists of lines in CoNLL-U.
bool is_conllu(const std::string& text) {
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with('#')) return is_conllu_line(line);
  }
  return false;
}

DependencySentence sentence_of_conllu(const std::string& text, const std::string& name) {
  std::istringstream in(text);
  std::vector<DependencySentence> sentences = read_unparsed_conllu(in, name);
  if (sentences.size() == 1) return std::move(sentences.front());
  throw DataError(name + ": " + std::to_string(sentences.size()) + " sentences in CoNLL-U; expected one");
}

/// A sentence in CoNLL-U, or of words, some or all as word|TAG. A word without a tag gets the one that it mostly has in
/// training.
DependencySentence ParserNetwork::typed_sentence(const std::string& line, const std::string& name) const {
  DependencySentence sentence;
  if (is_conllu(line)) {
    sentence = sentence_of_conllu(line, name);
    for (std::size_t i = 0; i < sentence.forms.size(); ++i) {
      if (sentence.tags[i] == "_") sentence.tags[i] = usual_tag(sentence.forms[i]);
    }
    return sentence;
  }
  std::istringstream in(line);
  for (std::string word; in >> word;) {
    const std::size_t bar = word.rfind('|');
    const bool tagged = bar != std::string::npos && bar > 0;
    std::string tag = tagged ? word.substr(bar + 1) : "";
    if (tagged && tag.empty()) throw DataError(name + ": '" + word + "' has no tag; expected word|TAG");
    if (tagged) word.resize(bar);
    if (!tagged) tag = usual_tag(word);
    sentence.forms.push_back(word);
    sentence.tags.push_back(tag);
  }
  if (sentence.forms.empty()) throw DataError(name + ": no word; expected a sentence");
  sentence.heads.resize(sentence.forms.size());
  sentence.relations.resize(sentence.forms.size());
  return sentence;
}

std::vector<Prediction> ParserNetwork::predict(std::span<const std::string> lines, const PredictOptions& options) {
  refuse_beam(options);
  Treebank sentences;
  for (const std::string& line : lines) {
    sentences.push_back(typed_sentence(line, "input " + std::to_string(options.first + sentences.size())));
  }
  LazyGraph graph(device_, parameters_, {.use = LazyOptions::For::inference});
  const std::vector<DependencyTree> trees = parser_.parse(graph, sentences);
  std::vector<Prediction> predictions(lines.size());
  for (std::size_t s = 0; s < sentences.size(); ++s) {
    for (std::size_t i = 0; i < sentences[s].forms.size(); ++i) {
      predictions[s].words.push_back(
          {sentences[s].forms[i], sentences[s].tags[i], trees[s].heads[i], trees[s].relations[i]});
    }
  }
  return predictions;
}

/// For each word of the vocabulary, the tag that it has most often; of several, the first in the alphabet.
std::vector<std::string> usual_tags_of(const Treebank& treebank, const Vocabulary& words) {
  std::map<std::string, std::map<std::string, int>> counts;
  for (const DependencySentence& sentence : treebank) {
    for (std::size_t i = 0; i < sentence.heads.size(); ++i) ++counts[sentence.forms[i]][sentence.tags[i]];
  }
  const auto rarer = [](const auto& one, const auto& other) { return one.second < other.second; };
  std::vector<std::string> tags;
  for (const std::string& word : words.words()) {
    const auto& of_word = counts[word];
    tags.push_back(of_word.empty() ? "" : std::max_element(of_word.begin(), of_word.end(), rarer)->first);
  }
  return tags;
}

/// The axes of actions: see Parser::action().
std::vector<NamedAxis> axes_of_parser(const Parameters& parameters, const Vocabularies& vocabularies) {
  std::vector<std::string> actions;
  for (const std::string& relation : vocabularies.at("relations")) {
    for (const char* const way : {"left ", "right "}) actions.push_back(way + relation);
  }
  return {rows_of(parameters, "tags", "tags", vocabularies.at("tags")),
          columns_of(parameters, "out", "actions", actions), columns_of(parameters, "out_bias", "actions", actions)};
}

Workload make_parsing(const WorkloadKind& kind, const Device& device, const WorkloadOptions& options) {
  auto split = make_split<DependencySentence>(kind, device, options, {read_conllu, read_conllu}, generate_conllu);
  const auto crossed =
      std::erase_if(split.training, [](const DependencySentence& sentence) { return !projective(sentence); });
  split.training_source.leave_out(crossed, "not projective");
  if (split.training.empty() && !options.validation_only) {
    const std::string from = options.data.empty() ? kind.name : split.training_source.files.front().string();
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
  const std::vector<std::string> known = vocabularies.words.words();
  const std::vector<std::string> usual =
      source.list("usual tags", [&] { return usual_tags_of(split.training, vocabularies.words); });
  vocabularies.seen.resize(static_cast<std::size_t>(vocabularies.words.size()));  // 0 for other sources: only evaluated
  const Vocabulary vocabulary_of_words = vocabularies.words;
  const DependencyParser parser(*parameters, std::move(vocabularies),
                                {.word = options.size("embedding"),
                                 .tag = options.size("tag-embedding"),
                                 .hidden = options.size("hidden"),
                                 .scorer = options.size("scorer"),
                                 .layers = options.size("layers")});
  auto network = std::make_unique<ParserNetwork>(device, *parameters, parser);
  for (std::size_t i = 0; i < std::min(known.size(), usual.size()); ++i) network->usual_tags[known[i]] = usual[i];
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
      .vocabularies = source.all(),
      .training_source = std::move(split.training_source),
      .validation_source = std::move(split.validation_source)};
  workload.embedding = embedding_of(*workload.parameters, "words", vocabulary_of_words);
  workload.named_axes = axes_of_parser(*workload.parameters, workload.vocabularies);
  workload.named_axes.push_back(rows_of(*workload.embedding));
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
          .files = {"train.conllu", "dev.conllu"},
          .other_names = {{"*-ud-train.conllu"}, {"*-ud-dev.conllu"}},
          .sizes = {hidden(200),
                    embedding(100),
                    layers(1),
                    {"tag-embedding", "Tag embedding size", 25},
                    {"scorer", "Hidden size of the layer that scores the parser's actions", 100}},
          .embeds_words = true,
          .graphs_known = false,
          .samples = 2048,
          .input =
              "words, each with its tag as word|TAG or alone, or sentences in CoNLL-U; finds their heads and "
              "relations, as CoNLL-U",
          .learning_rate = 0.04,
          .make = make_parsing};
}

}  // namespace windrow
