// Data: readers of the formats in which data sets are published, and generators of such data. Start here.
//
//   sentences     plain, or with a tag for each word    trees      the Stanford Sentiment Treebank
//   operations    ListOps                               CoNLL-U    dependency treebanks
//   images        as of MNIST                           vocabularies: numbers for words, tags or characters
//
// Readers throw DataError.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "windrow/batching/graph.h"
#include "windrow/engine/error.h"

namespace windrow {

class Record;

// Vocabularies: numbers for words, tags or characters. And the exception that readers of data throw.
//
//   windrow::Vocabulary words(sentences | std::views::join, 5);
//   std::int32_t number = words.number("cat");

/// Thrown for malformed or missing data. The text is one line: the file, the line and column where known (in bytes,
/// from 1), what is wrong, and what was expected.
class DataError : public Error {
 public:
  using Error::Error;
};

/// Counts of words, in the order of their first occurrences. Empty words are not counted. A value.
class WordCounts {
 public:
  void add(std::string_view word);

 private:
  friend class Vocabulary;
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
  };
  using Numbers = std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>>;

  Numbers place_;                                             // index into counts_
  std::vector<std::pair<std::string, std::int64_t>> counts_;  // each word with its count
};

/// Maps words to numbers. A value, whose copies share memory; const members may be called from any thread. A vocabulary
/// that was moved from can only be assigned to or destroyed.
class Vocabulary {
 public:
  /// The number of all unknown words; they share one, so that something can be learned about them.
  static constexpr std::int32_t unknown = 0;

  /// A vocabulary of the words that occur at least `at_least` times (values below 1 count as 1). They are numbered from
  /// 1 in the order of their first occurrences, so the same text gives the same numbers.
  Vocabulary(const WordCounts& counts, std::int64_t at_least);
  /// The same from any range of strings.
  template <std::ranges::input_range Words>
  requires std::convertible_to<std::ranges::range_reference_t<Words>, std::string_view> Vocabulary(
      Words&& words, std::int64_t at_least)
      : Vocabulary(counts_of(std::forward<Words>(words)), at_least) {}

  /// A vocabulary of words that words() returned, numbered from 1 on. Throws MisuseError for an empty word, or one that
  /// occurs twice.
  explicit Vocabulary(const std::vector<std::string>& words);

  /// The words in the order of their numbers.
  std::vector<std::string> words() const;
  /// For the document of a checkpoint (checkpoint.h), and back. A checkpoint with a word that is not UTF-8 cannot be
  /// written. of() throws FileError for another record.
  Record record() const;
  static Vocabulary of(const Record& record);
  /// The numbers are 0 to size() - 1, including that of unknown words.
  std::int32_t size() const { return static_cast<std::int32_t>(numbers_->size()) + 1; }
  /// The word's number, or `unknown`.
  std::int32_t number(std::string_view word) const;

 private:
  template <class Words>
  static WordCounts counts_of(Words&& words) {
    WordCounts counts;
    for (auto&& word : words) counts.add(word);
    return counts;
  }

  std::shared_ptr<const WordCounts::Numbers> numbers_;
};

/// Divides a word into its characters, which are UTF-8 code points: an accented letter is one character, however many
/// bytes it takes. A byte outside of a valid code point is a character by itself, so any text can be divided.
std::vector<std::string_view> characters(std::string_view word);

// Sentences: plain, or with a tag for each word; read from text or generated.
//
//   no it was n't black monday                     plain: words of a line, as in Mikolov's Penn Treebank
//   Founding|O member|O Kojima|I-PER Minoru|I-PER  tagged: as in WikiNER (Nothman et al. 2012)

using Sentence = std::vector<std::string>;

/// Reads one sentence per line, of words separated by blanks. Words are not interpreted, not even "<unk>" and "N".
/// Blank lines and a byte order mark are ignored. Throws DataError if the stream cannot be read, has no sentence,
/// begins like a compressed or another binary file, or has a NUL byte. Errors mention `name`.
std::vector<Sentence> read_sentences(std::istream& in, const std::string& name);
/// The same from a file. Throws DataError also if it is not a regular file or cannot be opened.
std::vector<Sentence> read_sentences(const std::filesystem::path& file);

