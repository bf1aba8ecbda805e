#include "windrow/training/internal/file_format.h"

#include <algorithm>
#include <array>

namespace windrow {
namespace {

using namespace std::string_view_literals;

struct KnownFormat {
  std::string_view begin;
  FileFormat format;
};

constexpr auto pickle = ", as torch.save wrote"sv;
constexpr auto page = ", which a download may get instead of a file"sv;
constexpr std::array all_known = {
    KnownFormat{"\x1f\x8b"sv, {"a gzip file", "", "gunzip unpacks it"}},
    KnownFormat{"BZh"sv, {"a bzip2 file", "", "bunzip2 unpacks it"}},
    KnownFormat{"\xfd"
                "7zXZ\0"sv,
                {"an xz file", "", "unxz unpacks it"}},
    KnownFormat{"\x28\xb5\x2f\xfd"sv, {"a zstd file", "", "unzstd unpacks it"}},
    KnownFormat{"PK\x03\x04"sv, {"a zip archive", ", as torch.save and numpy.savez write", "unzip unpacks it"}},
    KnownFormat{"7z\xbc\xaf\x27\x1c"sv, {"a 7-zip archive", "", "7z x unpacks it"}},
    KnownFormat{"\x80\x02"sv, {"a pickle of Python", pickle, ""}},
    KnownFormat{"\x80\x03"sv, {"a pickle of Python", pickle, ""}},
    KnownFormat{"\x80\x04"sv, {"a pickle of Python", pickle, ""}},
    KnownFormat{"\x80\x05"sv, {"a pickle of Python", pickle, ""}},
    KnownFormat{"\xff\xfe"sv, {"text in UTF-16", "", "iconv -f UTF-16 -t UTF-8 converts it"}},
    KnownFormat{"\xfe\xff"sv, {"text in UTF-16", "", "iconv -f UTF-16 -t UTF-8 converts it"}},
    KnownFormat{"%PDF-"sv, {"a PDF document", "", ""}},
    KnownFormat{"\x89HDF"sv, {"an HDF5 file", ", as Keras writes", ""}},
    KnownFormat{"PAR1\x15"sv, {"a Parquet file", "", ""}},
    KnownFormat{"\x93NUMPY"sv, {"an array of NumPy", "", ""}},
    KnownFormat{"GGUF\x02\0\0\0"sv, {"a GGUF file", "", ""}},
    KnownFormat{"GGUF\x03\0\0\0"sv, {"a GGUF file", "", ""}},
    KnownFormat{"version https://git-lfs.github.com/spec/"sv,
                {"a pointer of Git LFS", "", "git lfs pull gets the file itself"}},
    KnownFormat{"<!doctype html"sv, {"a page of HTML", page, "", true}},
    KnownFormat{"<html"sv, {"a page of HTML", page, "", true}},
    KnownFormat{"<?xml"sv, {"an XML file", "", "", true}},
    KnownFormat{"{"sv, {"a JSON file", "", "", true}},
};

char lower(char c) { return 'A' <= c && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool begins(std::string_view text, const KnownFormat& known) {
  const std::string_view with = known.begin;
  if (text.size() < with.size()) return false;
  const auto same = [&](char a, char b) { return known.format.text ? lower(a) == lower(b) : a == b; };
  if (!std::equal(with.begin(), with.end(), text.begin(), same)) return false;
  // Text may begin with BZh, too; in a file of bzip2, a digit and a fixed number follow.
  return with != "BZh" || (text.size() >= 10 && text.substr(4, 6) == "1AY&SY");
}

/// Whether this may be a file of tensors: the size of its header, which has zeros at the end, and the header.
bool may_be_tensors(std::string_view bytes) {
  constexpr std::size_t before_header = 8;
  if (bytes.size() > before_header && bytes[before_header] == '{') return true;
  // A pickle frame, and a gzip file without a time, can have zeros there, too.
  const auto others = {"\x80\x04\x95"sv, "\x80\x05\x95"sv, "\x1f\x8b\x08"sv};
  const bool is_other = std::ranges::any_of(others, [&](std::string_view begin) { return bytes.starts_with(begin); });
  return bytes.size() >= before_header && bytes.substr(4, 4) == "\0\0\0\0"sv && !is_other;
}

}  // namespace

FileFormat file_format(std::string_view first_bytes) {
  if (may_be_tensors(first_bytes)) return {};
  std::string_view text = first_bytes;
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const std::size_t blanks = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  if (blanks < text.size() && text[blanks] == '<') text.remove_prefix(blanks);
  const auto found =
      std::find_if(all_known.begin(), all_known.end(), [&](const KnownFormat& known) { return begins(text, known); });
  return found == all_known.end() ? FileFormat{} : found->format;
}

}  // namespace windrow
