// The messages with which readers refuse data.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "windrow/models/vocabulary.h"

namespace windrow {

template <class Read>
std::string refusal(Read read) {
  try {
    read();
  } catch (const DataError& error) {
    return error.what();
  }
  return "was read";
}

/// A text that a reader refuses, and what it says behind the name of the text.
struct BadText {
  std::string text, error;
};

/// Expects that read(text) refuses each text; `name` is the begin of each message.
template <class Read>
void expect_refused(const std::string& name, Read read, const std::vector<BadText>& texts) {
  for (const BadText& bad : texts) {
    EXPECT_EQ(refusal([&] { read(bad.text); }), name + bad.error) << bad.text;
  }
}

/// Expects that readers of files name what is missing, and what is no file.
template <class Read>
void expect_no_file_refused(Read read, const std::string& what) {
  const std::filesystem::path folder = ::testing::TempDir(), none = folder / "none";
  EXPECT_EQ(refusal([&] { read(none); }), none.string() + ": no such file; expected a file of " + what);
  EXPECT_EQ(refusal([&] { read(folder); }), folder.string() + ": not a regular file; expected a file of " + what);
}

}  // namespace windrow
