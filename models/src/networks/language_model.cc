// The language model, and text in pieces or by sentences as its workload.
#include "windrow/models/language_model.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <ranges>

#include "data/lines.h"
#include "training/scores.h"
#include "training/splits.h"
#include "windrow/models/datasets.h"

namespace windrow {
namespace {

std::optional<Parameter> head_of(Parameters& parameters, const LanguageModelSizes& sizes) {
  if (!sizes.tied) return parameters.add_product("head", sizes.hidden, sizes.vocabulary);
  if (sizes.embedding == sizes.hidden) return std::nullopt;
  throw MisuseError("tied words of width " + std::to_string(sizes.embedding) + " with hidden states of width " +
                    std::to_string(sizes.hidden) + "; expected one width");
}

}  // namespace

LanguageModel::LanguageModel(Parameters& parameters, LanguageModelSizes sizes)
    : sizes_(sizes),
      words_(parameters.add("words", sizes.vocabulary, sizes.embedding, Initial::uniform(-0.1f, 0.1f))),
      lstm_(parameters, "lstm", {sizes.embedding, sizes.hidden}),
      head_(head_of(parameters, sizes)),
      head_bias_(parameters.add("head_bias", 1, sizes.vocabulary, Initial::zeros())) {}

GraphData LanguageModel::graph(const std::vector<std::int32_t>& words) {
  GraphData data;
  auto &word = data.indices["word"], &label = data.indices["label"];
  for (std::size_t step = 0; step + 1 < words.size(); ++step) {
    if (step > 0) data.children.push_back(static_cast<std::int32_t>(step) - 1);
    data.child_begin.push_back(static_cast<std::int32_t>(data.children.size()));
    word.push_back(words[step]);
    label.push_back(words[step + 1]);
  }
  return data;
}

double LanguageModel::flops(std::int64_t steps) const {
  return lstm_.flops(steps) + 2 * static_cast<double>(sizes_.hidden * sizes_.vocabulary * steps);
}

namespace {

using Numbers = std::vector<std::int32_t>;

/// Numbers of words: 1 for the end of a sentence, 2 and higher for words. Words that are unknown or exceed the
/// vocabulary size count as "<unk>", which stands for rare words in Mikolov's Penn Treebank. If the text has no
/// "<unk>", their number is 0.
class WordNumbering {
 public:
  WordNumbering(Vocabulary words, Index size) : words_(std::move(words)), size_(size) { unknown_ = number("<unk>"); }

  static constexpr std::int32_t end = SentenceModel::end;

  void append(Numbers& numbers, const Sentence& sentence) const {
    for (const std::string& word : sentence) numbers.push_back(number(word));
    numbers.push_back(end);
  }
  std::int32_t number(std::string_view word) const { return knows(word) ? words_.number(word) + 1 : unknown_; }
  bool knows(std::string_view word) const {
    const std::int32_t number = words_.number(word);
    return number != Vocabulary::unknown && number + 1 < size_;
  }
  /// Words by number: the marks have none, and neither have unknown words without "<unk>".
  std::vector<std::string> words() const {
    std::vector<std::string> named(2);
    for (std::string& word : words_.words()) {
      if (static_cast<Index>(named.size()) == size_) break;
      named.push_back(std::move(word));
    }
    return named;
  }

