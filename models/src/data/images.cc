#include <algorithm>
#include <array>
#include <istream>
#include <ostream>
#include <utility>

#include "data/open_data.h"
#include "windrow/models/datasets.h"

namespace windrow {
namespace {

/// The content of a file whose header has been read.
struct Idx {
  std::vector<std::int64_t> sizes;
  std::vector<std::uint8_t> bytes;
};

[[noreturn]] void refuse(const NamedBytes& file, const std::string& why) { throw DataError(file.name + ": " + why); }

std::uint32_t big_endian(const std::array<char, 4>& bytes) {
  std::uint32_t number = 0;
  for (const char byte : bytes) number = number << 8 | static_cast<unsigned char>(byte);
  return number;
}

std::uint32_t next_number(const NamedBytes& file) {
  std::array<char, 4> bytes;
  if (!file.in.read(bytes.data(), bytes.size())) refuse(file, "ends within its header; expected a file in IDX format");
  return big_endian(bytes);
}

/// Reads up to `most` bytes, and returns their number. Allocates memory only for bytes that exist, whatever number a
/// header states.
std::uint64_t read_until_end(const NamedBytes& file, std::uint64_t most, std::vector<std::uint8_t>& bytes) {
  constexpr std::size_t block = 1 << 20;
  std::vector<char> next(block);
  std::uint64_t found = 0;
  do {
    file.in.read(next.data(), static_cast<std::streamsize>(block));
    const auto got = static_cast<std::uint64_t>(file.in.gcount());
    const auto kept = static_cast<std::ptrdiff_t>(std::min(got, most - std::min(most, found)));
    bytes.insert(bytes.end(), next.begin(), next.begin() + kept);
    found += got;
  } while (file.in);
  if (file.in.bad()) refuse(file, "cannot be read");
  return found;
}

Idx read_bytes(const NamedBytes& file, std::uint32_t dimensions, const std::string& what) {
  constexpr std::uint32_t unsigned_bytes = 0x08;
  const std::uint32_t magic = next_number(file), expected = unsigned_bytes << 8 | dimensions;
  if (magic >> 16 == 0x1f8b) refuse(file, "looks like a gzip file; expected " + what + ", or a name that ends in .gz");
  if (magic != expected) {
    refuse(file, "begins with the number " + std::to_string(magic) + "; expected " + std::to_string(expected) + ", " +
                     what + " in IDX format");
  }
  Idx idx;
  std::uint64_t bytes = 1;
  constexpr std::uint64_t most = std::uint64_t{1} << 40;
  for (std::uint32_t d = 0; d < dimensions; ++d) {
    idx.sizes.push_back(next_number(file));
    const auto size = static_cast<std::uint64_t>(idx.sizes.back());
    if (size > most / std::max<std::uint64_t>(bytes, 1)) {
      refuse(file, "a header of more than 2^40 elements; expected " + what);
    }
    bytes *= size;
  }
  const std::uint64_t found = read_until_end(file, bytes, idx.bytes);
  if (found != bytes) {
    refuse(file, std::to_string(found) + " bytes behind its header; expected " + std::to_string(bytes));
  }
  return idx;
}

void write_number(std::ostream& to, std::uint32_t number) {
  for (int shift = 24; shift >= 0; shift -= 8) to.put(static_cast<char>(number >> shift & 0xff));
}

void write_bytes(std::ostream& to, const std::vector<std::uint8_t>& bytes) {
  to.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace

LabelledImages read_idx(NamedBytes image_file, NamedBytes label_file) {
  Idx images = read_bytes(image_file, 3, "images");
  Idx labels = read_bytes(label_file, 1, "labels");
  if (images.bytes.empty()) {
    refuse(image_file, std::to_string(images.sizes[0]) + " images of " + std::to_string(images.sizes[1]) + " x " +
                           std::to_string(images.sizes[2]) + " pixels; expected at least 1 image of 1 x 1");
  }
  for (const std::size_t side : {1, 2}) {
    if (images.sizes[side] <= most_pixels_a_side) continue;
    refuse(image_file, "images of " + std::to_string(images.sizes[1]) + " x " + std::to_string(images.sizes[2]) +
                           " pixels; expected at most " + std::to_string(most_pixels_a_side) + " a side");
  }
  if (labels.sizes[0] != images.sizes[0]) {
    refuse(label_file, std::to_string(labels.sizes[0]) + " labels for " + std::to_string(images.sizes[0]) +
                           " images; expected as many");
  }
  for (std::size_t i = 0; i < labels.bytes.size(); ++i) {
    if (labels.bytes[i] <= 9) continue;
    refuse(label_file,
           "label " + std::to_string(labels.bytes[i]) + " of image " + std::to_string(i + 1) + "; expected 0 to 9");
  }
  return {images.sizes[1], images.sizes[2], std::move(images.bytes), std::move(labels.bytes)};
}

LabelledImages read_idx(const std::filesystem::path& images, const std::filesystem::path& labels) {
  const auto from = open_data(images, "images in IDX format"), of = open_data(labels, "labels in IDX format");
  return read_idx(NamedBytes{*from, images.string()}, NamedBytes{*of, labels.string()});
}

void write_idx(const LabelledImages& images, std::ostream& to_images, std::ostream& to_labels) {
  const auto count = static_cast<std::uint32_t>(images.size());
  for (const std::uint32_t number :
       {0x0803u, count, static_cast<std::uint32_t>(images.height), static_cast<std::uint32_t>(images.width)}) {
    write_number(to_images, number);
  }
  write_bytes(to_images, images.pixels);
  for (const std::uint32_t number : {0x0801u, count}) write_number(to_labels, number);
  write_bytes(to_labels, images.labels);
}

}  // namespace windrow
