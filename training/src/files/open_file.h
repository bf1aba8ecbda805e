// An open file whose calls throw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "windrow/training/internal/file_calls.h"
#include "windrow/training/tensor_file.h"

namespace windrow {

/// Thrown by O_EXCL if the path exists.
class PathExists : public FileError {
 public:
  using FileError::FileError;
};

struct OpenFlags {
  int flags;  ///< of open(); O_CLOEXEC is added
  unsigned mode = 0;
};

/// A file descriptor. An owner; the destructor closes without reporting errors.
///
/// Errors: FileError names the path, and the call that failed. Calls that a signal interrupts are repeated.
class OpenFile {
 public:
  OpenFile(std::filesystem::path path, OpenFlags flags, const FileCalls& calls);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  const std::filesystem::path& path() const { return path_; }

  /// The size of the file. Throws FileError unless it is a regular file.
  std::uint64_t regular_size() const;
  /// Reads as many bytes as `to` has; throws FileError if the file ends before.
  void read(std::span<std::byte> to, std::uint64_t offset) const;
  /// Appends all bytes.
  void write(std::span<const std::byte> bytes);
  void set_mode(unsigned mode);
  void sync();
  /// As sync(), for a folder. No error if the file system cannot do this.
  void sync_folder();
  /// Locks the file against others, in this process too, until it is closed. False if it is locked already.
  bool lock();
  /// Closes and reports errors. Ends the use of this object.
  void close();

 private:
  [[noreturn]] void refuse(const char* call) const;

  const std::filesystem::path path_;
  const FileCalls& calls_;
  int file_;  // -1 after close()
};

/// The folder that holds `path`.
std::filesystem::path folder_of(const std::filesystem::path& path);

/// The names in a folder. Throws FileError.
std::vector<std::string> list_folder(const std::filesystem::path& folder, const FileCalls& calls);

/// Makes the names in a folder durable.
void sync_folder(const std::filesystem::path& folder, const FileCalls& calls);

}  // namespace windrow
