// The house's own rules: which room may include what, and that what the README shows is what is compiled.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
const fs::path root = WINDROW_SOURCE_DIR;

/// The rooms that each room may include, besides itself.
const std::map<std::string, std::set<std::string>> allowed_rooms = {
    {"engine", {}},
    {"memory", {"engine"}},
    {"ops", {"engine", "memory"}},
    {"batching", {"engine", "memory", "ops"}},
    {"training", {"engine", "memory", "ops", "comm", "batching"}},
    {"cuda", {"engine", "memory", "ops", "batching"}},
    {"comm", {"engine", "memory", "ops"}},
    {"models", {"engine", "memory", "ops", "batching", "training", "cuda", "comm"}},
    {"perf", {"engine", "memory", "ops", "batching", "training", "cuda", "comm", "models"}},
};

/// The libraries that a room may include; the standard library is free to all.
const std::map<std::string, std::set<std::string>> allowed_libraries = {
    {"engine", {"oneapi", "tbb", "spdlog", "pthread.h", "dlfcn.h", "linux", "sched.h", "sys", "unistd.h"}},
    {"memory", {"sys", "malloc.h"}},
    {"ops", {"dnnl.h", "hwy"}},
    {"comm", {"mpi.h", "nccl.h"}},
    {"batching", {}},
    {"training", {"nlohmann", "dirent.h", "fcntl.h", "sys", "unistd.h"}},
    {"cuda",
     {"cublas_v2.h", "cuda.h", "cuda_runtime_api.h", "dlfcn.h", "elementwise_formulas.h", "nvrtc.h", "unistd.h"}},
    {"models", {"CLI", "dnnl.h", "execinfo.h", "fcntl.h", "malloc.h", "sys", "unistd.h", "zlib.h"}},
    {"perf",
     {"sys", "unistd.h", "fcntl.h", "malloc.h", "chart.h", "devices.h", "mpi_calls.h", "program.h", "flags.h", "peak.h",
      "model.h", "oneapi", "omp.h", "pthread.h", "taskflow", "starpu.h", "dynet"}},
};

std::string read_file(const fs::path& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in) << "cannot read " << path;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<fs::path> sources_of(const std::string& room) {
  std::vector<fs::path> result;
  for (const auto& entry : fs::recursive_directory_iterator(root / room)) {
    const std::string ending = entry.path().extension();
    if (ending == ".h" || ending == ".cc" || ending == ".cu") result.push_back(entry.path());
  }
  return result;
}

std::vector<std::string> includes_of(const fs::path& file) {
  static const std::regex include(R"(^\s*#\s*include\s*[<"]([^>"]+)[>"])", std::regex::multiline);
  const std::string text = read_file(file);
  std::vector<std::string> result;
  for (std::sregex_iterator it(text.begin(), text.end(), include), end; it != end; ++it) result.push_back((*it)[1]);
  return result;
}

std::string first_part(const std::string& path) { return path.substr(0, path.find('/')); }

TEST(House, RoomsIncludeOnlyWhatLiesBelowThem) {
  std::size_t seen = 0;
  for (const auto& [room, below] : allowed_rooms) {
    if (!fs::exists(root / room)) continue;
    for (const fs::path& file : sources_of(room)) {
      for (const std::string& include : includes_of(file)) {
        if (!include.starts_with("windrow/")) continue;
        ++seen;
        const std::string other = first_part(include.substr(8));
        EXPECT_TRUE(other == room || below.count(other) > 0)
            << file << " includes " << include << ", which " << room << " may not";
      }
    }
  }
  EXPECT_GT(seen, 0u);
}

TEST(House, RoomsUseOnlyTheirLibraries) {
  for (const auto& [room, libraries] : allowed_libraries) {
    if (!fs::exists(root / room)) continue;
    for (const fs::path& file : sources_of(room)) {
      for (const std::string& include : includes_of(file)) {
        const bool standard = include.find('.') == std::string::npos && include.find('/') == std::string::npos;
        const bool own = include.starts_with("windrow/") || fs::exists(file.parent_path() / include) ||
                         fs::exists(root / room / include) || fs::exists(root / room / "src" / include);
        EXPECT_TRUE(standard || own || libraries.count(first_part(include)) > 0)
            << file << " includes " << include << ", which is none of the libraries of " << room;
      }
    }
  }
}

TEST(House, ARoomReachesNoOthersPrivateFiles) {
  for (const auto& [room, below] : allowed_rooms) {
    if (!fs::exists(root / room)) continue;
    for (const fs::path& file : sources_of(room)) {
      for (const std::string& include : includes_of(file)) {
        EXPECT_EQ(include.find(".."), std::string::npos) << file << " includes " << include;
        EXPECT_EQ(include.find("/src/"), std::string::npos) << file << " includes " << include;
      }
    }
  }
}

