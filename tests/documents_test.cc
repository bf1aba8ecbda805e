// The documents: what they show, name and link to exists.
#include <algorithm>
#include <cctype>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/tree_files.h"

namespace windrow::testing {
namespace {

const std::vector<std::string> rooms = {"engine", "memory", "ops", "comm", "batching", "training", "cuda", "models"};

/// A pattern of tests that sanitizers leave out would otherwise match none after a test was renamed; and the documents
/// would name no proof.
TEST(Documents, TestsThatSanitizersLeaveOutAndDocumentsNameExist) {
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
    for (const std::string& name : {suite.substr(0, suite.find('/')), test.substr(0, test.find_first_of("*/"))}) {
      EXPECT_NE(tests.find(name.substr(0, name.find_first_of("*)"))), std::string::npos) << word << " matches no test";
    }
  }
  EXPECT_GT(seen, 10u);
}

TEST(Documents, WhatTheDocumentsShowIsWhatIsCompiledOrRun) {
  const std::string end = "```";
  for (const std::string language : {"cpp", "python"}) {
    std::string all;
    for (const auto& entry : fs::recursive_directory_iterator(root / "examples")) {
      if (entry.path().extension() == (language == "cpp" ? ".cc" : ".py")) all += text_of(entry.path());
    }
    const std::string begin = "```" + language + "\n";
    int snippets = 0;
    for (const fs::path& document : documents()) {
      const std::string text = text_of(document);
      for (std::size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1), ++snippets) {
        const std::size_t from = at + begin.size();
        const std::string snippet = text.substr(from, text.find(end, from) - from);
        EXPECT_NE(all.find(snippet), std::string::npos) << document << ", in no example:\n" << snippet;
      }
    }
    EXPECT_GT(snippets, language == "cpp" ? 10 : 0) << language;
  }
}

/// The anchor that renderers of Markdown give to a heading.
std::string anchor_of(const std::string& heading) {
  std::string anchor;
  for (const char c : heading) {
    if (c == ' ' || c == '-') anchor += '-';
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') anchor += static_cast<char>(std::tolower(c));
  }
  return anchor;
}

std::set<std::string> anchors_of(const fs::path& document) {
  std::set<std::string> anchors;
  for (const std::string& line : lines_of(document)) {
    if (line.starts_with("#")) anchors.insert(anchor_of(line.substr(line.find_first_not_of('#') + 1)));
  }
  return anchors;
}

TEST(Documents, LinksInDocumentsResolve) {
  int files = 0, anchors = 0;
  for (const fs::path& document : documents()) {
    const std::string text = text_of(document);
    for (std::size_t at = text.find("]("); at != std::string::npos; at = text.find("](", at + 1)) {
      const std::string link = text.substr(at + 2, text.find(')', at + 2) - at - 2);
      if (link.find_first_of(": \n") != std::string::npos) continue;
      const std::size_t hash = std::min(link.find('#'), link.size());
      const fs::path target = hash == 0 ? document : document.parent_path() / link.substr(0, hash);
      ++files;
      EXPECT_TRUE(fs::exists(target)) << document << " links to " << link;
      if (hash == link.size() || target.extension() != ".md") continue;
      ++anchors;
      EXPECT_TRUE(anchors_of(target).contains(link.substr(hash + 1))) << document << " links to " << link;
    }
  }
  EXPECT_GT(files, 50);
  EXPECT_GT(anchors, 5);
}

/// The pages of rooms list the files of those whose sources lie in folders.
TEST(Documents, PagesOfRoomsNameEveryFolder) {
  for (const char* room : {"engine", "ops", "batching", "comm", "cuda"}) {
    const std::string page = text_of(root / "docs" / (std::string(room) + ".md"));
    for (const auto& entry : fs::directory_iterator(root / room / "src")) {
      const std::string folder = "`" + entry.path().filename().string() + "/`";
      EXPECT_TRUE(!entry.is_directory() || page.find(folder) != std::string::npos) << room << ": " << folder;
    }
  }
}

