#include "batching/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "windrow/engine/error.h"

namespace windrow::perf {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& path, int error) {
  throw Error(path.string() + ": cannot be written: " + std::strerror(error) +
              "; expected a writable folder for the results");
}

/// The path of the file itself, with symbolic links resolved.
fs::path meant(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error))) return path;
  // Writing to a pipe or a device might block forever or discard the text.
  if (!fs::is_regular_file(path, error))
    throw Error(path.string() + ": not a regular file; expected a regular file or none");
  const fs::path file = fs::canonical(path, error);
  if (error) refuse(path, error.value());
  if (access(file.c_str(), W_OK) != 0) refuse(path, errno);
  return file;
}

/// Creates a new file beside `path` and sets `beside` to its path. Returns its descriptor, or -1.
int make_beside(const fs::path& path, fs::path& beside) {
  for (int number = 0;; ++number) {
    beside = path;
    beside += "." + std::to_string(getpid()) + "-" + std::to_string(number) + ".new";
    const int file = open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file >= 0 || errno != EEXIST) return file;
  }
}

/// Writes the text and calls fsync(), because some file systems report a full disk only then. Returns 0 or an errno
/// value.
int write_all(int file, const std::string& text) {
  for (std::size_t written = 0; written < text.size();) {
    const ssize_t more = write(file, text.data() + written, text.size() - written);
    if (more >= 0) {
      written += static_cast<std::size_t>(more);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return fsync(file) == 0 ? 0 : errno;
}

}  // namespace

NewFile::NewFile(const fs::path& path, const std::string& text) : path_(meant(path)) {
  const int file = make_beside(path_, beside_);
  if (file < 0) refuse(path, errno);
  const int failed = write_all(file, text);
  const int unclosed = close(file) == 0 ? 0 : errno;
  if (failed == 0 && unclosed == 0) return;
  unlink(beside_.c_str());
  refuse(path, failed != 0 ? failed : unclosed);
}

NewFile::~NewFile() {
  if (!beside_.empty()) unlink(beside_.c_str());
}

void NewFile::take_place() {
  if (std::rename(beside_.c_str(), path_.c_str()) != 0) refuse(path_, errno);
  beside_.clear();
}

}  // namespace windrow::perf