/// The types that headers of a room define in namespaces, each with its namespace.
std::set<std::string> types_of(const std::string& room) {
  const std::regex opens(R"(namespace (\S*) ?\{)"), closes(R"(\}  // namespace.*)");
  const std::regex defines(
      R"((?:class|struct|enum class) (?:alignas\(\d+\) |WINDROW_\w+(?:\(.*?\))? )?(\w+)\b[^;<]*\{.*)");
  std::set<std::string> types;
  for (const fs::path& file : sources_of(room)) {
    if (file.extension() != ".h") continue;
    std::istringstream text(read_file(file));
    std::vector<std::string> spaces;
    std::smatch match;
    for (std::string line; std::getline(text, line);) {
      if (std::regex_match(line, match, opens)) {
        spaces.push_back(match[1]);
      } else if (std::regex_match(line, closes)) {
        spaces.pop_back();
      } else if (std::regex_match(line, match, defines)) {
        std::string name;
        for (const std::string& space : spaces) name += space + "::";
        types.insert(name + std::string(match[1]));
      }
    }
  }
  return types;
}

/// Two types of one name in two libraries are one to the linker.
TEST(House, NoTwoRoomsDefineATypeOfOneName) {
  std::map<std::string, std::string> room_of;
  for (const auto& [room, below] : allowed_rooms) {
    if (!fs::exists(root / room)) continue;
    for (const std::string& type : types_of(room)) {
      const auto [known, fresh] = room_of.emplace(type, room);
      EXPECT_TRUE(fresh) << type << " is defined in " << known->second << " and in " << room;
    }
  }
  EXPECT_TRUE(room_of.contains("windrow::Engine"));
}

/// The sources of each target of the tests and of the programs, and of each room.
std::map<std::string, std::set<fs::path>> sources_by_target() {
  const std::regex sets(R"(set\((\w+)\s([^)]*)\))"), uses(R"(\$\{(\w+)\})"), source(R"([\w/]+\.cc)"),
      target(R"((?:windrow_test|add_library|add_executable)\(\s*(\w+)\s([^)]*)\))");
  const auto each = [](const std::string& text, const std::regex& pattern, auto visit) {
    for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) visit(*it);
  };
  std::map<std::string, std::set<fs::path>> result;
  for (const char* folder : {"tests", "models", "perf"}) {
    std::string text = read_file(root / folder / "CMakeLists.txt");
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (entry.path().extension() == ".cmake") text += read_file(entry.path());
    }
    std::map<std::string, std::string> lists;
    each(text, sets, [&](const std::smatch& set) { lists[set[1]] += set[2]; });
    each(text, target, [&](const std::smatch& made) {
      std::string all = made[2];
      each(made[2], uses, [&](const std::smatch& use) { all += " " + lists[use[1]]; });
      each(all, source, [&](const std::smatch& file) {
        const fs::path path = root / folder / file.str();
        if (fs::exists(path)) result[made[1]].insert(path);
      });
    });
  }
  for (const auto& [room, below] : allowed_rooms) {
    if (!fs::exists(root / room / "src")) continue;
    for (const fs::path& file : sources_of(room + "/src")) {
      if (file.extension() == ".cc") result[room].insert(file);
    }
  }
  return result;
}

/// Types, constants, and functions with their parameters, that a file defines in unnamed namespaces; those of aliases
/// with what they stand for. Names that a file uses of namespace testing count as aliases.
std::map<std::string, std::string> names_in_unnamed_namespaces(const fs::path& file) {
  static const std::regex opens(R"(namespace\s*(\S*)\s*\{)"), closes(R"(\}  // namespace.*)"),
      type(R"((?:class|struct|enum class|enum|union) (?:alignas\(\w+\) )?(\w+)\b(?:[^;]*|[^;]*\{.*\};))"),
      constant(R"((?:static |inline |constexpr |const )+[\w:<>,&* ]+[ &*](\w+)(?:\{|\[| = |;).*)"),
      function(R"((?:\[\[.*\]\] )?[A-Za-z][\w:<>,&* ]*[ &*](\w+)\(([^()]*)\) ?(?:const|noexcept)? ?\{.*)"),
      alias(R"(using (\w+) = (.*))"), used(R"(using testing::(\w+);)"),
      parameter(R"(([^,]*?)[ &*]+\w+(?: = [^,]*)?(,|$))");
  std::vector<std::string> spaces;
  std::map<std::string, std::string> names;
  std::istringstream text(read_file(file));
  std::smatch match;
  for (std::string line; std::getline(text, line);) {
    if (std::regex_match(line, match, opens)) {
      spaces.push_back(match[1]);
    } else if (std::regex_match(line, closes)) {
      if (!spaces.empty()) spaces.pop_back();
    } else if (std::regex_match(line, match, used)) {
      names[match[1]] = line;
    } else if (std::find(spaces.begin(), spaces.end(), "") == spaces.end()) {
      continue;
    } else if (std::regex_match(line, match, type) || std::regex_match(line, match, constant)) {
      names[match[1]];
    } else if (std::regex_match(line, match, alias)) {
      names[match[1]] = match[2];
    } else if (std::regex_match(line, match, function)) {
      names[match[1].str() + "(" + std::regex_replace(match[2].str(), parameter, "$1$2") + ")"];
    }
  }
  return names;
}

