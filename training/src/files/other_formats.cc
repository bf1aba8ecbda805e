#include "files/other_formats.h"

#include <algorithm>
#include <array>

namespace windrow {
namespace {

struct Format {
  std::string_view begin, name;
};

using namespace std::string_view_literals;
constexpr std::array formats = {
    Format{"PK\x03\x04"sv, "a zip archive, as torch.save and numpy.savez write"},
    Format{"\x80\x02"sv, "a pickle of Python, as torch.save wrote"},
    Format{"\x80\x03"sv, "a pickle of Python"},
    Format{"\x80\x04"sv, "a pickle of Python"},
    Format{"\x80\x05"sv, "a pickle of Python"},
    Format{"\x1f\x8b"sv, "a file that gzip has compressed"},
    Format{"\x89HDF"sv, "an HDF5 file, as Keras writes"},
    Format{"\x93NUMPY"sv, "an array of NumPy"},
    Format{"GGUF"sv, "a GGUF file"},
    Format{"version https://git-lfs"sv, "a pointer of Git LFS; get the file itself by git lfs pull"},
    Format{"<!doctype html"sv, "a page of HTML, not what a download was to get"},
    Format{"<html"sv, "a page of HTML, not what a download was to get"},
    Format{"<?xml"sv, "an XML file"},
    Format{"{"sv, "a JSON file"},
};

char lower(char c) { return 'A' <= c && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool begins(std::string_view text, std::string_view with) {
  return text.size() >= with.size() &&
         std::equal(with.begin(), with.end(), text.begin(), [](char a, char b) { return lower(a) == lower(b); });
}

}  // namespace

std::string_view other_format(std::string_view begin) {
  constexpr std::size_t before_header = 8;  // its size, which has zeros at the end
  if (begin.size() > before_header && begin[before_header] == '{') return {};
  const bool frame_of_pickle = begin.starts_with("\x80\x04\x95") || begin.starts_with("\x80\x05\x95");
  if (begin.size() >= before_header && begin.substr(4, 4) == "\0\0\0\0"sv && !frame_of_pickle) return {};
  std::string_view text = begin;
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const std::size_t blanks = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  if (blanks < text.size() && text[blanks] == '<') text.remove_prefix(blanks);
  const auto found =
      std::find_if(formats.begin(), formats.end(), [&](const Format& format) { return begins(text, format.begin); });
  return found == formats.end() ? std::string_view() : found->name;
}

}  // namespace windrow
