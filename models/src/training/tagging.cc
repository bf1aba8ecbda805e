// Sentences with tags as a workload: named entity recognition.
#include <algorithm>
#include <ranges>
#include <sstream>

#include "training/scores.h"
#include "training/splits.h"
#include "windrow/models/datasets.h"
#include "windrow/models/internal/tagger.h"

namespace windrow {
namespace {

using Sentences = std::vector<TaggedSentence>;

Vocabulary characters_of(const Sentences& sentences) {
  WordCounts counts;
  for (const std::string& word : all_of(sentences, &TaggedSentence::words)) {
    for (const std::string_view character : characters(word)) counts.add(character);
  }
  return Vocabulary(counts, 1);
}

/// Numbers of words, tags and characters, from the training set.
struct TagNumbering {
  static constexpr std::int64_t seen_often = 5;  // words that occur less often are rare

  Vocabulary words, tags, characters;

  TagNumbering(const Sentences& sentences, VocabularySource& from)
      : words(from.get("words", [&] { return Vocabulary(all_of(sentences, &TaggedSentence::words), seen_often); })),
        tags(from.get("tags", [&] { return Vocabulary(all_of(sentences, &TaggedSentence::tags), 1); })),
        characters(from.get("characters", [&] { return characters_of(sentences); })) {}

  /// By number; the name of unknown tags is empty. No model predicts it.
  std::vector<std::string> tag_names() const {
    std::vector<std::string> names = tags.words();
    names.insert(names.begin(), "");
    return names;
  }

  /// `rare` is the number that rare words get; if it is -1, they are read by their characters.
  TaggerInput input(const TaggedSentence& sentence, std::int32_t rare) const {
    TaggerInput input;
    for (std::size_t i = 0; i < sentence.words.size(); ++i) {
      const std::int32_t word = words.number(sentence.words[i]);
      input.words.push_back(word == Vocabulary::unknown ? rare : word);
      auto& of_word = input.characters.emplace_back();
      if (input.words[i] < 0) {
        for (const auto character : windrow::characters(sentence.words[i]))
          of_word.push_back(characters.number(character));
      }
      input.tags.push_back(tags.number(sentence.tags[i]));
    }
    return input;
  }
};

/// The axes besides that of the words.
std::vector<NamedAxis> axes_of_tagger(const Parameters& parameters, const TaggerSizes& sizes,
                                      const TagNumbering& numbering) {
  const std::vector<std::string> tags = numbering.tags.words();
  std::vector<NamedAxis> axes = {columns_of(parameters, "head", "tags", tags),
                                 columns_of(parameters, "head_bias", "tags", tags)};
  if (sizes.crf) {
    axes.push_back(rows_of(parameters, "crf transitions", "tags", tags));
    axes.push_back(columns_of(parameters, "crf transitions", "tags", tags));
    axes.push_back(columns_of(parameters, "crf start", "tags", tags));
    axes.push_back(rows_of(parameters, "crf stop", "tags", tags));
  }
  if (sizes.characters > 0) {
    axes.push_back(rows_of(parameters, "characters", "characters", numbering.characters.words()));
  }
  return axes;
}

/// Rare words are read by their characters if the kind has sizes for these; otherwise they are unknown.
Workload make_tagging(const WorkloadKind& kind, const Device& device, const WorkloadOptions& options) {
  auto sentences = make_split<TaggedSentence>(kind, device, options, {read_tagged_sentences, read_tagged_sentences},
                                              generate_tagged_sentences);
  GraphWorkload made(kind, device, options,
                     "8 h (input + h) per LSTM step, 8 h input for a first step, 4 h tags per word");
  const TagNumbering numbering(sentences.training, made.vocabularies);
  TaggerSizes sizes{.vocabulary = numbering.words.size(),
                    .tags = numbering.tags.size(),
                    .embedding = options.size("embedding"),
                    .hidden = options.size("hidden"),
                    .layers = options.size("layers"),
                    .dropout = options.dropout,
                    .crf = options.switches.contains("crf"),
                    .no_answers = Vocabulary::unknown + 1};
  if (options.sizes.contains("character-hidden")) {
    sizes.characters = numbering.characters.size();
    sizes.character_embedding = options.size("character-embedding");
    sizes.character_hidden = options.size("character-hidden");
  }
  const Tagger model(made.parameters(), sizes);
  const Answers answers = [model](const Minibatch& minibatch) { return model.pending_tags(minibatch); };
  std::vector<std::string> scored_tags = numbering.tag_names();
  scored_tags[Vocabulary::unknown] = "B-unknown";  // an entity that is never found
  made.set_network(model.function(), [scored_tags, answers] { return make_tagging_score(scored_tags, answers); });
  made.workload.embedding = embedding_of(made.parameters(), "words", numbering.words);
  made.workload.named_axes = axes_of_tagger(made.parameters(), sizes, numbering);
  const std::int32_t rare = sizes.characters > 0 ? -1 : Vocabulary::unknown;
  made.network->texts = GraphNetwork::Texts{
      .labels = numbering.tag_names(),
      .read =
          [numbering, model, rare](const std::string& line, const std::string& name) {
            TaggedSentence sentence{.words = typed_words(line, name)};
            sentence.tags.resize(sentence.words.size());
            GraphNetwork::Texts::Input input{.graph = model.graph(numbering.input(sentence, rare))};
            const auto& kinds = input.graph.kinds;
            const auto first = std::ranges::find(kinds, static_cast<std::int32_t>(model.tag_kind())) - kinds.begin();
            for (std::size_t i = 0; i < sentence.words.size(); ++i) {
              input.parts.push_back(static_cast<std::int32_t>(first) + static_cast<std::int32_t>(i));
            }
            input.texts_of_parts = [words = sentence.words] { return words; };
            return input;
          },
      .numbers = [model](const Minibatch& minibatch) { return model.tags(minibatch); }};
  return with_samples(std::move(made), std::move(sentences), [&](const TaggedSentence& sentence) {
    const TaggerInput input = numbering.input(sentence, rare);
    return Draft{model.graph(input), 1, model.flops(input)};
  });
}

WorkloadSwitch crf() { return {"crf", "Tag sentences as a whole, by a conditional random field"}; }

}  // namespace

constexpr const char* words_input =
    "words; labels each of them (with --crf all together, while probabilities are those of each word alone)";

WorkloadKind bilstm_kind() {
  return {.name = "bilstm",
          .about = "bidirectional LSTM tagger, recognises named entities (Neubig et al. 2017)",
          .sample = "sentence",
          .unit = "sentences",
          .files = {"all.txt"},
          .other_names = {{"aij-wikiner-*-wp3", "aij-wikiner-*-wp2"}},
          .sizes = {hidden(256), embedding(256), layers(1)},
          .switches = {crf()},
          .takes_dropout = true,
          .embeds_words = true,
          .samples = 2048,
          .input = words_input,
          .learning_rate = 0.1,
          .make = make_tagging};
}

WorkloadKind bilstm_char_kind() {
  WorkloadKind kind = bilstm_kind();
  kind.name = "bilstm-char";
  kind.about = "the same with a character-level LSTM for rare words";
  kind.sizes.push_back({"character-embedding", "Character embedding size", 64});
  kind.sizes.push_back({"character-hidden", "Hidden size of the character LSTM", 128});
  return kind;
}

}  // namespace windrow
