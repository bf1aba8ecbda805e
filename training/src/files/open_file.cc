#include "files/open_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "files/messages.h"
#include "windrow/training/internal/file_calls.h"
#include "windrow/training/internal/whole_file.h"

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

namespace {

template <class Call>
auto repeat_if_interrupted(Call call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

}  // namespace

OpenFile::OpenFile(std::filesystem::path path, OpenFlags flags, const FileCalls& calls)
    : path_(std::move(path)),
      calls_(calls),
      file_(repeat_if_interrupted([&] { return calls.open(path_.c_str(), flags.flags | O_CLOEXEC, flags.mode); })) {
  if (file_ >= 0) return;
  if (errno == EEXIST) throw PathExists(shown(path_) + ": exists; expected no file");
  refuse("open");
}

OpenFile::~OpenFile() {
  if (file_ >= 0) calls_.close(file_);
}

void OpenFile::refuse(const char* call) const { refuse_call(path_, call, errno); }

std::uint64_t OpenFile::regular_size() const {
  struct stat status;
  if (calls_.fstat(file_, &status) != 0) refuse("fstat");
  if (!S_ISREG(status.st_mode)) throw FileError(shown(path_) + ": no regular file; expected one");
  return static_cast<std::uint64_t>(status.st_size);
}

void OpenFile::read(std::span<std::byte> to, std::uint64_t offset) const {
  while (!to.empty()) {
    const auto got = repeat_if_interrupted([&] { return calls_.pread(file_, to.data(), to.size(), offset); });
    if (got < 0) refuse("pread");
    if (got == 0) {
      throw FileError(shown(path_) + ": ends at byte " + std::to_string(offset) + " while being read; expected " +
                      std::to_string(to.size()) + " more bytes");
    }
    to = to.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

void OpenFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto written = repeat_if_interrupted([&] { return calls_.write(file_, bytes.data(), bytes.size()); });
    if (written == 0) errno = EIO;  // otherwise the loop might never end
    if (written <= 0) refuse("write");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void OpenFile::set_mode(unsigned mode) {
  if (repeat_if_interrupted([&] { return calls_.fchmod(file_, mode); }) != 0) refuse("fchmod");
}

void OpenFile::sync() {
  if (repeat_if_interrupted([&] { return calls_.fsync(file_); }) != 0) refuse("fsync");
}

void OpenFile::sync_folder() {
  if (repeat_if_interrupted([&] { return calls_.fsync(file_); }) != 0 && errno != EINVAL) refuse("fsync");
}

bool OpenFile::lock() {
  if (repeat_if_interrupted([&] { return calls_.flock(file_, LOCK_EX | LOCK_NB); }) == 0) return true;
  if (errno != EWOULDBLOCK) refuse("flock");
  return false;
}

void OpenFile::close() {
  const int file = std::exchange(file_, -1);
  // Linux closes the file even if a signal interrupts close().
  if (calls_.close(file) != 0 && errno != EINTR) refuse("close");
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.parent_path();
  return folder.empty() ? "." : folder;
}

std::vector<std::string> list_folder(const std::filesystem::path& folder, const FileCalls& calls) {
  std::vector<std::string> names;
  if (calls.list(folder.c_str(), &names) != 0) refuse_call(folder, "readdir", errno);
  return names;
}

void sync_folder(const std::filesystem::path& folder, const FileCalls& calls) {
  OpenFile(folder, {.flags = O_RDONLY | O_DIRECTORY}, calls).sync_folder();
}

namespace {

namespace fs = std::filesystem;

/// The permissions of the file at `path`, or nothing if there is none.
std::optional<unsigned> mode_of(const fs::path& path, const FileCalls& calls) {
  struct stat status;
  if (calls.stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return {};
    refuse_call(path, "stat", errno);
  }
  // Writing to a pipe or a device might block forever or lose the content.
  if (!S_ISREG(status.st_mode)) throw FileError(shown(path) + ": no regular file; expected one, or no file");
  if (calls.access(path.c_str(), W_OK) != 0) refuse_call(path, "access", errno);
  return status.st_mode & 07777;
}

fs::path without_links(const fs::path& path, const FileCalls& calls) {
  std::string result;
  if (calls.realpath(path.c_str(), &result) != 0) refuse_call(path, "realpath", errno);
  return result;
}

/// Opens a file beside `target` that did not exist.
std::unique_ptr<OpenFile> open_beside(const fs::path& target, unsigned mode, const FileCalls& calls) {
  for (unsigned number = 0;; ++number) {
    fs::path path = target;
    path += "." + std::to_string(getpid()) + "-" + std::to_string(number) + ".new";
    try {
      return std::make_unique<OpenFile>(path, OpenFlags{.flags = O_WRONLY | O_CREAT | O_EXCL, .mode = mode}, calls);
    } catch (const PathExists&) {  // of a process that was killed
    }
  }
}

}  // namespace

WholeFile::WholeFile(const fs::path& path, const FileCalls& calls)
    : calls_(calls), target_(path), mode_(mode_of(path, calls)) {
  if (mode_) target_ = without_links(path, calls);
  // The new file never has more permissions than the old one, not even for a moment.
  file_ = open_beside(target_, mode_ ? *mode_ & 0777 : 0666, calls);
  temporary_ = file_->path();
}

WholeFile::~WholeFile() {
  if (!temporary_.empty()) calls_.unlink(temporary_.c_str());
}

void WholeFile::write(std::span<const std::byte> bytes) { file_->write(bytes); }
void WholeFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void WholeFile::commit() {
  if (mode_) file_->set_mode(*mode_);
  file_->sync();
  file_->close();
  OpenFile folder(folder_of(target_), {.flags = O_RDONLY | O_DIRECTORY}, calls_);
  if (calls_.rename(temporary_.c_str(), target_.c_str()) != 0) refuse_call(target_, "rename", errno);
  temporary_.clear();
  folder.sync_folder();
}

std::string read_whole_file(const fs::path& path, std::size_t most_bytes, const FileCalls& calls) {
  const OpenFile file(path, {.flags = O_RDONLY | O_NONBLOCK}, calls);  // else opening a pipe would wait for a writer
  const std::uint64_t size = file.regular_size();
  if (size > most_bytes) {
    throw FileError(shown(path) + ": has " + std::to_string(size) + " bytes; expected at most " +
                    std::to_string(most_bytes));
  }
  std::string text(static_cast<std::size_t>(size), '\0');
  file.read(std::as_writable_bytes(std::span(text)), 0);
  return text;
}

}  // namespace windrow
