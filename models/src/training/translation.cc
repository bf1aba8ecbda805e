// Parallel text as a workload: translation.
#include <algorithm>
#include <sstream>

#include "training/making.h"
#include "training/scores.h"
#include "windrow/models/parallel_text.h"
#include "windrow/models/seq2seq.h"

namespace windrow {
namespace {

using Pairs = std::vector<SentencePair>;

/// A word counts as known if it occurs twice, so that something is learned about unknown ones.
constexpr std::int64_t seen_often = 2;
/// Longer pairs are left out of the training set: the memory for attention grows with the product of both lengths.
constexpr std::size_t longest_trained = 150;

Split<SentencePair> pairs_of(const Device& device, const WorkloadOptions& options) {
  if (options.data.empty()) {
    return generate_split(options, [](std::size_t samples, std::uint64_t seed, const char* name) {
      const ParallelText text = generate_parallel_text(samples, seed);
      std::istringstream source(text.source), target(text.target);
      return read_parallel_text(NamedText{source, name}, NamedText{target, name});
    });
  }
  const auto read = [&](const char* part) {
    Pairs pairs;
    const ParallelFiles files = find_parallel_text(options.data, part);
    run_in_op(device.engine, [&] { pairs = read_parallel_text(files.source, files.target); });
    return pairs;
  };
  Split<SentencePair> split{read("train"), read("valid")};
  const std::size_t all = split.training.size();
  std::erase_if(split.training, [](const SentencePair& pair) {
    return std::max(pair.source.size(), pair.target.size()) > longest_trained;
  });
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

/// The perplexity, and the share of the target words, end marks included, that are predicted from those before them.
class TranslationScore final : public GraphScore {
 public:
  void add(const Minibatch& minibatch, std::span<const LabelledGraph* const> graphs) override {
    perplexity_->add(minibatch, graphs);
    accuracy_->add(minibatch, graphs);
  }
  std::vector<Metric> metrics() const override {
    return {perplexity_->metrics().front(), accuracy_->metrics().front()};
  }

 private:
  const std::unique_ptr<GraphScore> perplexity_ = make_perplexity(), accuracy_ = make_accuracy("token accuracy");
};

Workload make_translation(const WorkloadKind& kind, const Device& device, const WorkloadOptions& options) {
  Split<SentencePair> pairs = pairs_of(device, options);
  VocabularySource vocabularies(options);
  const Languages languages(pairs.training, vocabularies);
  auto parameters = std::make_unique<Parameters>(device, options.seed);
  const Seq2Seq model(*parameters, {.source = languages.source.size(),
                                    .target = languages.target.size(),
                                    .embedding = options.size("embedding"),
                                    .hidden = options.size("hidden"),
                                    .dropout = options.dropout});
  GraphWorkload workload{.kind = kind,
                         .device = device,
                         .formula =
                             "16 h e + 4 h^2 per source word, 16 h^2 per source word that follows another, "
                             "8 h e + 6 h^2 + 2 h vocabulary per step, 16 h^2 per step that follows another",
                         .parameters = std::move(parameters),
                         .function = model.function(),
                         .score = [] { return std::make_unique<TranslationScore>(); },
                         .vocabularies = vocabularies.all()};
  return with_samples(std::move(workload), std::move(pairs), [&](const SentencePair& pair) {
    const auto [source, target] = languages.numbered(pair);
    const auto steps = static_cast<std::int64_t>(target.size()) - 1;
    return Draft{Seq2Seq::graph(source, target), steps, model.flops(static_cast<std::int64_t>(source.size()), steps)};
  });
}

}  // namespace

WorkloadKind seq2seq_kind() {
  return {.name = "seq2seq",
          .about = "encoder and decoder with attention; the source language is the first by alphabet (Luong et al. 2015)",
          .sample = "sentence",
          .unit = "words",
          .files = {"train.LANGUAGE", "valid.LANGUAGE"},
          .sizes = {hidden(64), embedding(64)},
          .cells = {},
          .takes_dropout = true,
          .samples = 4096,
          .learning_rate = 0.05,
          .make = make_translation};
}

}  // namespace windrow