struct TaggedSentence {
  Sentence words = {};
  std::vector<std::string> tags = {};  ///< one for each word
};

/// As read_sentences, for words of the form word|TAG, or word|POS|TAG in a line in which all have that form; parts of
/// speech are ignored. Words are divided from the right, so they may contain bars. Throws DataError also for a word
/// without a tag.
std::vector<TaggedSentence> read_tagged_sentences(std::istream& in, const std::string& name);
std::vector<TaggedSentence> read_tagged_sentences(const std::filesystem::path& file);

/// Generates the text of sentences of an artificial language, as long as those of the Penn Treebank: 21 words on
/// average, at most 75. It has 10,000 words, including "<unk>" and "N"; the frequency of the r-th is about proportional
/// to 1/(r + 1.8) (Zipf). A model can learn it: half of the words are one of four preferred successors of the word
/// before. The same seed gives the same text; the language is the same for all seeds.
std::string generate_sentences(std::size_t sentences, std::uint64_t seed);

/// Generates the text of tagged sentences, as long as those of WikiNER (23 words on average), with the same share of
/// words in names (16 %), of four kinds. Other words end with a vowel or are a full stop; the first word of a sentence
/// is capitalised, as names are. Names are rare, most of them occur once, and they end with a consonant. Their tags can
/// be learned:
///
///   -son, -mir    I-PER     -en    I-LOC after "bu", otherwise I-PER
///   -ton, -land   I-LOC     "Group", "Union" and "Corp", and the name before them, are I-ORG
///   -ish, -ot     I-MISC
std::string generate_tagged_sentences(std::size_t sentences, std::uint64_t seed);

// Treebanks: sentences as binary trees with a label at every vertex; read from text or generated.
//
// The text format is that of the Stanford Sentiment Treebank (Socher et al. 2013), one tree per line: a label from 0 to
// 4, then a word or two trees.
//
//   (3 (2 It) (4 works))

/// The number of labels: 0 (very negative) to tree_labels - 1 (very positive).
inline constexpr std::int32_t tree_labels = 5;

/// A sentence. Children precede their parents, so the root is the last vertex.
struct LabelledTree {
  GraphData graph = {};                 ///< the children, and the index "label"
  std::vector<std::string> words = {};  ///< of each vertex; empty for vertices with children
};

/// Reads all trees. Blank lines and a byte order mark are ignored. Throws DataError if the stream cannot be read, if
/// there is no tree, or if one is malformed. Errors mention `name`.
std::vector<LabelledTree> read_treebank(std::istream& in, const std::string& name);
/// The same from a file. Throws DataError also if it is not a regular file or cannot be opened.
std::vector<LabelledTree> read_treebank(const std::filesystem::path& file);

/// The binary task (Socher et al. 2013): labels become 0 for negative and 1 for positive ones, and vertices with the
/// neutral label have none (-1). Drops trees whose root is neutral.
std::vector<LabelledTree> with_two_labels(std::vector<LabelledTree> trees);

/// Generates the text of a treebank that resembles the Stanford one. Trees have similar numbers of words, and vertices
/// divide them similarly, so depths and the numbers of vertices per level are similar, too. A model can learn its
/// labels: a word is good, bad or neutral, or it negates or intensifies the phrase after it, and a vertex's label
/// follows from its children. The same seed gives the same text.
std::string generate_treebank(std::size_t trees, std::uint64_t seed);

/// The vocabulary of the words that occur at least `at_least` times in these trees. With 2, words that occur once count
/// as unknown, so that a model learns about unknown words.
Vocabulary vocabulary_of(const std::vector<LabelledTree>& trees, std::int64_t at_least = 1);
/// The tree's graph with the additional index "word": the number of the word, -1 for vertices without one.
GraphData numbered(const LabelledTree& tree, const Vocabulary& vocabulary);

// ListOps (Nangia and Bowman 2018): nested operations on digits; the value of each list is a digit. Read from text or
// generated.
//
//   6<tab>( ( ( ( [MAX 2 ) 1 ) ( ( ( [MIN 6 ) 8 ) ] ) ) ] )      as published
//   6<tab>[MAX 2 1 [MIN 6 8 ] ]                                  the same without round brackets

