#include "windrow/training/internal/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "files/messages.h"
#include "files/open_file.h"

namespace windrow {
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
  // Never more open than the old file, not even for a moment.
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
  const OpenFile file(path, {.flags = O_RDONLY | O_NONBLOCK}, calls);  // or opening a pipe would wait for its writer
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
