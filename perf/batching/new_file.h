// A file that is written completely or not at all.
#pragma once

#include <filesystem>
#include <string>

namespace windrow::perf {

/// A text that is to be in a file: written beside it at first, under a name of its own. An owner; what has not taken
/// its place goes with it.
class NewFile {
 public:
  /// Throws Error if something that is no regular file has that name, if that file must not be written, and if the text
  /// cannot be written beside it. A symbolic link to a regular file stays, and the file is meant.
  NewFile(const std::filesystem::path& path, const std::string& text);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  /// Puts it in the place of what was there, at one moment.
  void take_place();

 private:
  const std::filesystem::path path_;
  std::filesystem::path beside_;  // empty once it has taken its place
};

}  // namespace windrow::perf
