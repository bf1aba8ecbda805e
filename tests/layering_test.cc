// The layers of the tree: what each room may include, and facts that need no more than lines of files.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
const fs::path root = WINDROW_SOURCE_DIR;

/// What a room may include besides itself and the standard library.
struct Allowed {
  std::set<std::string> rooms, libraries;
};
const std::map<std::string, Allowed> layers = {
    {"engine",
     {.rooms = {},
      .libraries = {"oneapi", "tbb", "concurrentqueue", "nlohmann", "spdlog", "pthread.h", "dlfcn.h", "linux",
                    "sched.h", "sys", "unistd.h"}}},
    {"memory", {.rooms = {"engine"}, .libraries = {"sys", "malloc.h", "unistd.h"}}},
    {"ops", {.rooms = {"engine", "memory"}, .libraries = {"dnnl.h", "hwy"}}},
    {"comm", {.rooms = {"engine", "memory", "ops"}, .libraries = {"mpi.h", "nccl.h"}}},
    {"batching", {.rooms = {"engine", "memory", "ops"}, .libraries = {}}},
    {"training",
     {.rooms = {"engine", "memory", "ops", "comm", "batching"},
      .libraries = {"nlohmann", "dirent.h", "fcntl.h", "sys", "unistd.h"}}},
    {"cuda",
     {.rooms = {"engine", "memory", "ops", "batching"},
      .libraries = {"cublas_v2.h", "cuda.h", "cuda_runtime_api.h", "dlfcn.h", "elementwise_formulas.h", "nvrtc.h",
                    "unistd.h"}}},
    {"models",
     {.rooms = {"engine", "memory", "ops", "batching", "training", "cuda", "comm"},
      .libraries = {"CLI", "dnnl.h", "execinfo.h", "fcntl.h", "malloc.h", "sys", "unistd.h", "zlib.h"}}},
    {"perf",
     {.rooms = {"engine", "memory", "ops", "batching", "training", "cuda", "comm", "models"},
      .libraries = {"sys", "unistd.h", "malloc.h", "devices.h", "mpi_calls.h", "program.h", "flags.h", "peak.h",
                    "model.h", "nlohmann", "oneapi", "omp.h", "taskflow", "starpu.h", "dynet"}}},
};

std::vector<std::string> lines_of(const fs::path& file) {
  std::ifstream in(file);
  EXPECT_TRUE(in) << "cannot read " << file;
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string text_of(const fs::path& file) {
  std::string text;
  for (const std::string& line : lines_of(file)) text += line + '\n';
  return text;
}

std::vector<fs::path> sources_of(const std::string& folder) {
  std::vector<fs::path> result;
  for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
    const std::string ending = entry.path().extension();
    if (ending == ".h" || ending == ".cc" || ending == ".cu") result.push_back(entry.path());
  }
  return result;
}

std::vector<std::string> includes_of(const fs::path& file) {
  std::vector<std::string> result;
  for (const std::string& line : lines_of(file)) {
    if (line.starts_with("#include ")) result.push_back(line.substr(10, line.find_last_of("\">") - 10));
  }
  return result;
}

std::string first_part(const std::string& path) { return path.substr(0, path.find('/')); }

bool is_standard(const std::string& include) { return include.find_first_of("./") == std::string::npos; }

using Check = std::function<void(const std::string& room, const fs::path& file, const std::string& include)>;
void for_each_include(const Check& check) {
  for (const auto& [room, allowed] : layers) {
    for (const fs::path& file : sources_of(room)) {
      for (const std::string& include : includes_of(file)) check(room, file, include);
    }
  }
}

TEST(Layering, RoomsIncludeOnlyWhatLiesBelowThem) {
  std::size_t seen = 0;
  for_each_include([&](const std::string& room, const fs::path& file, const std::string& include) {
    if (!include.starts_with("windrow/")) return;
    ++seen;
    const std::string other = first_part(include.substr(8));
    EXPECT_TRUE(other == room || layers.at(room).rooms.contains(other))
        << file << " includes " << include << ", which " << room << " may not";
  });
  EXPECT_GT(seen, 500u);
}

TEST(Layering, RoomsUseOnlyTheirLibraries) {
  for_each_include([&](const std::string& room, const fs::path& file, const std::string& include) {
    const bool own = include.starts_with("windrow/") || fs::exists(file.parent_path() / include) ||
                     fs::exists(root / room / include) || fs::exists(root / room / "src" / include);
    EXPECT_TRUE(is_standard(include) || own || layers.at(room).libraries.contains(first_part(include)))
        << file << " includes " << include << ", which is none of the libraries of " << room;
  });
}

TEST(Layering, ARoomReachesNoOthersPrivateFiles) {
  for_each_include([&](const std::string&, const fs::path& file, const std::string& include) {
    EXPECT_EQ(include.find(".."), std::string::npos) << file << " includes " << include;
    EXPECT_EQ(include.find("/src/"), std::string::npos) << file << " includes " << include;
  });
}

TEST(Layering, TheReferenceUsesNoLibrary) {
  const std::set<std::string> own = {"checks.h", "operators/attributes.h", "reference/reference.h"};
  for (const fs::path& file : sources_of("ops")) {
    if (file.parent_path().filename() != "reference") continue;
    for (const std::string& include : includes_of(file)) {
      EXPECT_TRUE(is_standard(include) || include.starts_with("windrow/ops/") || own.contains(include))
          << file << ": " << include;
    }
  }
}

