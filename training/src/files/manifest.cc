#include "files/manifest.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <system_error>

#include "files/crc32c.h"
#include "files/messages.h"
#include "windrow/engine/error.h"
#include "windrow/training/internal/whole_file.h"
#include "windrow/training/tensor_file.h"

namespace windrow {
namespace {

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::optional<std::uint64_t> step_of(std::string_view text) {
  std::uint64_t step = 0;
  const char* end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, step);
  const bool canonical = error == std::errc() && parsed == end && step_name(step) == text;
  return canonical ? std::optional(step) : std::nullopt;
}

bool remove_ending(std::string_view& name, std::string_view ending) {
  if (!name.ends_with(ending)) return false;
  name.remove_suffix(ending.size());
  return true;
}

}  // namespace

std::string step_name(std::uint64_t step) {
  const std::string digits = std::to_string(step);
  constexpr std::size_t width = 12;  // so that names sort like steps, up to 10^12
  return std::string(width - std::min(width, digits.size()), '0') + digits;
}

std::string manifest_name(std::uint64_t step) { return step_name(step) + std::string(manifest_ending); }

std::optional<std::uint64_t> step_of_manifest(std::string_view name) {
  return remove_ending(name, manifest_ending) ? step_of(name) : std::nullopt;
}

std::optional<std::uint64_t> step_of_tensors(std::string_view name) {
  if (!remove_ending(name, tensors_ending)) return {};
  const std::size_t dash = name.find('-');
  if (dash != name.npos && !all_digits(name.substr(dash + 1))) return {};
  return step_of(name.substr(0, dash));
}

bool is_unfinished(std::string_view name) {
  if (!remove_ending(name, ".new")) return false;
  const std::size_t dot = name.rfind('.');
  if (dot == name.npos) return false;
  const std::string_view process = name.substr(dot + 1), target = name.substr(0, dot);
  const std::size_t dash = process.find('-');
  return dash != process.npos && all_digits(process.substr(0, dash)) && all_digits(process.substr(dash + 1)) &&
         (step_of_manifest(target) || step_of_tensors(target));
}

namespace {

const RecordFormat format{.name = "windrow checkpoint", .newest_version = 2};

std::uint32_t checksum_of(const Record& record) {
  const std::string text = record.json(JsonStyle::compact);
  return crc32c(std::as_bytes(std::span(text)));
}

std::uint32_t parse_checksum(const RecordValue& value, const std::string& file) {
  const std::string& text = value.text();
  std::uint32_t checksum = 0;
  for (const char c : text) {
    const std::size_t digit = std::string_view("0123456789abcdef").find(c);
    if (digit == std::string_view::npos || text.size() != 8) {
      throw FileError(file + ": has checksum " + in_quotes(text) + "; expected 8 hexadecimal digits");
    }
    checksum = checksum << 4 | static_cast<std::uint32_t>(digit);
  }
  return checksum;
}

void require_only(const Record& record, std::span<const std::string_view> names, const std::string& file) {
  for (const auto& [name, value] : record.values()) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw FileError(file + ": has " + in_quotes(name) + "; expected the values of format version 2 only");
    }
  }
}

TensorFileSums parse_sums(const Record& record, const std::string& file) {
  constexpr std::array<std::string_view, 5> names = {"bytes", "header", "name", "shapes", "tensors"};
  require_only(record, names, file);
  TensorFileSums sums{.bytes = record.at("bytes").count(), .header = parse_checksum(record.at("header"), file)};
  for (const auto& [name, value] : record.at("tensors").record().values()) {
    sums.tensors.emplace(name, parse_checksum(value, file));
  }
  if (record.contains("shapes")) sums.shapes = parse_checksum(record.at("shapes"), file);
  return sums;
}

Record record_of(const TensorFileSums& sums) {
  Record tensors;
  for (const auto& [name, checksum] : sums.tensors) tensors.set(name, checksum_text(checksum));
  Record record;
  record.set("bytes", sums.bytes).set("header", checksum_text(sums.header)).set("tensors", tensors);
  return sums.shapes ? record.set("shapes", checksum_text(*sums.shapes)) : record;
}

[[noreturn]] void refuse_checksum(const std::string& what, std::uint32_t found, std::uint32_t expected) {
  throw FileError(what + " has checksum " + checksum_text(found) + "; expected " + checksum_text(expected));
}

}  // namespace

std::string manifest_text(const Manifest& manifest) {
  Record record;
  record.set_format(format)
      .set("step", manifest.step)
      .set("tensor_file", record_of(manifest.sums).set("name", manifest.tensor_file))
      .set("document", manifest.document);
  record.set("checksum", checksum_text(checksum_of(record)));
  const std::string text = record.json();
  if (text.size() > most_manifest_bytes) {
    throw MisuseError("a checkpoint with a manifest of " + std::to_string(text.size()) +
                      " bytes; expected at most 100 MB");
  }
  return text;
}

Manifest parse_manifest(std::string_view text, const std::string& file) {
  Record record = Record::parse(text, file + ": manifest");
  record.require_format(format);
  constexpr std::array<std::string_view, 6> names = {"checksum", "document",    "format",
                                                     "step",     "tensor_file", "version"};
  require_only(record, names, file);

  const std::uint32_t expected = parse_checksum(record.at("checksum"), file);
  record.remove("checksum");
  const std::uint32_t found = checksum_of(record);
  if (found != expected) refuse_checksum(file + ": manifest", found, expected);

  const Record& tensor_file = record.at("tensor_file").record();
  Manifest manifest{.step = record.at("step").count(),
                    .tensor_file = tensor_file.at("name").text(),
                    .sums = parse_sums(tensor_file, file),
                    .document = record.at("document").record()};
  if (step_of_tensors(manifest.tensor_file) != std::optional(manifest.step)) {
    throw FileError(file + ": names the tensor file " + in_quotes(manifest.tensor_file) + "; expected one of step " +
                    std::to_string(manifest.step));
  }
  return manifest;
}

Manifest read_manifest(const std::filesystem::path& file, const FileCalls& calls) {
  return parse_manifest(read_whole_file(file, most_manifest_bytes, calls), shown(file));
}

void require_same(const TensorFileSums& found, const TensorFileSums& expected, const std::string& file) {
  // Another program may have written the same tensors in another order, with another header. Older manifests have only
  // the checksum of the header.
  if (expected.shapes && found.shapes != expected.shapes) {
    refuse_checksum(file + ": header", found.shapes.value_or(0), *expected.shapes);
  }
  if (!expected.shapes && found.header != expected.header) {
    refuse_checksum(file + ": header", found.header, expected.header);
  }
  for (const auto& [name, checksum] : expected.tensors) {
    const auto other = found.tensors.find(name);
    if (other == found.tensors.end()) throw FileError(file + ": has no tensor " + in_quotes(name) + "; expected one");
    if (other->second != checksum) refuse_checksum(file + ": tensor " + in_quotes(name), other->second, checksum);
  }
  for (const auto& [name, checksum] : found.tensors) {
    if (expected.tensors.contains(name)) continue;
    throw FileError(file + ": has tensor " + in_quotes(name) + ", which its manifest lacks; expected its tensors only");
  }
}

}  // namespace windrow
