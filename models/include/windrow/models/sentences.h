// Sentences: words one behind the other, plain or each with a tag, read from text or generated.
//
//   no it was n't black monday                     plain: a line of words, as in Mikolov's Penn Treebank
//   Founding|O member|O Kojima|I-PER Minoru|I-PER  tagged: as in WikiNER (Nothman et al. 2012)
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "windrow/models/data_error.h"

namespace windrow {

using Sentence = std::vector<std::string>;

/// Reads a sentence a line, of words between blanks, which are taken as they are: "<unk>" and "N" too. Blank lines are
/// passed over, and so is a byte order mark. Throws DataError if there is no sentence; `name` is said in errors.
std::vector<Sentence> read_sentences(std::istream& in, const std::string& name);
/// Throws DataError also if it is no file, or one that cannot be read.
std::vector<Sentence> read_sentences(const std::filesystem::path& file);

struct TaggedSentence {
  Sentence words = {};
  std::vector<std::string> tags = {};  ///< one for each word
};

/// The same of word|TAG. The tag is what follows the last bar, and the word what is before the first that it does not
/// begin with; a part of speech between them, as in word|POS|TAG, is passed over. Throws DataError too for a word
/// without a tag.
std::vector<TaggedSentence> read_tagged_sentences(std::istream& in, const std::string& name);
std::vector<TaggedSentence> read_tagged_sentences(const std::filesystem::path& file);

/// The text of sentences of a made-up language, as long as those of the Penn Treebank: 21 words in the mean, up to 75.
/// Of its 10,000 words, "<unk>" and "N" among them, the r-th is about 1/(r + 1.8) as frequent as all (Zipf). What can
/// be learned: half of the words are one of four that like to follow the one before. The same seed gives the same text,
/// and all seeds speak one language.
std::string generate_sentences(std::size_t sentences, std::uint64_t seed);

/// The text of tagged sentences, as long as those of WikiNER, 23 words in the mean, in which as many words belong to
/// names: 16 %, of four kinds. Other words end with a vowel, or are a full stop; the first of a sentence has a capital
/// letter like a name. Names are rare, most of them seen once, and end with a consonant; what tags them can be learned:
///
///   -son, -mir    I-PER     -en    I-LOC behind "bu", else I-PER
///   -ton, -land   I-LOC     and whatever is before "Group", "Union" or "Corp" is I-ORG with it
///   -ish, -ot     I-MISC
std::string generate_tagged_sentences(std::size_t sentences, std::uint64_t seed);

}  // namespace windrow