/// Maximum, minimum, median (of an even number of arguments: the mean of the middle two, rounded down), and sum modulo
/// 10.
inline constexpr std::array<std::string_view, 4> listops_operators = {"MAX", "MIN", "MED", "SM"};
/// The number of symbols: a digit's symbol is the digit, an operator's is 10 plus its position in listops_operators.
inline constexpr std::int32_t listops_symbols = 14;
/// Labels are the values 0 to 9.
inline constexpr std::int32_t listops_labels = 10;

/// Applies an operator to its arguments. Preconditions: `symbol` is that of an operator, and there is at least one
/// argument.
std::int32_t listops_value(std::int32_t symbol, std::span<const std::int32_t> arguments);

/// A tree with a vertex for each digit and each list. Children precede their consumers, so the root is the last vertex;
/// the children of a list are its arguments, in order.
struct ListOpsTree {
  GraphData graph = {};    ///< children, and the indices "symbol" and "label"
  std::int32_t value = 0;  ///< the label of the root
};

/// Reads one tree per line. Its value and a tab may precede it. A tab and its value may also follow it, as in Long
/// Range Arena (Tay et al. 2021), whose first line names the columns. Round brackets, which the published data put
/// around the beginnings of lists, are ignored, but must match. Blank lines and a byte order mark are ignored. Throws
/// DataError if the stream cannot be read, if there is no tree, or if a tree is malformed or does not have the stated
/// value. Errors mention `name`.
std::vector<ListOpsTree> read_listops(std::istream& in, const std::string& name);
/// The same from a file. Throws DataError also if it is not a regular file or cannot be opened.
std::vector<ListOpsTree> read_listops(const std::filesystem::path& file);

/// The shape of generated trees. The defaults are as published.
struct ListOpsShape {
  int max_arguments = 5;  ///< of a list, which has at least 2; 2 to 10
  int max_depth = 20;     ///< vertices on the path from the root to a digit; 2 to 20
};

/// Generates the text of trees, drawn as by the authors' program: an argument is a list with probability 1/4; numbers
/// of arguments and operators are uniformly distributed; no tree occurs twice, unless hardly any others are left. Since
/// there are few small trees, they are rarer in larger data sets: 100,000 trees have 34 vertices on average, up to some
/// hundreds. Unlike with that program, no tree is a single digit. The same seed gives the same text. Throws MisuseError
/// for a shape out of range.
std::string generate_listops(std::size_t trees, std::uint64_t seed, const ListOpsShape& shape = {});

// Dependency treebanks in CoNLL-U, the format of Universal Dependencies (de Marneffe et al. 2021): read from text or
// generated, and converted to input graphs of vertex functions.
//
//   1  they  _  PRON  _  _  2  nsubj  2:nsubj|4:nsubj  _   one line per word, of ten fields separated by tabs,
//   2  sat   _  VERB  _  _  0  root   0:root           _   and a blank line after each sentence
//   ...

/// A dependency: its head and relation. The dependent is given by the context.
struct Arc {
  std::int32_t head;
  std::string relation = {};
  friend bool operator==(const Arc&, const Arc&) = default;
};

/// A sentence. Words are numbered from 1; head 0 is the root. Empty nodes are words that the sentence omits ("I go to
/// Rome and you [go] to Paris"). They follow the words in the lists: they have a form and a tag, but take part in
/// enhanced dependencies only. The number of words is heads.size().
struct DependencySentence {
  std::vector<std::string> forms = {},
                           tags = {};       ///< of words, then of empty nodes; the tags are those of the column UPOS
  std::vector<std::int32_t> heads = {};     ///< of words; they form a tree with one root
  std::vector<std::string> relations = {};  ///< of words to their heads
  std::vector<std::vector<Arc>> enhanced =
      {};  ///< of words, then of empty nodes, as the column DEPS has them; may be none
};

