// The header of a tensor file, in memory. Knows no files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "windrow/training/tensor_file.h"

namespace windrow {

/// The largest JSON that a header may have, as in other readers of the format.
constexpr std::uint64_t most_header_bytes = 100'000'000;

struct TensorHeader {
  std::map<std::string, std::string> metadata = {};
  std::vector<StoredTensor> tensors = {};  ///< by offset
};

/// Where the JSON of a header lies: its file, for errors, and the sizes of both.
struct HeaderPlace {
  std::string file;
  std::uint64_t header_bytes;  ///< of the JSON
  std::uint64_t file_bytes;    ///< at least 8 + header_bytes

  /// The offset of the first tensor.
  std::uint64_t data() const { return 8 + header_bytes; }
};

/// Throws FileError unless the header is valid, and the tensors cover the rest of the file.
TensorHeader parse_header(std::string_view json, const HeaderPlace& place);

/// The JSON of a header, padded with spaces so that tensors begin at a multiple of 8. Throws MisuseError as
/// write_tensor_file() does.
std::string header_json(const TensorFileContents& contents);

/// Such as "3 x 4 of F32".
std::string described(const TensorShape& shape, ElementType type);

ElementType type_of(const NamedArray& tensor);
std::span<const std::byte> bytes_of(const NamedArray& tensor);
std::uint64_t element_bytes(ElementType type);

}  // namespace windrow
