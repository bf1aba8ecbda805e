// Readers of damaged files: they refuse in one line, or give what was written. The sums by which they notice.
#include <sstream>

#include "files/crc32c.h"
#include "tests/training/files.h"

namespace windrow::testing {
namespace {

using Bytes = std::string;

const std::string manifest_file = "run/000000000003.json", tensor_file = "run/000000000003.safetensors";

/// What readers of JSON, or of these files, may stumble over.
std::vector<std::string> stumbling_blocks() {
  std::vector<std::string> blocks = {"", " ", "\n", "\xff"};
  std::istringstream words(
      R"(0 -1 1.0 1e999 18446744073709551615 99999999999999999999 4611686018427387904 " \ \ud800 { } [ ] , :
         null true "" {} [] F I3 U64 "shape" "weights":{}, [[[[[[[[ "__metadata__":1, //)");
  for (std::string word; words >> word;) blocks.push_back(word);
  return blocks;
}

class FileFuzzTest : public FileTest {
 protected:
  FileFuzzTest() : random(first_seed()) {
    const FaultyCalls calls;
    CheckpointWriter(folder / "run", {}, calls).write(known.contents());
    for (const std::string& name : {manifest_file, tensor_file}) {
      original[name] = read_file(folder / name);
    }
  }

  std::size_t below(std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(random); }

  void flip(Bytes& bytes) {
    for (std::size_t i = 0; i <= below(3); ++i) bytes[below(bytes.size())] ^= static_cast<char>(1 << below(8));
  }
  void cut(Bytes& bytes) { bytes.resize(below(bytes.size())); }
  void extend(Bytes& bytes) { bytes.insert(bytes.end(), 1 + below(40), static_cast<char>(below(256))); }

  /// Replaces a part of the text in [begin, end) by what readers of JSON stumble over. Returns how much it grew.
  std::ptrdiff_t edit(Bytes& bytes, std::size_t begin, std::size_t end) {
    static const std::vector<std::string> pieces = stumbling_blocks();
    const std::string& piece = pieces[below(pieces.size())];
    const std::size_t at = begin + below(end - begin), removed = std::min(below(4), end - at);
    bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                bytes.begin() + static_cast<std::ptrdiff_t>(at + removed));
    bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), piece.begin(), piece.end());
    return static_cast<std::ptrdiff_t>(piece.size()) - static_cast<std::ptrdiff_t>(removed);
  }
  /// Replaces a digit of the text, so that it stays JSON.
  void change_digit(Bytes& bytes, std::size_t begin, std::size_t end) {
    for (std::size_t at = begin + below(end - begin); at < end; ++at) {
      if (bytes[at] >= '0' && bytes[at] <= '9') {
        bytes[at] = static_cast<char>('0' + below(10));
        return;
      }
    }
  }
  static std::uint64_t header_size(const Bytes& bytes) {
    std::uint64_t size;
    std::memcpy(&size, bytes.data(), 8);
    return size;
  }
  void edit_header(Bytes& bytes) {
    const std::uint64_t before = header_size(bytes);
    const std::uint64_t after = before + static_cast<std::uint64_t>(edit(bytes, 8, 8 + before));
    std::memcpy(bytes.data(), &after, 8);
  }

  Bytes damaged(const Bytes& bytes, const std::string& name) {
    Bytes result = bytes;
    const bool tensors = name == tensor_file;
    const std::size_t how = below(5);
    if (how == 0) flip(result);
    if (how == 1) cut(result);
    if (how == 2) extend(result);
    if (how == 3) change_digit(result, tensors ? 8 : 0, tensors ? 8 + header_size(result) : result.size());
    if (how == 4) tensors ? edit_header(result) : void(edit(result, 0, result.size()));
    return result;
  }

  /// Where one of the files is damaged.
  std::unique_ptr<Disk> disk_with(const std::string& victim, const Bytes& content) const {
    auto disk = std::make_unique<Disk>();
    for (const auto& [name, bytes] : original) disk->put(name, name == victim ? content : bytes);
    return disk;
  }

  const KnownCheckpoint known{3};
  std::map<std::string, Bytes> original;
  std::mt19937_64 random;
  const int cases = sanitized ? 5'000 : 10'000;
};

/// Reads all that a tensor file says it has.
void read_all(const TensorFile& file) {
  std::uint64_t end = file.tensors().empty() ? 0 : file.tensors().front().offset;
  for (const StoredTensor& tensor : file.tensors()) {
    EXPECT_EQ(tensor.offset, end);
    end += tensor.bytes;
    std::vector<std::uint64_t> words(tensor.bytes / 8);
    std::vector<float> floats(tensor.bytes / 4);
    if (tensor.type == ElementType::f32) file.read(tensor.name, tensor.shape, floats);
    if (tensor.type == ElementType::u64) file.read(tensor.name, tensor.shape, words);
  }
  EXPECT_TRUE(file.tensors().empty() || file.sums().bytes == end);
}

TEST_F(FileFuzzTest, ADamagedTensorFileIsRefusedInOneLineOrReadWithinItsBounds) {
  int refused = 0;
  for (int i = 0; i < cases; ++i) {
    Disk calls;
    calls.put(tensor_file, damaged(original[tensor_file], tensor_file));
    try {
      read_all(TensorFile(tensor_file, calls));
    } catch (const FileError& error) {
      ++refused;
      const std::string what = error.what();
      ASSERT_TRUE(what.starts_with(tensor_file + ": ")) << what;
      ASSERT_EQ(what.find('\n'), what.npos) << what;
      ASSERT_LT(what.size(), 500u) << what;
    }
  }
  EXPECT_GT(refused, cases / 2) << "seed " << first_seed();
  EXPECT_LT(refused, cases) << "seed " << first_seed();
}

TEST_F(FileFuzzTest, ADamagedCheckpointIsRefusedInOneLineOrGivesWhatWasWritten) {
  int refused = 0;
  for (int i = 0; i < cases; ++i) {
    const std::string& victim = below(2) == 0 ? manifest_file : tensor_file;
    const auto disk = disk_with(victim, damaged(original[victim], victim));
    const NewestCheckpoint newest = CheckpointFolder("run", *disk).newest();
    if (newest.checkpoint) {
      ASSERT_EQ(*newest.checkpoint, known) << "case " << i << " of seed " << first_seed();
      continue;
    }
    ++refused;
    ASSERT_EQ(newest.skipped.size(), 1u);
    ASSERT_EQ(newest.skipped[0].find('\n'), std::string::npos) << newest.skipped[0];
  }
  EXPECT_GT(refused, cases / 2) << "seed " << first_seed();
}

/// A single bit is never missed.
TEST_F(FileFuzzTest, EachFlippedBitOfATensorFileIsNoticed) {
  const std::size_t bits = original[tensor_file].size() * 8;
  for (std::size_t bit = 0; bit < bits; ++bit) {
    Bytes changed = original[tensor_file];
    changed[bit / 8] ^= static_cast<char>(1 << bit % 8);
    const auto disk = disk_with(tensor_file, changed);
    EXPECT_FALSE(CheckpointFolder("run", *disk).newest().checkpoint) << "bit " << bit;
  }
}

std::uint32_t sum(const std::string& text) { return crc32c(std::as_bytes(std::span(text))); }

/// The definition: a division, bit by bit.
std::uint32_t slow_sum(const std::string& text) {
  std::uint32_t state = ~std::uint32_t{0};
  for (const char c : text) {
    state ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) state = state % 2 == 0 ? state >> 1 : (state >> 1) ^ 0x82f63b78;
  }
  return ~state;
}

TEST(Crc32c, GivesThePublishedValues) {
  EXPECT_EQ(sum(""), 0u);
  EXPECT_EQ(sum("123456789"), 0xe3069283u);
  EXPECT_EQ(sum(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720, B.4
  EXPECT_EQ(sum(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(Crc32c, EqualsItsDefinitionAtEverySizeAndInParts) {
  std::string text;
  for (int size = 0; size < 70; ++size) {
    EXPECT_EQ(sum(text), slow_sum(text)) << size;
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
      Crc32c parts;
      parts.add(std::as_bytes(std::span(text).first(cut)));
      parts.add(std::as_bytes(std::span(text).subspan(cut)));
      EXPECT_EQ(parts.value(), slow_sum(text)) << cut << " of " << size;
    }
    text += static_cast<char>(size * 37 + 11);
  }
}

}  // namespace
}  // namespace windrow::testing