/// Reads all sentences. Ignores comments, lines of ranges such as 1-2 (whose words follow), fields that
/// DependencySentence does not have, a byte order mark, and extra blank lines. Throws DataError if the stream cannot be
/// read, if there is no sentence, and for malformed or misordered lines. Also throws it for heads that do not exist,
/// words that are their own head, and basic dependencies that are not a tree. Errors mention `name`.
std::vector<DependencySentence> read_conllu(std::istream& in, const std::string& name);
/// The same from a file, which may be compressed (.gz). Throws DataError also if it is not a regular file or cannot be
/// opened.
std::vector<DependencySentence> read_conllu(const std::filesystem::path& file);
/// The same for sentences that are to be parsed: heads, relations, enhanced dependencies and empty nodes are ignored,
/// and fields may be _. All heads are 0, and all relations empty.
std::vector<DependencySentence> read_unparsed_conllu(std::istream& in, const std::string& name);
/// Whether a line is one of a word in CoNLL-U: ten fields separated by tabs, of which the first begins with a digit.
bool is_conllu_line(std::string_view line);

/// Whether the basic dependencies are projective: no two of them cross when drawn above the sentence, including the one
/// from the root, which stands before the first word. Transition systems that do not reorder words can build projective
/// trees only.
bool projective(const DependencySentence& sentence);

/// The graph of the basic dependencies: a vertex for each word, from 0, whose children are its dependents from left to
/// right.
GraphData dependency_tree(const DependencySentence& sentence);

/// The graph of the enhanced dependencies: a vertex for each word and empty node; a dependent is a child of each of its
/// heads once. Enhanced dependencies may contain cycles, as in "the story that comes", where the story is the subject
/// of the clause that describes it. A depth-first walk from the root, and then from vertices that it has not reached,
/// in the order of words, drops the arcs that lead back to its path.
GraphData enhanced_graph(const DependencySentence& sentence);
/// The same, with the number of each relation as edge index "relation". If a head has several relations to one
/// dependent, the first one counts.
GraphData enhanced_graph(const DependencySentence& sentence, const Vocabulary& relations);

/// Generates the text of projective sentences from a small grammar, 12 words on average. The same seed gives the same
/// text. A model can learn it. A form has one tag. A verb's form determines whether it takes an object or another verb.
/// A preposition's form determines whether it attaches to the noun or to the verb before it. Enhanced dependencies have
/// no cycles. In them conjuncts share heads, and verbs share subjects, so one word in twenty has several heads.
std::string generate_conllu(std::size_t sentences, std::uint64_t seed);

// Labelled grey images, as of MNIST: read from IDX files or generated.
//
//   train-images-idx3-ubyte, train-labels-idx1-ubyte     the names of the published files (LeCun et al. 1998), without
//   t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte       the extension of their compression

inline constexpr std::int64_t most_pixels_a_side = 4096;

/// Images of one size. A value.
struct LabelledImages {
  std::int64_t height = 0, width = 0;
  std::vector<std::uint8_t> pixels = {};  ///< image by image, row by row; 0 is the background, 255 full ink
  std::vector<std::uint8_t> labels = {};  ///< one for each image

  std::size_t size() const { return labels.size(); }
  std::span<const std::uint8_t> image(std::size_t number) const {
    const auto each = static_cast<std::size_t>(height * width);
    return std::span(pixels).subspan(number * each, each);
  }
};

/// A file in the IDX format: a matrix of bytes, or of fewer or more dimensions. Errors mention `name`.
struct NamedBytes {
  std::istream& in;
  std::string name;
};

/// Reads images (three dimensions) and their labels (one dimension). Throws DataError if a file cannot be read, if its
/// length differs from its header, if its elements are not bytes or its dimensions differ, or if it contains no image.
/// Also throws it for an image over 4096 pixels a side, if there are not as many labels as images, and for a label
/// above 9.
LabelledImages read_idx(NamedBytes images, NamedBytes labels);
/// The same from files. Throws DataError also if one is not a regular file or cannot be opened.
LabelledImages read_idx(const std::filesystem::path& images, const std::filesystem::path& labels);

/// Writes both files of read_idx().
void write_idx(const LabelledImages& images, std::ostream& to_images, std::ostream& to_labels);

/// Generates images of 28 x 28 pixels of the digits 0 to 9, all equally frequent: strokes that are moved, scaled,
/// slanted, bent and of varying thickness, with noise. The same seed gives the same images.
LabelledImages generate_digits(std::size_t count, std::uint64_t seed);

}  // namespace windrow
