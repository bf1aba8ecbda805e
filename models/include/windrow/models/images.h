// Labelled grey images, as of MNIST: read from IDX files or generated.
//
//   train-images-idx3-ubyte, train-labels-idx1-ubyte     the names of the published files (LeCun et al. 1998), without
//   t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte       the extension of their compression
#pragma once
#include "windrow/engine/requirements.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "windrow/models/vocabulary.h"

namespace windrow {

inline constexpr std::int64_t most_pixels_a_side = 4096;

/// Images of one size. A value.
struct LabelledImages {
  std::int64_t height = 0, width = 0;
  std::vector<std::uint8_t> pixels = {};  ///< image by image, row by row; 0 is the background, 255 full ink
  std::vector<std::uint8_t> labels = {};  ///< one for each image

  std::size_t size() const { return labels.size(); }
  std::span<const std::uint8_t> image(std::size_t number) const {
    const auto each = static_cast<std::size_t>(height * width);
    return std::span(pixels).subspan(number * each, each);
  }
};

/// A file in the IDX format: a matrix of bytes, or of fewer or more dimensions. Errors mention `name`.
struct NamedBytes {
  std::istream& in;
  std::string name;
};

/// Reads images (three dimensions) and their labels (one dimension). Throws DataError if a file cannot be read, is
/// shorter or longer than its header says, has other elements than bytes or other dimensions, or contains no image; if
/// an image is larger than 4096 pixels a side; if there are not as many labels as images; and for a label above 9.
LabelledImages read_idx(NamedBytes images, NamedBytes labels);
/// The same from files. Throws DataError also if one is not a regular file or cannot be opened.
LabelledImages read_idx(const std::filesystem::path& images, const std::filesystem::path& labels);

/// Writes both files of read_idx().
void write_idx(const LabelledImages& images, std::ostream& to_images, std::ostream& to_labels);

/// Generates images of 28 x 28 pixels of the digits 0 to 9, all equally frequent: strokes that are moved, scaled,
/// slanted, bent and of varying thickness, with noise. The same seed gives the same images.
LabelledImages generate_digits(std::size_t count, std::uint64_t seed);

}  // namespace windrow