/// Sources of a target are compiled together (windrow_join_sources), where two definitions of one name would not
/// compile.
TEST(House, NamesInUnnamedNamespacesOfATargetDiffer) {
  std::size_t seen = 0;
  for (const auto& [target, files] : sources_by_target()) {
    struct Definition {
      fs::path file;
      std::string alias_of;
    };
    std::map<std::string, Definition> all;
    for (const fs::path& file : files) {
      for (const auto& [name, alias_of] : names_in_unnamed_namespaces(file)) {
        ++seen;
        const auto [known, fresh] = all.emplace(name, Definition{file, alias_of});
        const bool same = !alias_of.empty() && known->second.alias_of == alias_of;
        EXPECT_TRUE(fresh || same) << target << ": " << name << " is defined in " << known->second.file << " and in "
                                   << file;
      }
    }
  }
  EXPECT_GT(seen, 1000u);
}

/// A pattern of tests that sanitizers leave out would otherwise match none after a test was renamed.
TEST(House, TestsThatSanitizersLeaveOutExist) {
  std::string tests;
  for (const fs::path& file : sources_of("tests")) {
    if (file.extension() == ".cc") tests += read_file(file);
  }
  const std::string text = read_file(root / "tests/CMakeLists.txt");
  const std::string lists =
      text.substr(text.find("set(oracle_ops"), text.find("windrow_test(\n") - text.find("set(oracle_ops"));
  static const std::regex pattern(R"([\w*/]*?(\w+)(?:/\S+)?\.(\w+|\*))");
  std::size_t seen = 0;
  for (std::sregex_iterator it(lists.begin(), lists.end(), pattern), end; it != end; ++it, ++seen) {
    for (const std::string& name : {(*it)[1].str(), (*it)[2].str()}) {
      EXPECT_TRUE(name == "*" || tests.find(name) != std::string::npos) << it->str() << " matches no test";
    }
  }
  EXPECT_GT(seen, 10u);
}

TEST(House, FilesHoldOneIdea) {
  std::vector<std::string> folders = {"tests", "examples"};
  for (const auto& [room, below] : allowed_rooms) folders.push_back(room);
  for (const std::string& folder : folders) {
    if (!fs::exists(root / folder)) continue;
    for (const fs::path& file : sources_of(folder)) {
      const std::string text = read_file(file);
      EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 400) << file;
    }
  }
}

TEST(House, WhatTheDocumentsShowIsWhatIsCompiled) {
  std::string all;
  for (const auto& entry : fs::recursive_directory_iterator(root / "examples")) {
    if (entry.path().extension() == ".cc") all += read_file(entry.path());
  }
  static const std::regex fence(R"(```cpp\n([\s\S]*?)```)");
  for (const char* document : {"README.md", "docs/own_operator.md"}) {
    const std::string text = read_file(root / document);
    int snippets = 0;
    for (std::sregex_iterator it(text.begin(), text.end(), fence), end; it != end; ++it, ++snippets) {
      EXPECT_NE(all.find((*it)[1].str()), std::string::npos) << document << ", in no example:\n" << (*it)[1].str();
    }
    EXPECT_GT(snippets, 0) << document;
  }
}

std::vector<fs::path> documents() {
  std::vector<fs::path> result;
  for (const char* folder : {".", "docs", "perf/results"}) {
    for (const auto& entry : fs::directory_iterator(root / folder)) {
      if (entry.path().extension() == ".md") result.push_back(entry.path());
    }
  }
  return result;
}

TEST(House, TheMapIsShort) {
  const std::string map = read_file(root / "docs/design.md");
  EXPECT_LE(std::count(map.begin(), map.end(), '\n'), 250) << "newcomers read docs/design.md in ten minutes";
}

TEST(House, LinksInDocumentsResolve) {
  static const std::regex link(R"(\]\(([^)#:\s]+)(#[^)\s]*)?\))");
  int seen = 0;
  for (const fs::path& document : documents()) {
    const std::string text = read_file(document);
    for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it, ++seen) {
      EXPECT_TRUE(fs::exists(document.parent_path() / (*it)[1].str())) << document << " links to " << (*it)[1];
    }
  }
  EXPECT_GT(seen, 0);
}

/// The pages of rooms list the files of those whose sources lie in folders.
TEST(House, PagesOfRoomsNameEveryFolder) {
  for (const char* room : {"engine", "batching"}) {
    const std::string page = read_file(root / "docs" / (std::string(room) + ".md"));
    for (const auto& entry : fs::directory_iterator(root / room / "src")) {
      const std::string folder = "`" + entry.path().filename().string() + "/`";
      EXPECT_TRUE(!entry.is_directory() || page.find(folder) != std::string::npos) << page.substr(0, 20) << folder;
    }
  }
}

TEST(House, TheReferenceUsesNoLibrary) {
  const std::set<std::string> own = {"checks.h", "images.h", "products.h", "reference.h"};
  for (const fs::path& file : sources_of("ops")) {
    if (!file.filename().string().starts_with("reference")) continue;
    for (const std::string& include : includes_of(file)) {
      const bool standard = include.find('.') == std::string::npos;
      EXPECT_TRUE(standard || include.starts_with("windrow/ops/") || own.contains(include)) << file << ": " << include;
    }
  }
}

}  // namespace
