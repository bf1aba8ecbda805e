#include "windrow/training/tensor_file.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "files/crc32c.h"
#include "files/messages.h"
#include "files/open_file.h"
#include "files/tensor_header.h"
#include "windrow/engine/error.h"
#include "windrow/training/internal/file_format.h"
#include "windrow/training/internal/whole_file.h"

namespace windrow {
namespace {

static_assert(std::endian::native == std::endian::little, "tensor files are little-endian, and written as they lie");

/// The size of the JSON, which is the first word of a file of `file_bytes` bytes.
std::uint64_t header_bytes(const OpenFile& file, std::uint64_t file_bytes) {
  const std::string name = shown(file.path());
  std::array<char, 256> begin{};
  const std::size_t looked_at = std::min<std::uint64_t>(begin.size(), file_bytes);
  file.read(std::as_writable_bytes(std::span(begin).first(looked_at)), 0);
  if (const FileFormat other = file_format(std::string_view(begin.data(), looked_at)); !other.name.empty()) {
    throw FileError(name + ": looks like " + std::string(other.name) + std::string(other.writer) +
                    "; expected a tensor file (safetensors)");
  }
  if (file_bytes < 8) {
    throw FileError(name + ": has " + std::to_string(file_bytes) + " bytes; expected a tensor file, at least 8 bytes");
  }
  std::uint64_t size = 0;
  std::memcpy(&size, begin.data(), sizeof size);
  const std::uint64_t most = std::min(most_header_bytes, file_bytes - 8);
  if (size > most) {
    throw FileError(name + ": has a header of " + std::to_string(size) + " bytes; expected at most " +
                    std::to_string(most));
  }
  return size;
}

std::uint32_t sum_of(const OpenFile& file, const StoredTensor& tensor) {
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min<std::uint64_t>(tensor.bytes, 1 << 18)));
  Crc32c sum;
  for (std::uint64_t done = 0; done < tensor.bytes;) {
    const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), tensor.bytes - done));
    const std::span<std::byte> read = std::span(buffer).first(part);
    file.read(read, tensor.offset + done);
    sum.add(read);
    done += part;
  }
  return sum.value();
}

/// Of a text that does not depend on the order of the tensors. `shapes`: what described() gives, by name.
std::uint32_t sum_of_shapes(const std::map<std::string, std::string>& shapes) {
  Crc32c sum;
  for (const auto& [name, shape] : shapes) {
    const std::string line = std::to_string(name.size()) + ' ' + name + ' ' + shape + '\n';
    sum.add(std::as_bytes(std::span(line)));
  }
  return sum.value();
}

}  // namespace

TensorFileSums write_tensor_file(const std::filesystem::path& path, const TensorFileContents& contents,
                                 const FileCalls& calls) {
  const std::string header = header_json(contents);
  const std::uint64_t size = header.size();
  TensorFileSums sums{.bytes = 8 + size, .header = crc32c(std::as_bytes(std::span(header)))};

  std::map<std::string, std::string> shapes;
  WholeFile file(path, calls);
  file.write(std::as_bytes(std::span(&size, 1)));
  file.write(header);
  for (const NamedArray& tensor : contents.tensors) {
    const std::span<const std::byte> bytes = bytes_of(tensor);
    file.write(bytes);
    sums.bytes += bytes.size();
    sums.tensors.emplace(tensor.name, crc32c(bytes));
    shapes.emplace(tensor.name, described(tensor.shape, type_of(tensor)));
  }
  sums.shapes = sum_of_shapes(shapes);
  file.commit();
  return sums;
}

TensorFile::TensorFile(const std::filesystem::path& path, const FileCalls& calls)
    : path_(path),  // O_NONBLOCK, or opening a pipe would wait for its writer
      file_(std::make_unique<OpenFile>(path, OpenFlags{.flags = O_RDONLY | O_NONBLOCK}, calls)),
      bytes_(file_->regular_size()) {
  const HeaderPlace place{.file = shown(path), .header_bytes = header_bytes(*file_, bytes_), .file_bytes = bytes_};
  std::string json(static_cast<std::size_t>(place.header_bytes), '\0');
  file_->read(std::as_writable_bytes(std::span(json)), 8);
  header_sum_ = crc32c(std::as_bytes(std::span(json)));
  TensorHeader header = parse_header(json, place);
  metadata_ = std::move(header.metadata);
  tensors_ = std::move(header.tensors);
  for (std::size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
}

TensorFile::~TensorFile() = default;
TensorFile::TensorFile(TensorFile&&) noexcept = default;
TensorFile& TensorFile::operator=(TensorFile&&) noexcept = default;

const StoredTensor& TensorFile::at(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) throw FileError(shown(path_) + ": has no tensor " + in_quotes(name) + "; expected one");
  return tensors_[found->second];
}

void TensorFile::read(std::string_view name, const TensorShape& shape, Elements to) const {
  const auto type = static_cast<ElementType>(to.index());
  const StoredTensor& tensor = at(name);
  if (tensor.shape != shape || tensor.type != type) {
    throw FileError(shown(path_) + ": tensor " + in_quotes(name) + " is " + described(tensor.shape, tensor.type) +
                    "; expected " + described(shape, type));
  }
  const std::span<std::byte> bytes = std::visit([](auto elements) { return std::as_writable_bytes(elements); }, to);
  if (bytes.size() != tensor.bytes) {
    throw MisuseError("tensor " + in_quotes(name) + " read into " + std::to_string(bytes.size() / element_bytes(type)) +
                      " elements; expected " + described(shape, type));
  }
  file_->read(bytes, tensor.offset);
}

TensorFileSums TensorFile::sums() const {
  TensorFileSums sums{.bytes = bytes_, .header = header_sum_};
  std::map<std::string, std::string> shapes;
  for (const StoredTensor& tensor : tensors_) {
    sums.tensors.emplace(tensor.name, sum_of(*file_, tensor));
    shapes.emplace(tensor.name, described(tensor.shape, tensor.type));
  }
  sums.shapes = sum_of_shapes(shapes);
  return sums;
}

}  // namespace windrow
