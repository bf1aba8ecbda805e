// Shared by tests of files: a folder for each test, and system calls that fail, are counted, or touch no disk.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "windrow/training/internal/file_calls.h"
#include "windrow/training/tensor_file.h"

namespace windrow::testing {

inline std::string content_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void put(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

/// The message of the FileError that a call throws. Expects one, of one line.
template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const FileError& error) {
    const std::string what = error.what();
    EXPECT_EQ(what.find('\n'), what.npos) << what;
    return what;
  }
  ADD_FAILURE() << "expected a FileError";
  return {};
}

/// A test with a folder of its own.
class FileTest : public ::testing::Test {
 protected:
  FileTest() {
    std::string name = ::testing::TempDir() + "windrow_XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for the test");
    folder = name;
  }
  ~FileTest() override { std::filesystem::remove_all(folder); }

  std::filesystem::path folder;
};

/// What happens to one call.
enum class Fault {
  refused,      ///< it does nothing and sets errno
  interrupted,  ///< the same with EINTR; only calls that signals interrupt count
  shortened,    ///< a read or write of one byte; only these count
  killed,       ///< a write stops half way, and no later call does anything, as if the process had been killed
};

struct FaultPlan {
  Fault fault = Fault::refused;
  std::size_t at = static_cast<std::size_t>(-1);  ///< number of the call, from 0
  int error = EIO;                                ///< the value of errno for `refused`
};

/// The calls of the system, except that fsync() does not wait for the disk, and that one call suffers a fault.
class FaultyCalls : public FileCalls {
 public:
  explicit FaultyCalls(FaultPlan plan = {}) : plan_(plan) {}

  bool struck() const { return calls_ > plan_.at; }
  /// The call that suffered, such as "rename b.json".
  const std::string& victim() const { return victim_; }

  int open(const char* path, int flags, unsigned mode) const override {
    const int file = fails("open", path, Signals::interrupt) ? -1 : FileCalls::open(path, flags, mode);
    if (file >= 0) path_of_[file] = path;
    return file;
  }
  std::ptrdiff_t write(int file, const void* from, std::size_t bytes) const override {
    if (fails("write", path_of_[file], Signals::interrupt, Part::allowed)) {
      if (plan_.fault == Fault::killed && calls_ == plan_.at + 1) FileCalls::write(file, from, bytes / 2);
      return -1;
    }
    return FileCalls::write(file, from, part(bytes));
  }
  std::ptrdiff_t pread(int file, void* to, std::size_t bytes, std::uint64_t offset) const override {
    if (fails("pread", path_of_[file], Signals::interrupt, Part::allowed)) return -1;
    return FileCalls::pread(file, to, part(bytes), offset);
  }
  int fsync(int file) const override { return fails("fsync", path_of_[file], Signals::interrupt) ? -1 : 0; }
  int close(int file) const override {
    const bool failed = fails("close", path_of_[file], Signals::interrupt);
    FileCalls::close(file);  // in any case, since the kernel closes the files of the dead
    return failed ? -1 : 0;
  }
  int fstat(int file, struct stat* status) const override {
    return fails("fstat", path_of_[file]) ? -1 : FileCalls::fstat(file, status);
  }
  int fchmod(int file, unsigned mode) const override {
    return fails("fchmod", path_of_[file], Signals::interrupt) ? -1 : FileCalls::fchmod(file, mode);
  }
  int flock(int file, int operation) const override {
    return fails("flock", path_of_[file], Signals::interrupt) ? -1 : FileCalls::flock(file, operation);
  }
  int stat(const char* path, struct stat* status) const override {
    return fails("stat", path) ? -1 : FileCalls::stat(path, status);
  }
  int access(const char* path, int mode) const override {
    return fails("access", path) ? -1 : FileCalls::access(path, mode);
  }
  int rename(const char* from, const char* to) const override {
    return fails("rename", to) ? -1 : FileCalls::rename(from, to);
  }
  int unlink(const char* path) const override { return fails("unlink", path) ? -1 : FileCalls::unlink(path); }
  int mkdir(const char* path, unsigned mode) const override {
    return fails("mkdir", path) ? -1 : FileCalls::mkdir(path, mode);
  }
  int realpath(const char* path, std::string* to) const override {
    return fails("realpath", path) ? -1 : FileCalls::realpath(path, to);
  }
  int list(const char* path, std::vector<std::string>* names) const override {
    return fails("list", path) ? -1 : FileCalls::list(path, names);
  }

 private:
  enum class Signals { pass, interrupt };
  enum class Part { whole, allowed };

  bool fails(const std::string& call, const std::string& path, Signals signals = Signals::pass,
             Part part = Part::whole) const {
    now_ = false;
    if (plan_.fault == Fault::interrupted && signals == Signals::pass) return false;
    if (plan_.fault == Fault::shortened && part == Part::whole) return false;
    now_ = calls_++ == plan_.at;
    if (now_) victim_ = call + " " + std::filesystem::path(path).filename().string();
    errno = plan_.fault == Fault::interrupted ? EINTR : plan_.error;
    return plan_.fault == Fault::killed ? struck() : now_ && plan_.fault != Fault::shortened;
  }
  std::size_t part(std::size_t bytes) const {
    return now_ && plan_.fault == Fault::shortened ? std::min<std::size_t>(bytes, 1) : bytes;
  }

  const FaultPlan plan_;
  mutable std::size_t calls_ = 0;
  mutable bool now_ = false;  // the current call suffers
  mutable std::string victim_;
  mutable std::map<int, std::string> path_of_;
};

/// Files in memory, for reading. Each lies in memory of exactly its size, so a sanitizer notices reads beyond it.
class MemoryCalls : public FileCalls {
 public:
  std::map<std::string, std::vector<char>> files;

  int open(const char* path, int, unsigned) const override {
    const auto found = files.find(path);
    if (found == files.end()) return errno = ENOENT, -1;
    return static_cast<int>(std::distance(files.begin(), found));
  }
  std::ptrdiff_t pread(int file, void* to, std::size_t bytes, std::uint64_t offset) const override {
    const std::vector<char>& content = at(file);
    if (offset >= content.size()) return 0;
    const std::size_t most = std::min(bytes, content.size() - static_cast<std::size_t>(offset));
    std::memcpy(to, content.data() + offset, most);
    return static_cast<std::ptrdiff_t>(most);
  }
  int fstat(int file, struct stat* status) const override {
    *status = {};
    status->st_mode = S_IFREG | 0644;
    status->st_size = static_cast<off_t>(at(file).size());
    return 0;
  }
  int close(int) const override { return 0; }
  int list(const char*, std::vector<std::string>* names) const override {
    names->clear();
    for (const auto& [path, content] : files) names->push_back(std::filesystem::path(path).filename());
    return 0;
  }

 private:
  const std::vector<char>& at(int file) const { return std::next(files.begin(), file)->second; }
};

}  // namespace windrow::testing
