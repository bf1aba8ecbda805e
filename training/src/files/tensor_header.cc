#include "files/tensor_header.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "files/messages.h"
#include "windrow/engine/error.h"
#include "windrow/training/internal/record.h"
#include "windrow/training/tensor_file.h"

namespace windrow {
namespace {

constexpr std::size_t most_dimensions = 8;
constexpr std::string_view metadata_name = "__metadata__";

struct TypeTraits {
  std::string_view name;
  std::uint64_t bytes;
};
/// In the order of ElementType.
constexpr std::array<TypeTraits, 4> types = {{{"F32", 4}, {"I32", 4}, {"I64", 8}, {"U64", 8}}};

const TypeTraits& traits(ElementType type) { return types[static_cast<std::size_t>(type)]; }

/// The bytes of a tensor, or nothing if a partial product exceeds 64 bits.
std::optional<std::uint64_t> needed_bytes(const TensorShape& shape, ElementType type) {
  std::uint64_t bytes = traits(type).bytes;
  for (const std::uint64_t size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) return {};
  }
  return bytes;
}

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

}  // namespace

TensorHeader parse_header(std::string_view json, const HeaderPlace& place) {
  if (!json.starts_with('{')) throw FileError(place.file + ": header does not start with '{'; expected JSON");
  return HeaderReader(place).read(Record::parse(json, place.file + ": header"));
}

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

}  // namespace windrow
