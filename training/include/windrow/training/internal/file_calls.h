// The system calls on files, as one interface.
//
// Tests derive from it to make calls fail, and to keep files in memory. Knows no format.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace windrow {

/// The system calls that read and write files. The callers handle EINTR and short results.
///
/// Errors: each call returns what its POSIX namesake returns: -1 and a value of errno if it fails.
/// Threads: calls may run on any thread.
class FileCalls {
 public:
  /// The calls of the operating system.
  static const FileCalls& of_system();

  virtual ~FileCalls() = default;
  virtual int open(const char* path, int flags, unsigned mode) const;
  virtual std::ptrdiff_t write(int file, const void* from, std::size_t bytes) const;
  virtual std::ptrdiff_t pread(int file, void* to, std::size_t bytes, std::uint64_t offset) const;
  virtual int fsync(int file) const;
  virtual int close(int file) const;
  virtual int fstat(int file, struct stat* status) const;
  virtual int fchmod(int file, unsigned mode) const;
  virtual int flock(int file, int operation) const;
  virtual int stat(const char* path, struct stat* status) const;
  virtual int access(const char* path, int mode) const;
  virtual int rename(const char* from, const char* to) const;
  virtual int unlink(const char* path) const;
  virtual int mkdir(const char* path, unsigned mode) const;
  /// Sets `to` to the absolute path without symbolic links. Returns 0 or -1.
  virtual int realpath(const char* path, std::string* to) const;
  /// Sets `names` to the entries of a folder, by opendir and readdir. Returns 0 or -1.
  virtual int list(const char* folder, std::vector<std::string>* names) const;
};

}  // namespace windrow
