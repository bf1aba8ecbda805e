#include "data/looks_like.h"

#include <array>

namespace windrow {
namespace {

using namespace std::string_view_literals;

struct NoText {
  std::string_view begin, what, expected;
};

constexpr std::array no_texts = {
    NoText{"\x1f\x8b"sv, "a gzip file", "text, or a name that ends in .gz"},
    NoText{"BZh"sv, "a bzip2 file", "text; bunzip2 unpacks it"},
    NoText{"\xfd"
           "7zXZ\0"sv,
           "an xz file", "text; unxz unpacks it"},
    NoText{"\x28\xb5\x2f\xfd"sv, "a zstd file", "text; unzstd unpacks it"},
    NoText{"PK\x03\x04"sv, "a zip archive", "text; unzip unpacks it"},
    NoText{"7z\xbc\xaf\x27\x1c"sv, "a 7-zip archive", "text; 7z x unpacks it"},
    NoText{"\xff\xfe"sv, "text in UTF-16", "UTF-8"},
    NoText{"\xfe\xff"sv, "text in UTF-16", "UTF-8"},
    NoText{"%PDF-"sv, "a PDF document", "text"},
    NoText{"\x89HDF"sv, "an HDF5 file", "text"},
    NoText{"PAR1"sv, "a Parquet file", "text"},
    NoText{"version https://git-lfs.github.com/spec/"sv, "a pointer of Git LFS",
           "the file itself, as git lfs pull gets it"},
};

}  // namespace

std::string why_no_text(std::string_view first_bytes) {
  for (const NoText& form : no_texts) {
    // Text may begin with BZh, but what follows in a file of bzip2 is a digit and a number.
    if (!first_bytes.starts_with(form.begin)) continue;
    if (form.begin == "BZh" && first_bytes.substr(4, 6) != "1AY&SY") continue;
    return "looks like " + std::string(form.what) + "; expected " + std::string(form.expected);
  }
  const bool pickle = first_bytes.size() > 2 && first_bytes[0] == '\x80' && first_bytes[1] >= 2 && first_bytes[1] <= 5;
  return pickle ? "looks like a pickle of Python; expected text" : "";
}

}  // namespace windrow
