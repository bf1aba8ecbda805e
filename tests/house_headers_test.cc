// The house's rules about includes: what a public header checks first, and that files include what they use.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace files = std::filesystem;
const files::path tree = WINDROW_SOURCE_DIR;

struct Source {
  std::string code;  // without comments
  std::vector<std::string> includes;
};

Source read_source(const files::path& path) {
  Source result;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    line.resize(std::min(line.find("//"), line.size()));
    if (line.starts_with("#include ")) result.includes.push_back(line.substr(10, line.find_last_of("\">") - 10));
    result.code += line + '\n';
  }
  return result;
}

/// Every header and source of the tree, by path.
std::map<files::path, Source> read_tree() {
  std::map<files::path, Source> result;
  for (const char* folder :
       {"engine", "memory", "ops", "comm", "batching", "training", "cuda", "models", "perf", "tests"}) {
    for (const auto& entry : files::recursive_directory_iterator(tree / folder)) {
      const std::string ending = entry.path().extension();
      if (ending == ".h" || ending == ".cc" || ending == ".cu") result[entry.path()] = read_source(entry.path());
    }
  }
  return result;
}

TEST(HouseHeaders, EachPublicOneFirstChecksWhatItRequires) {
  const std::string first = "windrow/engine/requirements.h";
  std::size_t seen = 0;
  for (const auto& [path, source] : read_tree()) {
    if (path.string().find("/include/windrow/") == std::string::npos || path.string().ends_with(first)) continue;
    ++seen;
    EXPECT_TRUE(!source.includes.empty() && source.includes[0] == first) << path << "; expected " << first;
  }
  EXPECT_GT(seen, 100u);
}

/// For names that compilers have missed: standard libraries differ in which headers include others.
std::map<std::string, std::string> headers_of_names() {
  const std::vector<std::pair<std::string, std::string>> names_of = {
      {"algorithm",
       "any_of all_of clamp copy copy_n count count_if fill fill_n find find_if lower_bound max max_element "
       "min min_element minmax none_of reverse sort stable_sort transform unique upper_bound"},
      {"array", "array"},
      {"cmath", "ceil exp exp2 expm1 floor fma fmod isfinite isinf isnan log log1p log2 pow round sqrt tanh"},
      {"cstdint", "int32_t int64_t uint16_t uint32_t uint64_t uint8_t uintptr_t"},
      {"cstdio", "fopen fprintf fputs fread fwrite printf puts snprintf"},
      {"cstdlib", "_Exit abort exit free getenv malloc strtod strtol strtoul strtoull"},
      {"cstring", "memcmp memcpy memmove memset strcmp strerror strlen"},
      {"functional", "function greater hash less"},
      {"iterator", "back_inserter distance next prev"},
      {"memory", "make_shared make_unique shared_ptr unique_ptr weak_ptr"},
      {"numeric", "accumulate inner_product iota"},
      {"tuple", "make_tuple tie tuple"}};
  std::map<std::string, std::string> result;
  for (const auto& [header, names] : names_of) {
    std::istringstream text(names);
    for (std::string name; text >> name;) result[name] = header;
  }
  return result;
}

/// The standard headers that a source needs for these names, each with a name. "initializer_list" for loops over
/// braces.
std::map<std::string, std::string> needed_headers(const std::string& code) {
  static const std::map<std::string, std::string> headers = headers_of_names();
  std::map<std::string, std::string> result;
  for (std::size_t at = 0; (at = code.find("std::", at)) != std::string::npos;) {
    const std::size_t begin = at += 5;
    while (at < code.size() && (std::isalnum(static_cast<unsigned char>(code[at])) != 0 || code[at] == '_')) ++at;
    const std::string name = code.substr(begin, at - begin);
    if (const auto found = headers.find(name); found != headers.end()) result[found->second] = "std::" + name;
  }
  std::istringstream lines(code);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t loop = line.find("for ("), list = line.find(" : {", std::min(loop, line.size()));
    if (list != std::string::npos) result["initializer_list"] = line;
  }
  return result;
}

class Includes {
 public:
  explicit Includes(const std::map<files::path, Source>& all) : all_(all) {}

  /// What a file includes, directly or by headers of this tree.
  const std::set<std::string>& reached(const files::path& path) {
    const auto [entry, fresh] = known_.try_emplace(path);
    if (!fresh) return entry->second;
    std::set<std::string> result;
    for (const std::string& include : all_.at(path).includes) {
      result.insert(include);
      for (const files::path& header : found(path, include)) {
        const std::set<std::string> more = reached(header);
        result.insert(more.begin(), more.end());
      }
    }
    return known_[path] = result;
  }

 private:
  /// The files that an include may mean.
  std::vector<files::path> found(const files::path& from, const std::string& include) const {
    if (const auto near = from.parent_path() / include; all_.contains(near)) return {near};
    std::vector<files::path> result;
    if (include.find('.') == std::string::npos) return result;
    for (const auto& [path, source] : all_) {
      if (path.string().ends_with("/" + include)) result.push_back(path);
    }
    return result;
  }

  const std::map<files::path, Source>& all_;
  std::map<files::path, std::set<std::string>> known_;
};

TEST(HouseHeaders, FilesIncludeTheStandardOnesOfWhatTheyUse) {
  const std::map<files::path, Source> all = read_tree();
  // These include <initializer_list>, says the standard.
  const std::vector<std::string> of_lists = {"initializer_list", "algorithm", "array", "map", "set",
                                             "string",           "utility",   "vector"};
  Includes includes(all);
  for (const auto& [path, source] : all) {
    const std::set<std::string>& reached = includes.reached(path);
    for (const auto& [header, name] : needed_headers(source.code)) {
      const bool met = header == "initializer_list" ? std::any_of(of_lists.begin(), of_lists.end(),
                                                                  [&](auto& list) { return reached.contains(list); })
                                                    : reached.contains(header);
      EXPECT_TRUE(met) << path << " lacks <" << header << ">, for " << name;
    }
  }
}

}  // namespace
