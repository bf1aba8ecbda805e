// Files that are written as a whole: after a crash, a file has its old content or its new one.
//
//   windrow::WholeFile file("model.json");
//   file.write(text);
//   file.commit();
//
// Knows no format.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "windrow/training/internal/file_calls.h"

namespace windrow {

class OpenFile;

/// A new file in the folder of `path`; commit() puts it in the place of `path`. An owner.
///
/// The permissions of an existing file are kept; those of a new one are 0666 less the umask. A symbolic link to a
/// regular file is kept, and its target is replaced. The new file is called PATH.PID-N.new. A process that is killed
/// leaves it behind.
///
/// Errors: FileError names the path and the system call. The old file is untouched then, and the destructor removes the
/// new one. There is one exception: if the fsync of the folder fails in commit(), the new file is in place, but a loss
/// of power may bring back the old one. Threads: calls on one object must not overlap.
class WholeFile {
 public:
  /// Creates the new file. Throws FileError also if `path` exists and is not a regular file that may be written.
  /// `calls` must outlive this object.
  explicit WholeFile(const std::filesystem::path& path, const FileCalls& calls = FileCalls::of_system());
  ~WholeFile();
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  /// Appends to the new file.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// Puts the new file in place. When this returns, the content survives a loss of power. Ends the use of this object.
  void commit();

 private:
  const FileCalls& calls_;
  std::filesystem::path target_;        // without symbolic links
  const std::optional<unsigned> mode_;  // of the old file, if there is one
  std::filesystem::path temporary_;     // empty when there is no new file to remove
  std::unique_ptr<OpenFile> file_;
};

/// Reads a regular file. Throws FileError if it cannot be read, or is larger than `most_bytes`.
std::string read_whole_file(const std::filesystem::path& path, std::size_t most_bytes,
                            const FileCalls& calls = FileCalls::of_system());

}  // namespace windrow