TEST(Layering, PublicHeadersFirstCheckWhatTheyRequire) {
  const std::string first = "windrow/engine/internal/requirements.h";
  for (const auto& [room, allowed] : layers) {
    for (const fs::path& file : sources_of(room)) {
      if (file.string().find("/include/windrow/") == std::string::npos || file.string().ends_with(first)) continue;
      const std::vector<std::string> includes = includes_of(file);
      EXPECT_TRUE(!includes.empty() && includes[0] == first) << file << "; expected " << first;
    }
  }
}

TEST(Layering, ExamplesNeedNoInternalHeader) {
  for (const fs::path& file : sources_of("examples")) {
    for (const std::string& include : includes_of(file)) {
      EXPECT_EQ(include.find("/internal/"), std::string::npos) << file << " includes " << include;
    }
  }
}

TEST(Layering, FilesHoldOneIdea) {
  std::vector<std::string> folders = {"tests", "examples"};
  for (const auto& [room, allowed] : layers) folders.push_back(room);
  for (const std::string& folder : folders) {
    for (const fs::path& file : sources_of(folder)) EXPECT_LE(lines_of(file).size(), 400u) << file;
  }
  EXPECT_LE(lines_of(root / "docs/design.md").size(), 250u) << "newcomers read it in ten minutes";
}

/// A pattern of tests that sanitizers leave out would otherwise match none after a test was renamed; and the documents
/// would name no proof.
TEST(Layering, TestsThatSanitizersLeaveOutAndDocumentsNameExist) {
  std::string tests, named = text_of(root / "tests/sanitizer/tests.cmake");
  for (const fs::path& file : sources_of("tests")) tests += text_of(file);
  for (const auto& document : fs::directory_iterator(root / "docs")) {
    std::istringstream text(document.path().extension() == ".md" ? text_of(document.path()) : "");
    for (std::string code; std::getline(text.ignore(1 << 20, '`'), code, '`');) {
      const std::size_t dot = code.find('.');
      const bool test = dot != std::string::npos && dot + 1 < code.size() && std::isupper(code[0]) != 0 &&
                        (std::isupper(code[dot + 1]) != 0 || code[dot + 1] == '*');
      if (test && code.find_first_of(" (<") == std::string::npos) named += " " + code;
    }
  }
  std::istringstream words(named);
  std::size_t seen = 0;
  for (std::string word; words >> word;) {
    word.erase(std::remove(word.begin(), word.end(), '"'), word.end());
    const std::size_t dot = word.find('.');
    if (dot == std::string::npos || !(word.starts_with("*/") || std::isupper(word[0]) != 0)) continue;
    ++seen;
    std::string suite = word.substr(0, dot), test = word.substr(dot + 1);
    if (suite.starts_with("*/") || suite.starts_with("All/")) suite = suite.substr(suite.find('/') + 1);
    for (const std::string& name : {first_part(suite), first_part(test.substr(0, test.find('*')))}) {
      EXPECT_NE(tests.find(name.substr(0, name.find_first_of("*)"))), std::string::npos) << word << " matches no test";
    }
  }
  EXPECT_GT(seen, 10u);
}

TEST(Layering, WhatTheDocumentsShowIsWhatIsCompiled) {
  std::string all;
  for (const fs::path& file : sources_of("examples")) all += text_of(file);
  const std::string begin = "```cpp\n", end = "```";
  for (const char* document : {"README.md", "docs/own_operator.md"}) {
    const std::string text = text_of(root / document);
    int snippets = 0;
    for (std::size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1), ++snippets) {
      const std::size_t from = at + begin.size();
      const std::string snippet = text.substr(from, text.find(end, from) - from);
      EXPECT_NE(all.find(snippet), std::string::npos) << document << ", in no example:\n" << snippet;
    }
    EXPECT_GT(snippets, 0) << document;
  }
}

TEST(Layering, LinksInDocumentsResolve) {
  int seen = 0;
  for (const char* folder : {".", "docs", "perf/results"}) {
    for (const auto& document : fs::directory_iterator(root / folder)) {
      if (document.path().extension() != ".md") continue;
      const std::string text = text_of(document.path());
      for (std::size_t at = text.find("]("); at != std::string::npos; at = text.find("](", at + 1)) {
        const std::string link = text.substr(at + 2, text.find_first_of(")#", at + 2) - at - 2);
        if (link.empty() || link.find_first_of(": \n") != std::string::npos) continue;
        ++seen;
        EXPECT_TRUE(fs::exists(document.path().parent_path() / link)) << document << " links to " << link;
      }
    }
  }
  EXPECT_GT(seen, 0);
}

/// The pages of rooms list the files of those whose sources lie in folders.
TEST(Layering, PagesOfRoomsNameEveryFolder) {
  for (const char* room : {"engine", "ops", "batching", "comm", "cuda"}) {
    const std::string page = text_of(root / "docs" / (std::string(room) + ".md"));
    for (const auto& entry : fs::directory_iterator(root / room / "src")) {
      const std::string folder = "`" + entry.path().filename().string() + "/`";
      EXPECT_TRUE(!entry.is_directory() || page.find(folder) != std::string::npos) << room << ": " << folder;
    }
  }
}

}  // namespace
