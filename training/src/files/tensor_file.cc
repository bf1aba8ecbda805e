#include "windrow/training/tensor_file.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <tuple>
#include <utility>

#include "files/crc32c.h"
#include "files/messages.h"
#include "files/open_file.h"
#include "windrow/engine/error.h"
#include "windrow/training/internal/file_format.h"
#include "windrow/training/internal/whole_file.h"
#include "windrow/training/record.h"

namespace windrow {
namespace {

/// The largest JSON that a header may have, as in other readers of the format.
constexpr std::uint64_t most_header_bytes = 100'000'000;
constexpr std::size_t most_dimensions = 8;
constexpr std::string_view metadata_name = "__metadata__";

struct TypeTraits {
  std::string_view name;
  std::uint64_t bytes;
};
/// In the order of ElementType.
constexpr std::array<TypeTraits, 4> types = {{{"F32", 4}, {"I32", 4}, {"I64", 8}, {"U64", 8}}};

const TypeTraits& traits(ElementType type) { return types[static_cast<std::size_t>(type)]; }

/// Such as "3 x 4 of F32".
std::string described(const TensorShape& shape, ElementType type) {
  std::string text = shape.empty() ? "a scalar" : "";
  for (const std::uint64_t size : shape) {
    if (!text.empty()) text += " x ";
    text += std::to_string(size);
  }
  return text + " of " + std::string(traits(type).name);
}

ElementType type_of(const NamedArray& tensor) { return static_cast<ElementType>(tensor.elements.index()); }

std::span<const std::byte> bytes_of(const NamedArray& tensor) {
  return std::visit([](auto elements) { return std::as_bytes(elements); }, tensor.elements);
}

std::uint64_t element_bytes(ElementType type) { return traits(type).bytes; }

/// The bytes of a tensor, or nothing if a partial product exceeds 64 bits.
std::optional<std::uint64_t> needed_bytes(const TensorShape& shape, ElementType type) {
  std::uint64_t bytes = traits(type).bytes;
  for (const std::uint64_t size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) return {};
  }
  return bytes;
}

struct TensorHeader {
  std::map<std::string, std::string> metadata = {};
  std::vector<StoredTensor> tensors = {};  // by offset
};

/// Where the JSON of a header lies: its file, for errors, and the sizes of both.
struct HeaderPlace {
  std::string file;
  std::uint64_t header_bytes;  // of the JSON
  std::uint64_t file_bytes;    // at least 8 + header_bytes

  /// The offset of the first tensor.
  std::uint64_t data() const { return 8 + header_bytes; }
};

/// Reads the entries of one header.
class HeaderReader {
 public:
  explicit HeaderReader(const HeaderPlace& place) : place_(place) {}

  TensorHeader read(const Record& record) const {
    TensorHeader header;
    for (const auto& [name, value] : record.values()) {
      if (name == metadata_name) {
        for (const auto& [key, text] : value.record().values()) header.metadata.emplace(key, text.text());
      } else {
        header.tensors.push_back(tensor(name, value.record()));
      }
    }
    std::sort(header.tensors.begin(), header.tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
      return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
    });
    require_cover(header.tensors);
    return header;
  }

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& what) const {
    throw FileError(place_.file + ": tensor " + in_quotes(name) + " " + what);
  }

  StoredTensor tensor(const std::string& name, const Record& entry) const {
    StoredTensor tensor{.name = name, .type = type(name, entry.at("dtype").text()), .shape = shape(name, entry)};
    std::tie(tensor.offset, tensor.bytes) = extent(name, entry);
    for (const auto& [key, value] : entry.values()) {
      if (key != "dtype" && key != "shape" && key != "data_offsets") {
        refuse(name, "has " + in_quotes(key) + "; expected 'dtype', 'shape' and 'data_offsets' only");
      }
    }
    const std::optional<std::uint64_t> needed = needed_bytes(tensor.shape, tensor.type);
    if (!needed) refuse(name, "is " + described(tensor.shape, tensor.type) + "; expected less than 2^64 bytes");
    if (*needed != tensor.bytes) {
      refuse(name, "has " + std::to_string(tensor.bytes) + " bytes; expected " + described(tensor.shape, tensor.type) +
                       ", " + std::to_string(*needed) + " bytes");
    }
    return tensor;
  }

  ElementType type(const std::string& name, const std::string& text) const {
    for (std::size_t i = 0; i < types.size(); ++i) {
      if (types[i].name == text) return static_cast<ElementType>(i);
    }
    refuse(name, "has type " + in_quotes(text) + "; expected F32, I32, I64 or U64");
  }

  TensorShape shape(const std::string& name, const Record& entry) const {
    TensorShape shape;
    for (const RecordValue& size : entry.at("shape").list()) shape.push_back(size.count());
    if (shape.size() > most_dimensions) {
      refuse(name, "has " + std::to_string(shape.size()) + " dimensions; expected at most 8");
    }
    return shape;
  }

  /// The offset in the file, and the number of bytes.
  std::pair<std::uint64_t, std::uint64_t> extent(const std::string& name, const Record& entry) const {
    const RecordValue::List& offsets = entry.at("data_offsets").list();
    if (offsets.size() != 2) refuse(name, "has " + std::to_string(offsets.size()) + " offsets; expected 2");
    const std::uint64_t begin = offsets[0].count(), end = offsets[1].count();
    const std::uint64_t most = place_.file_bytes - place_.data();
    if (begin > end || end > most) {
      refuse(name, "lies at bytes " + std::to_string(begin) + " to " + std::to_string(end) +
                       "; expected ascending offsets up to " + std::to_string(most));
    }
    return {place_.data() + begin, end - begin};
  }

  /// `tensors` are sorted by offset.
  void require_cover(const std::vector<StoredTensor>& tensors) const {
    std::uint64_t end = place_.data();
    for (const StoredTensor& tensor : tensors) {
      if (tensor.offset != end) {
        refuse(tensor.name, "begins at byte " + std::to_string(tensor.offset - place_.data()) + "; expected byte " +
                                std::to_string(end - place_.data()) + ", where the tensor before it ends");
      }
      end += tensor.bytes;
    }
    if (end != place_.file_bytes) {
      throw FileError(place_.file + ": has " + std::to_string(place_.file_bytes) + " bytes; expected " +
                      std::to_string(end) + ", where the last tensor ends");
    }
  }

  const HeaderPlace& place_;
};