  Vocabulary words_;
  Index size_;
  std::int32_t unknown_ = Vocabulary::unknown;
};

/// One sequence for each sentence. It begins with the end mark of a preceding sentence.
std::vector<Numbers> by_sentence(const std::vector<Sentence>& sentences, const WordNumbering& numbering) {
  std::vector<Numbers> sequences;
  for (const Sentence& sentence : sentences) {
    numbering.append(sequences.emplace_back(1, WordNumbering::end), sentence);
  }
  return sequences;
}

/// Joins all sentences and cuts the text into pieces of `steps` steps; drops the rest at the end.
std::vector<Numbers> in_pieces(const std::vector<Sentence>& sentences, const WordNumbering& numbering,
                               std::size_t steps) {
  Numbers text(1, WordNumbering::end);
  for (const Sentence& sentence : sentences) numbering.append(text, sentence);
  std::vector<Numbers> pieces;
  for (auto at = text.begin(); static_cast<std::size_t>(text.end() - at) > steps;) {
    const auto end = at + static_cast<std::ptrdiff_t>(steps);
    pieces.emplace_back(at, end + 1);  // the last word of a piece is also the first word of the next one
    at = end;
  }
  return pieces;
}

/// The number of words of a generated text, including line ends. A blank or a line end follows each word.
std::size_t words_of(const std::string& text) {
  const auto count = [&](char c) { return static_cast<std::size_t>(std::count(text.begin(), text.end(), c)); };
  return count(' ') + 2 * count('\n');
}

/// Generates text for at least `pieces` pieces.
std::string generate_pieces(std::size_t pieces, std::size_t steps, std::uint64_t seed) {
  constexpr std::size_t words = 20;  // per sentence; the mean with the end mark is 22
  for (std::size_t sentences = 1 + pieces * steps / words;; sentences *= 2) {
    std::string text = generate_sentences(sentences, seed);
    if (words_of(text) >= pieces * steps) return text;  // if there are few sentences, all may be short
  }
}

Split<Sentence> text_of(const WorkloadKind& kind, const Device& device, const WorkloadOptions& options,
                        std::size_t steps) {
  const auto generate = [&](std::size_t samples, std::uint64_t seed) {
    return steps == 0 ? generate_sentences(samples, seed) : generate_pieces(samples, steps, seed);
  };
  return make_split<Sentence>(kind, device, options, {read_sentences, read_sentences}, generate);
}

[[noreturn]] void refuse_short(const std::filesystem::path& file, const std::vector<Sentence>& text,
                               std::size_t steps) {
  std::size_t words = 0;
  for (const Sentence& sentence : text) words += sentence.size() + 1;
  throw DataError(file.string() + ": " + std::to_string(words) + " words including sentence ends; expected at least " +
                  std::to_string(steps) + ", the length of a piece");
}

/// A language model that reads and writes texts.
class LanguageTexts {
 public:
  LanguageTexts(const Device& device, Parameters& parameters, const LanguageModel& model, WordNumbering numbering)
      : device_(device),
        parameters_(parameters),
        model_(model),
        numbering_(std::move(numbering)),
        words_(numbering_.words()) {}

  std::vector<Prediction> score(std::span<const std::string> lines, const PredictOptions& options) {
    if (options.beam != 1) {
      throw MisuseError("a beam of " + std::to_string(options.beam) + "; expected 1, because the model scores texts");
    }
    std::vector<Prediction> predictions;
    std::vector<Numbers> read;
    for (const std::string& line : lines) {
      Prediction::Likelihood likelihood{.tokens = 1, .unknown = 0, .log_probability = 0};
      Numbers& numbers = read.emplace_back();
      for (const Token& word : tokens(line)) {
        numbers.push_back(numbering_.number(word.text));
        likelihood.unknown += !numbering_.knows(word.text);
        ++likelihood.tokens;
      }
      if (numbers.empty()) {
        throw DataError("input " + std::to_string(options.first + predictions.size()) +
                        ": no word; expected a sentence");
      }
      predictions.push_back({.likelihood = likelihood});
    }
    const std::vector<double> scores = sentences().score(read);
    for (std::size_t i = 0; i < scores.size(); ++i) predictions[i].likelihood->log_probability = scores[i];
    return predictions;
  }
  std::vector<std::string> sample(const std::string& start, const SamplingOptions& options) {
    Numbers numbers;
    std::string begin;
    for (const Token& word : tokens(start)) {
      numbers.push_back(numbering_.number(word.text));
      begin += (begin.empty() ? "" : " ") + std::string(word.text);
    }
    std::vector<std::string> texts;
    for (const Numbers& drawn : sentences().sample(numbers, options)) {
      std::string& text = texts.emplace_back(begin);
      for (const std::int32_t word : drawn) {
        text += (text.empty() ? "" : " ") + words_[static_cast<std::size_t>(word)];
      }
    }
    return texts;
  }

 private:
  SentenceModel& sentences() {
    if (!sentences_) sentences_.emplace(device_, parameters_, model_, static_cast<std::int32_t>(words_.size()));
    return *sentences_;
  }

