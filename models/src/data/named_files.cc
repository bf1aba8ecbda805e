#include "data/named_files.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace windrow {
namespace {

/// Only the first one can be read; a reader says so of the others.
constexpr std::array<std::string_view, 5> compressions = {".gz", ".bz2", ".xz", ".zst", ".zip"};

bool matches(std::string_view name, std::string_view pattern) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return name == pattern;
  const std::string_view begin = pattern.substr(0, star), end = pattern.substr(star + 1);
  return name.size() >= begin.size() + end.size() && name.starts_with(begin) && name.ends_with(end);
}

}  // namespace

std::filesystem::path uncompressed_name(const std::filesystem::path& file) {
  const bool compressed = std::ranges::find(compressions, file.extension().string()) != compressions.end();
  return compressed ? file.parent_path() / file.stem() : file;
}

std::filesystem::path file_or_compressed(const std::filesystem::path& file) {
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored)) return file;
  for (const std::string_view ending : compressions) {
    const std::filesystem::path other = file.string() + std::string(ending);
    if (std::filesystem::exists(other, ignored)) return other;
  }
  return {};
}

std::vector<std::filesystem::path> files_named(const std::filesystem::path& folder, const std::string& name) {
  std::vector<std::filesystem::path> found;
  if (name.find('*') == std::string::npos) {
    if (const auto file = file_or_compressed(folder / name); !file.empty()) found.push_back(file);
    return found;
  }
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored)) {
    const std::filesystem::path file = uncompressed_name(entry->path());
    if (matches(file.filename().string(), name)) found.push_back(file);
  }
  std::ranges::sort(found);
  const auto twice = std::ranges::unique(found);
  found.erase(twice.begin(), twice.end());
  for (std::filesystem::path& file : found) file = file_or_compressed(file);
  return found;
}

}  // namespace windrow
