// Word vectors in text, such as pre-trained ones: the formats of GloVe (Pennington et al. 2014) and of word2vec
// (Mikolov et al. 2013).
//
//   the 0.418 0.24968 -0.41242 ...      a word and its numbers, separated by spaces or tabs, on each line
//   400000 300                          word2vec: a first line with the number of words, and of numbers per word
//
//   windrow::WordVectors found = windrow::set_word_vectors(workload, "glove.6B.300d.txt");
//   std::cout << found.rows << " of " << found.of << " words\n";
#pragma once
#include "windrow/engine/requirements.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "windrow/models/vocabulary.h"
#include "windrow/models/workload.h"

namespace windrow {

/// Which vectors are read, and into what.
struct WordVectorTable {
  std::size_t width;         ///< numbers per word, at least 1
  std::span<float> numbers;  ///< row after row
  /// The row of a word, or -1 if its vector is not wanted.
  std::function<std::int64_t(std::string_view word)> row_of;
  /// Called now and then with the bytes that were read; may be empty.
  std::function<void(std::uint64_t bytes)> progress = {};
};

/// What was read. A value.
struct WordVectors {
  std::int64_t words = 0;           ///< in the file
  std::int64_t rows = 0;            ///< of the table that were set
  std::int64_t of = 0;              ///< rows that stand for a word; set_word_vectors() only
  std::int64_t left_out = 0;        ///< lines that are no vectors
  std::string first_left_out = {};  ///< what is wrong with the first of them, with its place
  /// The number of words in the file by its first line, if that says so. It is wrong if a file was shortened.
  std::optional<std::int64_t> announced = {};
};

/// Reads a file line by line, in memory for one line. Rows whose word the file lacks keep their numbers. If a word
/// occurs twice, its first vector counts. The last `width` fields of a line are its numbers, and what precedes them is
/// the word, which may contain blanks, and in published files may be a blank, a tab or a NUL byte. The word of the
/// first line must not end in a number, since too many numbers there are those of a wider table. Throws DataError,
/// which names the line, if the first line is no vector of that width: if it has no finite decimal numbers, or too few
/// or too many. Later lines that are no vectors are left out and counted.
WordVectors read_word_vectors(std::istream& in, const std::string& name, const WordVectorTable& table);
/// The same from a file, which may be compressed (.gz), or a pipe. Throws DataError also if it is another kind of file
/// or cannot be opened.
WordVectors read_word_vectors(const std::filesystem::path& file, const WordVectorTable& table);

/// Sets the rows of the workload's word embedding whose words occur in the file. Call it before training. Throws
/// MisuseError if the workload has none, and DataError as read_word_vectors() does; the embedding is unchanged then.
WordVectors set_word_vectors(Workload& workload, const std::filesystem::path& file,
                             const std::function<void(std::uint64_t bytes)>& progress = {});

/// Writes the rows of the workload's word embedding that stand for a word, in the format of word2vec and as a whole
/// (whole_file.h). set_word_vectors() reads the same bits. Waits for the steps pushed so far. Returns the number of
/// words. Throws MisuseError if the workload embeds no words, OpError if a step failed, and FileError.
std::int64_t save_word_vectors(const Workload& workload, const std::filesystem::path& file);

}  // namespace windrow
