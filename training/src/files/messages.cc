#include "files/messages.h"

#include <system_error>

#include "windrow/training/file_error.h"

namespace windrow {
namespace {

std::string escaped(std::string_view text) {
  constexpr char digits[] = "0123456789abcdef";
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      result += c;
    } else {
      result += {'\\', 'x', digits[byte / 16], digits[byte % 16]};
    }
  }
  return result;
}

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

}  // namespace

std::string shortened(std::string_view name, std::size_t longest) {
  if (name.size() <= longest) return escaped(name);
  std::size_t end = longest;
  while (end > 0 && continues_character(name[end])) --end;
  return escaped(name.substr(0, end)) + "...";
}

std::string in_quotes(std::string_view name) { return "'" + shortened(name) + "'"; }

std::string shown(const std::filesystem::path& path) { return escaped(path.native()); }

void refuse_call(const std::filesystem::path& path, std::string_view call, int error) {
  throw FileError(shown(path) + ": " + std::string(call) + " failed: " + std::generic_category().message(error));
}

}  // namespace windrow
