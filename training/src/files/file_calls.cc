#include "windrow/training/internal/file_calls.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace windrow {

const FileCalls& FileCalls::of_system() {
  static const FileCalls calls;
  return calls;
}

int FileCalls::open(const char* path, int flags, unsigned mode) const { return ::open(path, flags, mode); }

std::ptrdiff_t FileCalls::write(int file, const void* from, std::size_t bytes) const {
  return ::write(file, from, bytes);
}

std::ptrdiff_t FileCalls::pread(int file, void* to, std::size_t bytes, std::uint64_t offset) const {
  return ::pread(file, to, bytes, static_cast<off_t>(offset));
}

int FileCalls::fsync(int file) const { return ::fsync(file); }
int FileCalls::close(int file) const { return ::close(file); }
int FileCalls::fstat(int file, struct stat* status) const { return ::fstat(file, status); }
int FileCalls::fchmod(int file, unsigned mode) const { return ::fchmod(file, mode); }
int FileCalls::flock(int file, int operation) const { return ::flock(file, operation); }
int FileCalls::stat(const char* path, struct stat* status) const { return ::stat(path, status); }
int FileCalls::access(const char* path, int mode) const { return ::access(path, mode); }
int FileCalls::rename(const char* from, const char* to) const { return std::rename(from, to); }
int FileCalls::unlink(const char* path) const { return ::unlink(path); }
int FileCalls::mkdir(const char* path, unsigned mode) const { return ::mkdir(path, mode); }

int FileCalls::realpath(const char* path, std::string* to) const {
  const std::unique_ptr<char, decltype(&std::free)> found(::realpath(path, nullptr), &std::free);
  if (found == nullptr) return -1;
  *to = found.get();
  return 0;
}

int FileCalls::list(const char* folder, std::vector<std::string>* names) const {
  struct Close {
    void operator()(DIR* entries) const { closedir(entries); }
  };
  const std::unique_ptr<DIR, Close> entries(opendir(folder));
  if (entries == nullptr) return -1;
  names->clear();
  errno = 0;  // readdir() tells an error from the end by errno alone
  while (const dirent* entry = readdir(entries.get())) {
    names->emplace_back(entry->d_name);
    errno = 0;
  }
  return errno == 0 ? 0 : -1;
}

}  // namespace windrow
