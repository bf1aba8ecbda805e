// A file that is written completely or not at all.
#pragma once

#include <filesystem>
#include <string>

namespace windrow::perf {

/// Creates or replaces a file atomically: the text is first written to a new file beside it. An owner; the destructor
/// removes the new file unless take_place() has succeeded.
class NewFile {
 public:
  /// Throws Error if the path exists and is not a regular file, if that file is not writable, or if the new file cannot
  /// be written. A symbolic link to a regular file is kept, and its target is replaced.
  NewFile(const std::filesystem::path& path, const std::string& text);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  /// Atomically puts the new file in the place of the old one.
  void take_place();

 private:
  const std::filesystem::path path_;
  std::filesystem::path beside_;  // empty after take_place()
};

}  // namespace windrow::perf
