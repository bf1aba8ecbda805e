#include "data/open_data.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <streambuf>
#include <string_view>

#include "windrow/models/datasets.h"

namespace windrow {
namespace {

/// Only the first one can be read; an error says so for the others.
constexpr std::array<std::string_view, 5> compressions = {".gz", ".bz2", ".xz", ".zst", ".zip"};

bool matches(std::string_view name, std::string_view pattern) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return name == pattern;
  const std::string_view begin = pattern.substr(0, star), end = pattern.substr(star + 1);
  return name.size() >= begin.size() + end.size() && name.starts_with(begin) && name.ends_with(end);
}

}  // namespace

std::filesystem::path uncompressed_name(const std::filesystem::path& file) {
  const bool compressed = std::ranges::find(compressions, file.extension().string()) != compressions.end();
  return compressed ? file.parent_path() / file.stem() : file;
}

std::filesystem::path file_or_compressed(const std::filesystem::path& file) {
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored)) return file;
  for (const std::string_view ending : compressions) {
    const std::filesystem::path other = file.string() + std::string(ending);
    if (std::filesystem::exists(other, ignored)) return other;
  }
  return {};
}

std::vector<std::filesystem::path> files_named(const std::filesystem::path& folder, const std::string& name) {
  std::vector<std::filesystem::path> found;
  if (name.find('*') == std::string::npos) {
    if (const auto file = file_or_compressed(folder / name); !file.empty()) found.push_back(file);
    return found;
  }
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored)) {
    const std::filesystem::path file = uncompressed_name(entry->path());
    if (matches(file.filename().string(), name)) found.push_back(file);
  }
  std::ranges::sort(found);
  const auto twice = std::ranges::unique(found);
  found.erase(twice.begin(), twice.end());
  for (std::filesystem::path& file : found) file = file_or_compressed(file);
  return found;
}

namespace {

[[noreturn]] void refuse_file(const std::filesystem::path& file, const std::string& why) {
  throw DataError(file.string() + ": " + why);
}

/// Decompresses a file while it is read. A file that is not compressed is read unchanged.
class GzipBuffer final : public std::streambuf {
 public:
  GzipBuffer(std::filesystem::path file, const std::string& what)
      : path_(std::move(file)), file_(gzopen(path_.c_str(), "rb"), &gzclose) {
    if (!file_)
      refuse_file(path_, "cannot be opened: " + std::string(std::strerror(errno)) + "; expected a file of " + what);
    gzbuffer(file_.get(), 1 << 17);
  }

 protected:
  int_type underflow() override {
    const int got = gzread(file_.get(), block_.data(), static_cast<unsigned>(block_.size()));
    int error = Z_OK;
    gzerror(file_.get(), &error);
    if (got < 0 || (got == 0 && error != Z_OK && error != Z_STREAM_END)) {
      refuse_file(path_, "is cut off or damaged; expected a whole file of gzip");
    }
    setg(block_.data(), block_.data(), block_.data() + got);
    return got == 0 ? traits_type::eof() : traits_type::to_int_type(block_[0]);
  }
  /// Tells the place in the compressed file.
  pos_type seekoff(off_type by, std::ios_base::seekdir from, std::ios_base::openmode) override {
    return by == 0 && from == std::ios_base::cur ? pos_type(gzoffset(file_.get())) : pos_type(off_type(-1));
  }

 private:
  const std::filesystem::path path_;
  const std::unique_ptr<gzFile_s, decltype(&gzclose)> file_;
  std::array<char, 1 << 16> block_;
};

class GzipStream final : public std::istream {
 public:
  GzipStream(const std::filesystem::path& file, const std::string& what) : std::istream(nullptr), buffer_(file, what) {
    rdbuf(&buffer_);
    exceptions(std::ios::badbit);  // so that errors of the buffer reach the reader
  }

 private:
  GzipBuffer buffer_;
};

}  // namespace

std::unique_ptr<std::istream> open_data(const std::filesystem::path& file, const std::string& what, Pipes pipes) {
  const std::string expected = "; expected a file of " + what;
  const std::filesystem::path found = file_or_compressed(file);
  if (found.empty()) refuse_file(file, "no such file" + expected);
  std::error_code error;
  const bool pipe = pipes == Pipes::accepted && std::filesystem::is_fifo(found, error);
  // Other kinds of files might never end.
  if (!pipe && !std::filesystem::is_regular_file(found, error)) refuse_file(found, "not a regular file" + expected);
  if (found.extension() == ".gz") return std::make_unique<GzipStream>(found, what);
  auto in = std::make_unique<std::ifstream>(found, std::ios::binary);
  if (!*in) refuse_file(found, "cannot be opened: " + std::string(std::strerror(errno)) + expected);
  return in;
}

}  // namespace windrow
