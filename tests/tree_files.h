// The files of the source tree, for tests that read it.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace windrow::testing {

namespace fs = std::filesystem;
inline const fs::path root = WINDROW_SOURCE_DIR;

inline std::vector<std::string> lines_of(const fs::path& file) {
  std::ifstream in(file);
  EXPECT_TRUE(in) << "cannot read " << file;
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

inline std::string text_of(const fs::path& file) {
  std::string text;
  for (const std::string& line : lines_of(file)) text += line + '\n';
  return text;
}

inline std::vector<fs::path> sources_of(const std::string& folder) {
  std::vector<fs::path> result;
  for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
    const std::string ending = entry.path().extension();
    if (ending == ".h" || ending == ".cc" || ending == ".cu") result.push_back(entry.path());
  }
  return result;
}

/// All pages, in Markdown.
inline std::vector<fs::path> documents() {
  std::vector<fs::path> result;
  for (const char* folder : {".", "docs", "perf/results"}) {
    for (const auto& entry : fs::directory_iterator(root / folder)) {
      if (entry.path().extension() == ".md") result.push_back(entry.path());
    }
  }
  return result;
}

}  // namespace windrow::testing
