#include "files/open_file.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <utility>

#include "files/messages.h"

namespace windrow {
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
    if (written == 0) errno = EIO;  // or the loop might never end
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

}  // namespace windrow