void require_valid(const NamedArray& tensor) {
  const ElementType type = type_of(tensor);
  if (tensor.name == metadata_name) throw MisuseError("a tensor called '__metadata__'; expected another name");
  if (tensor.shape.size() > most_dimensions) {
    throw MisuseError("tensor " + in_quotes(tensor.name) + " has more than 8 dimensions; expected at most 8");
  }
  if (needed_bytes(tensor.shape, type) != std::optional<std::uint64_t>(bytes_of(tensor).size())) {
    throw MisuseError("tensor " + in_quotes(tensor.name) + " has " + std::to_string(bytes_of(tensor).size()) +
                      " bytes; expected " + described(tensor.shape, type));
  }
}

Record entry_of(const NamedArray& tensor, std::uint64_t begin) {
  const RecordValue::List shape(tensor.shape.begin(), tensor.shape.end());
  return Record()
      .set("dtype", traits(type_of(tensor)).name)
      .set("shape", shape)
      .set("data_offsets", RecordValue::List{begin, begin + bytes_of(tensor).size()});
}

/// Throws FileError unless the header is valid, and the tensors cover the rest of the file.
TensorHeader parse_header(std::string_view json, const HeaderPlace& place) {
  if (!json.starts_with('{')) throw FileError(place.file + ": header does not start with '{'; expected JSON");
  return HeaderReader(place).read(Record::parse(json, place.file + ": header"));
}

/// The JSON of a header, padded with spaces so that tensors begin at a multiple of 8. Throws MisuseError as
/// write_tensor_file() does.
std::string header_json(const TensorFileContents& contents) {
  Record header;
  std::uint64_t begin = 0;
  for (const NamedArray& tensor : contents.tensors) {
    require_valid(tensor);
    if (header.contains(tensor.name)) {
      throw MisuseError("tensor " + in_quotes(tensor.name) + " occurs twice; expected each name once");
    }
    header.set(tensor.name, entry_of(tensor, begin));
    begin += bytes_of(tensor).size();
  }
  if (!contents.metadata.empty()) {
    Record metadata;
    for (const auto& [key, text] : contents.metadata) metadata.set(key, text);
    header.set(std::string(metadata_name), metadata);
  }
  std::string json = header.json(JsonStyle::compact);
  json.append((8 - json.size() % 8) % 8, ' ');
  if (json.size() > most_header_bytes) {
    throw MisuseError("a tensor file with a header of " + std::to_string(json.size()) +
                      " bytes; expected at most 100 MB of names, shapes and metadata");
  }
  return json;
}

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

/// The checksum of a text that does not depend on the order of the tensors. `shapes`: what described() gives, by name.
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
    : path_(path),  // O_NONBLOCK: otherwise, opening a pipe would wait for its writer
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
