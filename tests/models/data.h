// Shared by tests of data: texts, folders with them, and the messages with which readers refuse them.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "tests/engine/support.h"
#include "tests/folder.h"
#include "windrow/models/datasets.h"

namespace windrow::testing {

/// A new folder with the given texts by file name.
struct TextFolder : TestFolder {
  explicit TextFolder(const std::map<std::string, std::string>& texts) {
    for (const auto& [file, text] : texts) std::ofstream(path / file) << text;
  }
};

template <class Read>
std::string refusal(Read read) {
  return error_of<DataError>(read);
}

/// What a reader of streams makes of a text, which is named "text".
template <class T>
std::vector<T> parsed(std::vector<T> (*read)(std::istream&, const std::string&), const std::string& text) {
  std::istringstream in(text);
  return read(in, "text");
}

/// A text that a reader refuses, and what it says behind the name of the text.
struct BadText {
  std::string text, error;
};

/// Expects that the reader refuses each text.
template <class T>
void expect_refused(std::vector<T> (*read)(std::istream&, const std::string&), const std::vector<BadText>& texts) {
  for (const BadText& bad : texts) {
    EXPECT_EQ(refusal([&] { parsed(read, bad.text); }), "text:" + bad.error) << bad.text;
  }
}

/// Expects that readers of files name what is missing, and what is no file.
template <class Read>
void expect_no_file_refused(Read read, const std::string& what) {
  const std::filesystem::path folder = ::testing::TempDir(), none = folder / "none";
  EXPECT_EQ(refusal([&] { read(none); }), none.string() + ": no such file; expected a file of " + what);
  EXPECT_EQ(refusal([&] { read(folder); }), folder.string() + ": not a regular file; expected a file of " + what);
}

}  // namespace windrow::testing
