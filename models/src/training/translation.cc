// Parallel text as a workload: translation.
#include <algorithm>
#include <memory>
#include <optional>
#include <sstream>

#include "training/scores.h"
#include "training/splits.h"
#include "windrow/models/internal/parallel_text.h"
#include "windrow/models/seq2seq.h"

namespace windrow {
namespace {

using Pairs = std::vector<SentencePair>;

/// A word counts as known if it occurs twice, so that the model learns about unknown words.
constexpr std::int64_t seen_often = 2;
/// Longer pairs are left out of the training set: the memory for attention grows with the product of both lengths.
constexpr std::size_t longest_trained = 150;

Split<SentencePair> pairs_of(const Device& device, const WorkloadOptions& options) {
  if (options.data.empty()) {
    const auto generate = [](std::size_t samples, std::uint64_t seed, const char* name) {
      const ParallelText text = generate_parallel_text(samples, seed);
      std::istringstream source(text.source), target(text.target);
      return read_parallel_text(NamedText{source, name}, NamedText{target, name});
    };
    return validating(options, generate_split(options, generate));
  }
  const auto read = [&](const std::string& part, SampleSource& source) {
    Pairs pairs;
    const ParallelFiles files =
        find_parallel_text(options.data, part, {options.source_language, options.target_language});
    std::size_t blank = 0;
    run_in_op(device.engine, [&] { pairs = read_parallel_text(files.source, files.target, &blank); });
    source.files = {files.source, files.target};
    source.leave_out(blank, "blank on one side");
    return pairs;
  };
  Split<SentencePair> split;
  const std::string training = training_part(options), validation = validation_part(options);
  split.validation = read(validation, split.validation_source);
  if (options.validation_only) return split;
  split.training = read(training, split.training_source);
  std::error_code ignored;
  if (std::filesystem::equivalent(split.training_source.files[0], split.validation_source.files[0], ignored)) {
    throw DataError(options.data + ": the training set and the validation set are " + training +
                    ".LANGUAGE; expected two sets, by --train and --valid");
  }
  const std::size_t all = split.training.size();
  split.training_source.leave_out(
      std::erase_if(
          split.training,
          [](const SentencePair& pair) { return std::max(pair.source.size(), pair.target.size()) > longest_trained; }),
      "longer than " + std::to_string(longest_trained) + " words");
  if (!split.training.empty()) return split;
  throw DataError(options.data + ": all " + std::to_string(all) + " training sentences have more than " +
                  std::to_string(longest_trained) + " words; expected at least one that has not");
}

/// A sentence pair as numbers; the target with both marks.
struct Numbered {
  std::vector<std::int32_t> source, target;
};

/// The vocabularies of both languages.
struct Languages {
  SentenceVocabulary source, target;

  Languages(const Pairs& pairs, VocabularySource& from)
      : source(from.get("source", [&] { return source_vocabulary(pairs, seen_often); })),
        target(from.get("target", [&] { return target_vocabulary(pairs, seen_often); })) {}

  Numbered numbered(const SentencePair& pair) const {
    Numbered result{source.numbers(pair.source), target.numbers(pair.target)};
    result.target.insert(result.target.begin(), SentenceVocabulary::begin);
    result.target.push_back(SentenceVocabulary::end);
    return result;
  }
};

/// The translator, and the references for its translations.
struct Translation {
  Device device;
  Parameters& parameters;
  Seq2Seq model;
  Languages languages;
  Pairs references;  // the validation set
};

/// Three metrics: the perplexity; the share of target words, with end marks, that are predicted from the true words
/// before them; and the BLEU of greedy translations.
class TranslationScore final : public GraphScore {
 public:
  explicit TranslationScore(std::shared_ptr<const Translation> of) : of_(std::move(of)) {}

  std::function<void()> pending(const Minibatch& minibatch, std::vector<const LabelledGraph*> graphs) override {
    return [this, margin_of = minibatch.output("margin"), graphs = std::move(graphs)] {
      const std::vector<float> margins = margin_of.get();
      auto margin = margins.begin();
      std::vector<std::vector<std::int32_t>> sentences;
      for (const LabelledGraph* graph : graphs) {
        for (const std::int32_t label : graph->labels()) {
          words_ += label >= 0;
          right_ += label >= 0 && *margin == 0;
          ++margin;
        }
        sentences.push_back(of_->languages.source.numbers(of_->references[graph->number].source));
      }
      if (!translator_) translator_.emplace(of_->device, of_->parameters, of_->model);
      const auto found = translator_->translate(sentences);
      for (std::size_t i = 0; i < found.size(); ++i) {
        bleu_.add(of_->languages.target.words(found[i].front().words), of_->references[graphs[i]->number].target);
      }
    };
  }
  std::vector<Metric> metrics(double mean_loss) const override {
    return {perplexity_of(mean_loss),
            {"token accuracy", static_cast<double>(right_) / static_cast<double>(std::max<std::int64_t>(words_, 1))},
            {"BLEU", bleu_.score(), Metric::Unit::count}};
  }