/// The string literals of a source, a line each; adjacent literals are one.
std::string literals_of(const std::string& text) {
  std::string result;
  bool inside = false, adjacent = false;  // in a literal; nothing but space since the last one
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    const bool in_character = i > 0 && text[i - 1] == '\'' && text[i + 1] == '\'';
    if (text[i] == '"' && !in_character) {
      inside = !inside;
      if (inside && !adjacent) result += '\n';
      adjacent = true;
    } else if (inside) {
      if (text[i] == '\\') ++i;
      result += text[i];
    } else if (text[i] == '/' && text[i + 1] == '/') {
      i = text.find('\n', i);
    } else {
      adjacent = adjacent && std::isspace(static_cast<unsigned char>(text[i])) != 0;
    }
  }
  return result;
}

TEST(Documents, MessagesThatTheIndexExplainsAreThoseOfTheSources) {
  std::string all;
  for (const std::string& room : rooms) {
    for (const fs::path& file : sources_of(room)) all += literals_of(text_of(file)) + '\n';
  }
  int messages = 0;
  for (const std::string& line : lines_of(root / "docs/errors.md")) {
    if (!line.starts_with("| `")) continue;
    ++messages;
    std::string message = line.substr(3, line.find('`', 3) - 3);
    for (std::size_t end = 0; end != std::string::npos;) {
      end = message.find("...");
      std::string part = message.substr(0, end);
      part = part.substr(std::min(part.find_first_not_of(' '), part.size()));
      part = part.substr(0, part.find_last_not_of(' ') + 1);
      EXPECT_NE(all.find(part), std::string::npos) << "no message of the sources has '" << part << "': " << line;
      if (end != std::string::npos) message = message.substr(end + 3);
    }
  }
  EXPECT_GE(messages, 40);
}

TEST(Documents, ThePageOfPackagesNamesAllThatSetupInstalls) {
  const std::string page = text_of(root / "docs/install.md");
  int packages = 0;
  for (const std::string& line : lines_of(root / "scripts/packages.txt")) {
    if (line.starts_with("#")) continue;
    std::istringstream columns(line);
    for (std::string package; columns >> package; ++packages) {
      if (package.ends_with("?")) package.pop_back();
      EXPECT_NE(page.find("`" + package + "`"), std::string::npos) << package;
    }
  }
  EXPECT_GT(packages, 50);
}

TEST(Documents, NamesForNewcomersFromOtherSystemsExist) {
  std::string headers, python;
  for (const std::string& room : rooms) {
    for (const fs::path& file : sources_of(room + "/include")) headers += text_of(file);
  }
  for (const fs::path& file : sources_of("python")) python += text_of(file);
  for (const auto& entry : fs::directory_iterator(root / "python/windrow")) {
    if (entry.path().extension() == ".py") python += text_of(entry.path());
  }
  int names = 0;
  const std::string* all = &headers;
  for (const std::string& line : lines_of(root / "docs/coming_from.md")) {
    if (line.starts_with("## ")) all = line.starts_with("## Python") ? &python : &headers;
    if (!line.starts_with("| `")) continue;
    const std::size_t middle = line.find(" | ");
    std::istringstream column(line.substr(middle));
    for (std::string code; std::getline(column.ignore(1 << 20, '`'), code, '`');) {
      std::string name;
      for (const char c : code + " ") {
        const bool word = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
        if (word) name += c;
        if (word || name.empty()) continue;
        // Short ones are the reader's own.
        if (name.size() > 3 && std::isdigit(static_cast<unsigned char>(name[0])) == 0) {
          ++names;
          EXPECT_NE(all->find(name), std::string::npos) << "nothing public is called '" << name << "': " << line;
        }
        name.clear();
      }
    }
  }
  EXPECT_GT(names, 100);
}

}  // namespace
}  // namespace windrow::testing
