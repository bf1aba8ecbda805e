#include "windrow/models/internal/tagger.h"

#include <algorithm>
#include <initializer_list>
#include <span>

namespace windrow {
namespace {

std::vector<Lstm> words_of(Parameters& parameters, const TaggerSizes& sizes) {
  std::vector<Lstm> lstms;
  for (Index layer = 0; layer < sizes.layers; ++layer) {
    const Index from = layer == 0 ? sizes.embedding : 2 * sizes.hidden;
    for (const char* direction : {"forward ", "backward "}) {
      lstms.emplace_back(parameters, direction + std::to_string(layer + 1), Lstm::Sizes{from, sizes.hidden});
    }
  }
  return lstms;
}

bool forward(std::size_t kind) { return kind % 2 == 0; }

/// The graph of a sentence. Vertices are ordered by kind, then by word; this includes the tags and the end. The
/// characters of each word come last, forward and backward.
class SentenceGraph {
 public:
  /// Kinds of vertices.
  struct Kinds {
    std::size_t tag, first_character;
    bool has_path() const { return first_character == tag + 3; }
  };
  SentenceGraph(const TaggerInput& input, const Kinds& kinds)
      : input_(input), kinds_(kinds), tag_(kinds.tag), words_(count(input.words)) {
    std::int32_t next = place(tag_ + 1, 0) + (kinds.has_path() ? 1 : 0);
    for (const auto& characters : input.characters) {
      characters_of_.push_back(next);
      next += 2 * count(characters);
    }
  }

  GraphData make() {
    for (std::size_t kind = 0; kind < tag_; ++kind) add_words(kind);
    for (std::int32_t word = 0; word < words_; ++word) add_tag(word);
    if (kinds_.has_path() && words_ > 0) add(tag_ + 2, {place(tag_, words_ - 1)}, {.last_label = input_.tags.back()});
    for (const auto& characters : input_.characters) add_characters(characters);
    return std::move(data_);
  }

 private:
  /// The inputs of a vertex; -1 for none.
  struct Inputs {
    std::int32_t word = -1, character = -1, label = -1, label_before = -1, last_label = -1;
  };

  static std::int32_t count(const std::vector<std::int32_t>& list) { return static_cast<std::int32_t>(list.size()); }
  /// The vertex of that kind and word.
  std::int32_t place(std::size_t kind, std::int32_t word) const {
    return static_cast<std::int32_t>(kind) * words_ + word;
  }

  void add(std::size_t kind, std::initializer_list<std::int32_t> children, const Inputs& inputs) {
    data_.kinds.push_back(static_cast<std::int32_t>(kind));
    data_.children.insert(data_.children.end(), children);
    data_.child_begin.push_back(static_cast<std::int32_t>(data_.children.size()));
    data_.indices["word"].push_back(inputs.word);
    data_.indices["character"].push_back(inputs.character);
    data_.indices["label"].push_back(inputs.label);
    if (!kinds_.has_path()) return;
    data_.indices["label before"].push_back(inputs.label_before);
    data_.indices["last label"].push_back(inputs.last_label);
  }

  void add_tag(std::int32_t word) {
    const std::int32_t forward = place(tag_ - 2, word), backward = place(tag_ - 1, word);
    const auto at = static_cast<std::size_t>(word);
    if (word == 0 || !kinds_.has_path()) return add(tag_, {forward, backward}, {.label = input_.tags[at]});
    add(tag_ + 1, {forward, backward, place(tag_, word - 1)},
        {.label = input_.tags[at], .label_before = input_.tags[at - 1]});
  }

  void add_words(std::size_t kind) {
    for (std::int32_t word = 0; word < words_; ++word) {
      const std::int32_t next_to = forward(kind) ? word - 1 : word + 1;
      const std::int32_t before = next_to < 0 || next_to == words_ ? no_child : place(kind, next_to);
      const std::size_t layer = kind - kind % 2;
      if (layer > 0) {
        add(kind, {before, place(layer - 2, word), place(layer - 1, word)}, {});
      } else {
        add_word(kind, word, before);
      }
    }
  }

  void add_word(std::size_t kind, std::int32_t word, std::int32_t before) {
    const auto at = static_cast<std::size_t>(word);
    if (input_.words[at] >= 0) return add(kind, {before}, {.word = input_.words[at]});
    const std::int32_t first = characters_of_[at], behind = first + count(input_.characters[at]);
    add(kind, {before, behind - 1, behind}, {});  // joins the ends of both directions
  }

  void add_characters(const std::vector<std::int32_t>& characters) {
    std::int32_t here = count(data_.kinds);
    for (std::size_t i = 0; i < characters.size(); ++i, ++here) {
      add(kinds_.first_character, {i == 0 ? no_child : here - 1}, {.character = characters[i]});
    }
    for (std::size_t i = 0; i < characters.size(); ++i, ++here) {
      add(kinds_.first_character + 1, {i + 1 == characters.size() ? no_child : here + 1}, {.character = characters[i]});
    }
  }