  const Device device_;
  Parameters& parameters_;
  const LanguageModel model_;
  const WordNumbering numbering_;
  const std::vector<std::string> words_;
  std::optional<SentenceModel> sentences_;  // made by the first call, for its plans
};

/// Cuts text into pieces if size "steps" is given, otherwise by sentences.
Workload make_language_model(const WorkloadKind& kind, const Device& device, const WorkloadOptions& options) {
  const std::size_t steps = options.sizes.contains("steps") ? static_cast<std::size_t>(options.size("steps")) : 0;
  const Index vocabulary = options.size("vocabulary");
  if (vocabulary < 2) {
    throw MisuseError(kind.name + ": vocabulary " + std::to_string(vocabulary) + "; expected at least 2");
  }
  Split<Sentence> text = text_of(kind, device, options, steps);
  GraphWorkload made(kind, device, options, "8 h e + 2 h vocabulary per word, 8 h^2 per word that follows another");
  const Vocabulary words =
      made.vocabularies.get("words", [&] { return Vocabulary(text.training | std::views::join, 1); });
  const WordNumbering numbering(words, vocabulary);
  const auto sequences = [&](const std::vector<Sentence>& part) {
    return steps == 0 ? by_sentence(part, numbering) : in_pieces(part, numbering, steps);
  };
  Split<Numbers> split{sequences(text.training), sequences(text.validation), std::move(text.training_source),
                       std::move(text.validation_source)};
  if (split.training.empty() && !options.validation_only) {
    refuse_short(files_of(kind, options).training, text.training, steps);
  }
  if (options.data.empty()) split.training.resize(std::min(split.training.size(), options.samples));
  const LanguageModel model(made.parameters(), {.vocabulary = vocabulary,
                                                .embedding = options.size("embedding"),
                                                .hidden = options.size("hidden"),
                                                .dropout = options.dropout,
                                                .tied = options.switches.contains("tied")});
  made.set_network(model.function(), make_perplexity);
  const auto texts = std::make_shared<LanguageTexts>(device, made.parameters(), model, numbering);
  made.network->write = [texts](std::span<const std::string> lines, const PredictOptions& how) {
    return texts->score(lines, how);
  };
  made.network->sample = [texts](const std::string& start, const SamplingOptions& how) {
    return texts->sample(start, how);
  };
  constexpr std::size_t first = WordNumbering::end + 1;
  made.workload.embedding = embedding_of(made.parameters(), "words", words, first);
  made.workload.named_axes = {columns_of(made.parameters(), "head_bias", "words", words.words(), first)};
  if (!options.switches.contains("tied")) {
    made.workload.named_axes.push_back(columns_of(made.parameters(), "head", "words", words.words(), first));
  }
  return with_samples(std::move(made), std::move(split), [&](const Numbers& sequence) {
    const auto length = static_cast<std::int64_t>(sequence.size()) - 1;
    return Draft{LanguageModel::graph(sequence), length, model.flops(length)};
  });
}

WorkloadSize vocabulary(Index preset) { return {"vocabulary", "Vocabulary size", preset}; }

}  // namespace

WorkloadKind var_lstm_kind() {
  return {.name = "var-lstm",
          .about = "LSTM language model over sentences (Neubig et al. 2017)",
          .sample = "sentence",
          .unit = "words",
          .files = {"train.txt", "valid.txt"},
          // Of Mikolov's Penn Treebank, and of WikiText.
          .other_names = {{"ptb.train.txt", "wiki.train.tokens"}, {"ptb.valid.txt", "wiki.valid.tokens"}},
          .sizes = {hidden(256), embedding(256), vocabulary(10'000)},
          .switches = {{"tied", "Classify words by the table of their embeddings"}},
          .takes_dropout = true,
          .embeds_words = true,
          .samples_texts = true,
          .samples = 2048,
          .input = "words, which are separated as in the training set; scores the sentence",
          .learning_rate = 0.1,
          .make = make_language_model};
}

WorkloadKind fixed_lstm_kind() {
  WorkloadKind kind = var_lstm_kind();
  kind.name = "fixed-lstm";
  kind.about = "LSTM language model over text pieces of equal length (Xu et al. 2018)";
  kind.sample = "piece";
  kind.sizes = {hidden(512), embedding(512), vocabulary(10'000), {"steps", "Words per piece of text", 64}};
  kind.samples = 512;
  kind.learning_rate = 0.05;
  return kind;
}

}  // namespace windrow
