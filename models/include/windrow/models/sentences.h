// Sentences: plain, or with a tag for each word; read from text or generated.
//
//   no it was n't black monday                     plain: words of a line, as in Mikolov's Penn Treebank
//   Founding|O member|O Kojima|I-PER Minoru|I-PER  tagged: as in WikiNER (Nothman et al. 2012)
#pragma once
#include "windrow/engine/requirements.h"

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "windrow/models/vocabulary.h"

namespace windrow {

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
/// to 1/(r + 1.8) (Zipf). It can be learned: half of the words are one of four preferred successors of the word before.
/// The same seed gives the same text; the language is the same for all seeds.
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

}  // namespace windrow