  const TaggerInput& input_;
  const Kinds kinds_;
  const std::size_t tag_;
  const std::int32_t words_;
  std::vector<std::int32_t> characters_of_;  // of each word, the first vertex
  GraphData data_;
};

}  // namespace

Tagger::Tagger(Parameters& parameters, TaggerSizes sizes)
    : sizes_(sizes),
      word_table_(parameters.add("words", sizes.vocabulary, sizes.embedding, Initial::uniform(-0.1f, 0.1f))),
      words_(words_of(parameters, sizes)),
      head_(parameters.add_product("head", 2 * sizes.hidden, sizes.tags)),
      head_bias_(parameters.add("head_bias", 1, sizes.tags, Initial::zeros())) {
  if (sizes.crf) crf_.emplace(parameters, "crf", sizes.tags);
  if (sizes.characters == 0) return;
  const Index e = sizes.character_embedding, h = sizes.character_hidden;
  character_table_ = parameters.add("characters", sizes.characters, e, Initial::uniform(-0.1f, 0.1f));
  for (const char* direction : {"forward", "backward"}) {
    const std::string name(direction);
    characters_.emplace_back(parameters, name + " character", Lstm::Sizes{e, h});
    spelled_.push_back(parameters.add_product(name + " spelled", 2 * h, 4 * sizes.hidden));
  }
}

VertexFunction Tagger::function() const {
  std::vector<VertexFunction> kinds;
  const auto add = [&](const std::string& name, std::size_t arity) {
    const std::size_t kind = kinds.size();
    kinds.emplace_back(name, VertexFunction::Shape{arity}, [&](Vertex& v) { (*this)(v, kind); });
  };
  for (std::size_t kind = 0; kind < tag(); ++kind) {
    const bool looks_below = kind >= 2 || !characters_.empty();
    add((forward(kind) ? "forward " : "backward ") + std::to_string(kind / 2 + 1), looks_below ? 3 : 1);
  }
  add("tag", 2);
  if (crf_) {
    add("next tag", 3);
    add("end", 1);
  }
  if (!characters_.empty()) {
    add("character forward", 1);
    add("character backward", 1);
  }
  return VertexFunction("tagger", kinds);
}

GraphData Tagger::graph(const TaggerInput& input) const {
  return SentenceGraph(input, {tag(), first_character()}).make();
}

std::vector<std::int32_t> Tagger::tags(const Minibatch& minibatch) const { return pending_tags(minibatch)(); }

std::function<std::vector<std::int32_t>()> Tagger::pending_tags(const Minibatch& minibatch) const {
  if (!crf_) {
    return [logits_of = minibatch.output("logits"), tags = sizes_.tags, no_answers = sizes_.no_answers] {
      const std::vector<float> logits = logits_of.get();
      std::vector<std::int32_t> result;
      for (auto row = logits.begin(); row != logits.end(); row += tags) {
        result.push_back(static_cast<std::int32_t>(std::max_element(row + no_answers, row + tags) - row));
      }
      return result;
    };
  }
  return [last_of = minibatch.output("last"), came_from_of = minibatch.output("came from"),
          width = static_cast<std::size_t>(sizes_.tags)] {
    const std::vector<float> last = last_of.get(), came_from = came_from_of.get();
    std::vector<std::int32_t> result(last.size(), no_tag);
    for (std::size_t end = 0; end < last.size(); ++end) {
      std::int32_t tag = static_cast<std::int32_t>(last[end]) - 1;  // no_tag for vertices that end nothing
      for (std::size_t v = end; tag != no_tag;) {
        result[--v] = tag;
        tag = Crf::before(std::span(came_from).subspan(v * width, width), tag);
      }
    }
    return result;
  };
}

double Tagger::flops(const TaggerInput& input) const {
  const auto words = static_cast<std::int64_t>(input.words.size());
  std::int64_t read = 0, characters = 0;
  for (const auto& of_word : input.characters) {
    read += !of_word.empty();
    characters += static_cast<std::int64_t>(of_word.size());
  }
  double sum = 4 * static_cast<double>(sizes_.hidden * sizes_.tags * words);
  for (const Lstm& lstm : words_) sum += lstm.flops(words);
  for (const Lstm& lstm : characters_) sum += lstm.flops(characters, read);
  // In the first layer, words that are read by characters have inputs of width 2 * character_hidden.
  const Index width = 2 * sizes_.character_hidden - sizes_.embedding;
  return sum + 2 * 8 * static_cast<double>(sizes_.hidden * width * read);
}

}  // namespace windrow
