// Tensors in files, in the format safetensors (https://github.com/huggingface/safetensors).
//
//   windrow::write_tensor_file("model.safetensors", {.tensors = {{"w", {3, 4}, values}}});
//   const windrow::TensorFile file("model.safetensors");
//   file.read("w", {3, 4}, values);
//
// Knows host memory only: no parameters, no devices.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "windrow/engine/error.h"
#include "windrow/training/internal/file_calls.h"

namespace windrow {

class OpenFile;

/// Sizes from the outermost dimension to the innermost; none for a scalar. At most 8.
using TensorShape = std::vector<std::uint64_t>;

enum class ElementType { f32, i32, i64, u64 };

/// A tensor to be written. A view: the elements must stay unchanged during the call. They lie row by row.
struct NamedArray {
  /// In the order of ElementType.
  using Elements = std::variant<std::span<const float>, std::span<const std::int32_t>, std::span<const std::int64_t>,
                                std::span<const std::uint64_t>>;

  std::string name;
  TensorShape shape;
  Elements elements;
};

struct TensorFileContents {
  std::vector<NamedArray> tensors = {};
  std::map<std::string, std::string> metadata = {};
};

/// Identifies the content of a tensor file. The checksums are CRC-32C.
struct TensorFileSums {
  std::uint64_t bytes = 0;   ///< size of the file
  std::uint32_t header = 0;  ///< of the JSON: names, types, shapes, places and metadata
  std::map<std::string, std::uint32_t> tensors = {};
  /// Of the names, types and shapes, independent of the places of tensors in the file. None in manifests of version 1.
  std::optional<std::uint32_t> shapes = {};

  friend bool operator==(const TensorFileSums&, const TensorFileSums&) = default;
};

/// Writes a tensor file as a whole (see WholeFile). The tensors lie in the given order. Throws MisuseError if a shape
/// does not fit its elements, a name occurs twice or is "__metadata__", or a text is not UTF-8. A header over 100 MB or
/// a million values (a matrix takes eight) throws it, too. Throws FileError if writing fails.
TensorFileSums write_tensor_file(const std::filesystem::path& path, const TensorFileContents& contents,
                                 const FileCalls& calls = FileCalls::of_system());

/// A tensor of a file.
struct StoredTensor {
  std::string name;
  ElementType type = ElementType::f32;
  TensorShape shape = {};
  std::uint64_t offset = 0;  ///< in the file, in bytes
  std::uint64_t bytes = 0;
};

/// A tensor file that is open for reading. Only the header is in memory. An owner.
///
/// Errors: FileError if the file cannot be read, is no valid tensor file, or differs from what a call expects. Each
/// byte must belong to the header or to exactly one tensor. If the file shrinks while it is open, the read that misses
/// bytes throws. Other changes in place are not detected, but WholeFile makes none. Threads: const calls may run
/// concurrently.
class TensorFile {
 public:
  using Elements =
      std::variant<std::span<float>, std::span<std::int32_t>, std::span<std::int64_t>, std::span<std::uint64_t>>;

  /// Reads and checks the header. `calls` must outlive this object.
  explicit TensorFile(const std::filesystem::path& path, const FileCalls& calls = FileCalls::of_system());
  ~TensorFile();
  TensorFile(TensorFile&&) noexcept;
  TensorFile& operator=(TensorFile&&) noexcept;

  const std::filesystem::path& path() const { return path_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// In the order of the file.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  bool contains(std::string_view name) const { return index_.contains(name); }
  /// Throws FileError if there is no such tensor.
  const StoredTensor& at(std::string_view name) const;

  /// Reads a tensor. Throws FileError unless the tensor has this shape and the type of `to`, and MisuseError if `to`
  /// does not have as many elements as the shape.
  void read(std::string_view name, const TensorShape& shape, Elements to) const;
  /// Reads the whole file once, and computes its checksums.
  TensorFileSums sums() const;

 private:
  std::filesystem::path path_;
  std::unique_ptr<OpenFile> file_;
  std::map<std::string, std::string> metadata_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> index_;  // in tensors_
  std::uint64_t bytes_ = 0;
  std::uint32_t header_sum_ = 0;
};

/// Thrown when a file cannot be read or written, or holds something other than expected. The text is one line: the
/// file, what is wrong, and what was expected. Control characters in names are escaped.
class FileError : public Error {
 public:
  using Error::Error;
};

}  // namespace windrow
