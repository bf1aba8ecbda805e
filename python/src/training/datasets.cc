// Readers of treebanks, and vocabularies.
#include "windrow/models/datasets.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <fstream>
#include <sstream>

#include "batching/graphs.h"

namespace windrow::python {
namespace {

/// The trees of a treebank of brackets.
struct Treebank {
  std::vector<LabelledTree> trees;
};
/// The sentences of CoNLL-U.
struct DependencyTreebank {
  std::vector<DependencySentence> sentences;
};

/// A vocabulary, with its words in the order of their numbers.
struct VocabularyObject {
  explicit VocabularyObject(Vocabulary of) : vocabulary(std::move(of)), words(vocabulary.words()) {}
  Vocabulary vocabulary;
  std::vector<std::string> words;
};

/// Calls `read` with the path of a file, or with a stream of the text. Exactly one of them must be given.
template <class Read>
auto read_from(const std::optional<std::string>& path, const std::optional<std::string>& text, const Read& read) {
  if (path.has_value() == text.has_value()) throw MisuseError("no path and no text, or both; expected one of them");
  const WithoutGil without_gil;
  if (path) return read(std::filesystem::path(*path));
  std::istringstream in(*text);
  return read(in, std::string("text"));
}

/// The place of an element of a sequence; negative numbers count from its end.
std::size_t place_in(std::int64_t number, std::size_t size, const char* what) {
  const auto count = static_cast<std::int64_t>(size);
  const std::int64_t place = number < 0 ? number + count : number;
  if (place >= 0 && place < count) return static_cast<std::size_t>(place);
  throw nb::index_error((std::string(what) + " " + std::to_string(number) + "; expected " + std::to_string(-count) +
                         " to " + std::to_string(count - 1))
                            .c_str());
}

/// The elements of a slice.
template <class T>
std::vector<T> sliced(const std::vector<T>& all, const nb::slice& which) {
  auto [begin, end, step, count] = which.compute(all.size());
  std::vector<T> taken;
  for (std::size_t i = 0; i < count; ++i, begin += step) taken.push_back(all[static_cast<std::size_t>(begin)]);
  return taken;
}

/// The numbers of the words of a sentence.
std::vector<std::int32_t> numbers_of(const std::vector<std::string>& words, const Vocabulary& vocabulary,
                                     std::size_t count) {
  std::vector<std::int32_t> numbers;
  for (std::size_t w = 0; w < count; ++w) numbers.push_back(vocabulary.number(words[w]));
  return numbers;
}

GraphsObject graphs_of_trees(const Treebank& of, const VertexFunction& function, const Vocabulary& words) {
  const WithoutGil without_gil;
  GraphData data;
  return graphs_of(function, of.trees.size(),
                   [&](std::size_t t) -> const GraphData& { return data = numbered(of.trees[t], words); });
}

/// A tree as nested tuples: (label, left, right), and (label, word).
nb::object nested(const LabelledTree& tree) {
  const std::vector<std::int32_t>& labels = tree.graph.indices.at("label");
  std::vector<nb::object> made(tree.words.size());  // children precede their parents
  for (std::size_t v = 0; v < made.size(); ++v) {
    nb::list parts;
    parts.append(labels[v]);
    const auto begin = static_cast<std::size_t>(tree.graph.child_begin[v]);
    const auto end = static_cast<std::size_t>(tree.graph.child_begin[v + 1]);
    for (std::size_t c = begin; c < end; ++c) parts.append(made[static_cast<std::size_t>(tree.graph.children[c])]);
    if (begin == end) parts.append(tree.words[v]);
    made[v] = nb::tuple(parts);
  }
  return made.empty() ? nb::tuple() : made.back();
}

struct DependencyInputs {
  const VocabularyObject *words, *tags, *relations;
};

GraphData dependencies(const DependencySentence& sentence, const DependencyInputs& inputs, bool enhanced) {
  GraphData data;
  if (!enhanced) {
    data = dependency_tree(sentence);
  } else {
    data =
        inputs.relations == nullptr ? enhanced_graph(sentence) : enhanced_graph(sentence, inputs.relations->vocabulary);
  }
  const std::size_t count = data.child_begin.size() - 1;
  if (inputs.words != nullptr) data.indices["word"] = numbers_of(sentence.forms, inputs.words->vocabulary, count);
  if (inputs.tags != nullptr) data.indices["tag"] = numbers_of(sentence.tags, inputs.tags->vocabulary, count);
  if (inputs.relations != nullptr && !enhanced) {
    data.indices["relation"] = numbers_of(sentence.relations, inputs.relations->vocabulary, count);
  }
  return data;
}

GraphsObject graphs_of_sentences(const DependencyTreebank& of, const VertexFunction& function,
                                 const DependencyInputs& inputs, bool enhanced) {
  const WithoutGil without_gil;
  GraphData data;
  return graphs_of(function, of.sentences.size(), [&](std::size_t s) -> const GraphData& {
    return data = dependencies(of.sentences[s], inputs, enhanced);
  });
}

/// The vocabulary of one column of the sentences, such as their forms.
VocabularyObject vocabulary_of_sentences(const DependencyTreebank& of, std::int64_t at_least,
                                         std::vector<std::string> DependencySentence::*words) {
  WordCounts counts;
  for (const DependencySentence& sentence : of.sentences) {
    for (const std::string& word : sentence.*words) counts.add(word);
  }
  return VocabularyObject(Vocabulary(counts, at_least));
}

void bind_vocabulary(nb::module_& m) {
  using nb::literals::operator""_a;
  nb::class_<VocabularyObject>(m, "Vocabulary",
                               "Numbers for words, tags or characters, from 1 in the order of their first occurrences. "
                               "0 stands for all unknown words. vocabulary['cat'] is a number.")
      .def(
          "__init__",
          [](VocabularyObject* self, nb::handle words, std::int64_t at_least) {
            WordCounts counts;
            for (const nb::handle word : nb::iter(words)) counts.add(nb::cast<std::string>(word));
            new (self) VocabularyObject(Vocabulary(counts, at_least));
          },
          "words"_a, "at_least"_a = 1, nb::sig("def __init__(self, words: Iterable[str], at_least: int = 1) -> None"),
          "Numbers the words that occur at least `at_least` times.")
      .def("__len__", [](const VocabularyObject& of) { return of.vocabulary.size(); })
      .def(
          "__getitem__", [](const VocabularyObject& of, const std::string& word) { return of.vocabulary.number(word); },
          "word"_a, "The number of a word; 0 if it is unknown.")
      .def(
          "__contains__",
          [](const VocabularyObject& of, const std::string& word) { return of.vocabulary.number(word) != 0; }, "word"_a)
      .def(
          "__iter__", [](const VocabularyObject& of) { return nb::iter(nb::cast(of.words)); },
          nb::sig("def __iter__(self) -> Iterator[str]"), "The words in the order of their numbers, from number 1 on.")
      .def(
          "word",
          [](const VocabularyObject& of, std::int64_t number) -> std::string {
            if (number == Vocabulary::unknown) return "";
            if (number < 0 || of.vocabulary.size() <= number) {
              throw nb::index_error(
                  ("word " + std::to_string(number) + "; expected 0 to " + std::to_string(of.vocabulary.size() - 1))
                      .c_str());
            }
            return of.words[static_cast<std::size_t>(number - 1)];
          },
          "number"_a, "The word of a number; '' for 0, which stands for all unknown words.")
      .def(
          "__reduce__",
          [](nb::handle self) {
            return nb::make_tuple(self.type(), nb::make_tuple(nb::cast(nb::cast<const VocabularyObject&>(self).words)));
          },
          nb::sig("def __reduce__(self) -> tuple[type[Self], tuple[list[str]]]"))
      .def(
          "numbers",
          [](const VocabularyObject& of, const std::vector<std::string>& words) {
            return numbers_of(words, of.vocabulary, words.size());
          },
          "words"_a, "The number of each word of a list; 0 for those that are unknown.")
      .def_ro("words", &VocabularyObject::words, "The words in the order of their numbers, from number 1 on.")
      .def("__repr__", [](const VocabularyObject& of) {
        return "<windrow.Vocabulary of " + counted(of.words.size(), "word", "words") + ">";
      });
}

}  // namespace

void bind_datasets(nb::module_& m) {
  using nb::literals::operator""_a;
  bind_vocabulary(m);
  nb::class_<Treebank>(m, "Treebank",
                       "Sentences as binary trees with a label from 0 to 4 at every vertex, as those of the Stanford "
                       "Sentiment Treebank: (3 (2 It) (4 works)) on a line. Raises DataError, naming the line, for "
                       "malformed text.")
      .def(
          "__init__",
          [](Treebank* self, const std::optional<std::string>& path, const std::optional<std::string>& text) {
            new (self) Treebank{read_from(path, text, [](auto&&... from) { return read_treebank(from...); })};
          },
          "path"_a = nb::none(), nb::kw_only(), "text"_a = nb::none())
      .def("__len__", [](const Treebank& of) { return of.trees.size(); })
      .def(
          "words",
          [](const Treebank& of, std::int64_t tree) { return of.trees[place_in(tree, of.trees.size(), "tree")].words; },
          "tree"_a, "The word of each vertex; empty for vertices with children.")
      .def(
          "_nested",
          [](const Treebank& of, std::int64_t tree) {
            return nested(of.trees[place_in(tree, of.trees.size(), "tree")]);
          },
          "tree"_a, nb::sig("def _nested(self, tree: int) -> tuple[Any, ...]"))
      .def(
          "vocabulary",
          [](const Treebank& of, std::int64_t at_least) { return VocabularyObject(vocabulary_of(of.trees, at_least)); },
          "at_least"_a = 1, "The vocabulary of the words that occur at least `at_least` times.")
      .def(
          "with_two_labels", [](const Treebank& of) { return Treebank{with_two_labels(of.trees)}; },
          "The binary task: labels 0 and 1, and -1 for neutral ones. Drops trees whose root is neutral.")
      .def(
          "_graphs",
          [](const Treebank& of, const VertexFunction& function, const VocabularyObject& words) {
            return graphs_of_trees(of, function, words.vocabulary);
          },
          "function"_a, "words"_a);
  nb::class_<DependencySentence>(m, "DependencySentence", "A sentence of CoNLL-U. Words are numbered from 1.")
      .def_ro("forms", &DependencySentence::forms, "The forms of words, then of empty nodes.")
      .def_ro("tags", &DependencySentence::tags, "Parts of speech (column UPOS), likewise.")
      .def_ro("heads", &DependencySentence::heads, "The number of each word's head; 0 is the root.")
      .def_ro("relations", &DependencySentence::relations, "The relation of each word to its head.")
      .def("__repr__", [](const DependencySentence& of) {
        std::string text;
        for (std::size_t w = 0; w < of.forms.size() && text.size() < 60; ++w) text += (w > 0 ? " " : "") + of.forms[w];
        return "<windrow.DependencySentence of " + counted(of.heads.size(), "word", "words") + ": " + text + ">";
      });
  nb::class_<DependencyTreebank>(m, "DependencyTreebank",
                                 "The sentences of a file or text in CoNLL-U, which may be compressed (.gz). Raises "
                                 "DataError, naming the line, for malformed text.")
      .def(
          "__init__",
          [](DependencyTreebank* self, const std::optional<std::string>& path, const std::optional<std::string>& text) {
            new (self) DependencyTreebank{read_from(path, text, [](auto&&... from) { return read_conllu(from...); })};
          },
          "path"_a = nb::none(), nb::kw_only(), "text"_a = nb::none())
      .def("__len__", [](const DependencyTreebank& of) { return of.sentences.size(); })
      .def(
          "__getitem__",
          [](const DependencyTreebank& of, std::int64_t sentence) {
            return of.sentences[place_in(sentence, of.sentences.size(), "sentence")];
          },
          "sentence"_a)
      .def(
          "__getitem__",
          [](const DependencyTreebank& of, const nb::slice& which) { return sliced(of.sentences, which); }, "which"_a,
          nb::sig("def __getitem__(self, which: Slice) -> list[DependencySentence]"))
      .def(
          "vocabulary",
          [](const DependencyTreebank& of, const std::string& what, std::int64_t at_least) {
            if (what == "words") return vocabulary_of_sentences(of, at_least, &DependencySentence::forms);
            if (what == "tags") return vocabulary_of_sentences(of, at_least, &DependencySentence::tags);
            if (what == "relations") return vocabulary_of_sentences(of, at_least, &DependencySentence::relations);
            throw MisuseError("vocabulary of '" + what + "'; expected 'words', 'tags' or 'relations'");
          },
          "what"_a = "words", "at_least"_a = 1,
          nb::sig("def vocabulary(self, what: Literal['words', 'tags', 'relations'] = 'words', at_least: int = 1) "
                  "-> Vocabulary"),
          "The vocabulary of 'words', 'tags' or 'relations'.")
      .def(
          "_graphs",
          [](const DependencyTreebank& of, const VertexFunction& function, const VocabularyObject* words,
             const VocabularyObject* tags, const VocabularyObject* relations, bool enhanced) {
            return graphs_of_sentences(of, function, {words, tags, relations}, enhanced);
          },
          "function"_a, "words"_a.none(), "tags"_a.none(), "relations"_a.none(), "enhanced"_a);
}

}  // namespace windrow::python