 private:
  const std::shared_ptr<const Translation> of_;
  std::int64_t words_ = 0, right_ = 0;
  std::optional<Translator> translator_;
  Bleu bleu_;
};

std::string joined(const Sentence& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

constexpr std::size_t minibatch = 64;  // of typed sentences

std::vector<Prediction> translate(const Translation& with, std::span<const std::string> lines,
                                  const PredictOptions& options) {
  std::vector<std::vector<std::int32_t>> sentences;
  for (const std::string& line : lines) {
    const std::string name = "input " + std::to_string(options.first + sentences.size());
    sentences.push_back(with.languages.source.numbers(typed_words(line, name)));
  }
  Translator translator(with.device, with.parameters, with.model);
  std::vector<Prediction> predictions;
  for (std::span<const std::vector<std::int32_t>> left = sentences; !left.empty();) {
    const auto next = left.first(std::min(minibatch, left.size()));
    for (const auto& found : translator.translate(next, {.width = options.beam})) {
      const Hypothesis& best = found.front();
      predictions.push_back(
          {.text = Prediction::Text{joined(with.languages.target.words(best.words)), best.log_probability}});
    }
    left = left.subspan(next.size());
  }
  return predictions;
}

Workload make_translation(const WorkloadKind& kind, const Device& device, const WorkloadOptions& options) {
  Split<SentencePair> pairs = pairs_of(device, options);
  GraphWorkload made(kind, device, options,
                     "16 h e + 4 h^2 per source word, 16 h^2 per source word that follows another, 8 h e + 8 h^2 + "
                     "2 h vocabulary per step, 16 h^2 per step that follows another, 2 h per step and source word");
  const Languages languages(pairs.training, made.vocabularies);
  const Seq2Seq model(made.parameters(), {.source = languages.source.size(),
                                          .target = languages.target.size(),
                                          .embedding = options.size("embedding"),
                                          .hidden = options.size("hidden"),
                                          .dropout = options.dropout});
  const auto of =
      std::make_shared<const Translation>(Translation{device, made.parameters(), model, languages, pairs.validation});
  made.set_network(model.function(), [of] { return std::make_unique<TranslationScore>(of); });
  made.network->write = [of](std::span<const std::string> lines, const PredictOptions& how) {
    return translate(*of, lines, how);
  };
  constexpr std::size_t first = SentenceVocabulary::end + 1;
  const Vocabularies& words = made.vocabularies.all();
  const auto &source_words = words.at("source"), &target_words = words.at("target");
  made.workload.named_axes = {rows_of(made.parameters(), "source words", "source words", source_words, first),
                              rows_of(made.parameters(), "target words", "target words", target_words, first),
                              columns_of(made.parameters(), "head", "target words", target_words, first),
                              columns_of(made.parameters(), "head_bias", "target words", target_words, first)};
  return with_samples(std::move(made), std::move(pairs), [&](const SentencePair& pair) {
    const auto [source, target] = languages.numbered(pair);
    const auto steps = static_cast<std::int64_t>(target.size()) - 1;
    return Draft{Seq2Seq::graph(source, target), steps, model.flops(static_cast<std::int64_t>(source.size()), steps)};
  });
}

}  // namespace

WorkloadKind seq2seq_kind() {
  return {.name = "seq2seq",
          .about = "encoder and decoder with attention (Luong et al. 2015)",
          .sample = "sentence",
          .unit = "words",
          .files = {"train.LANGUAGE", "valid.LANGUAGE"},
          .other_names = {{}, {"val.LANGUAGE", "dev.LANGUAGE"}},
          .sizes = {hidden(64), embedding(64)},
          .takes_dropout = true,
          .translates = true,
          .samples = 4096,
          .input = "words, which are separated as in the training set; writes their translation",
          .learning_rate = 0.05,
          .make = make_translation};
}

}  // namespace windrow
