#include "windrow/training/tensor_file.h"

#include "tests/training/files.h"

namespace windrow::testing {
namespace {

/// A file with this header and so many bytes of data.
std::string file_of(const std::string& header, std::size_t data_bytes) {
  std::string size(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) size[i] = static_cast<char>(header.size() >> (8 * i));
  return size + header + std::string(data_bytes, '\0');
}

class TensorFileTest : public FileTest {
 protected:
  const std::filesystem::path path = folder / "t.safetensors";

  /// The error of opening a file with this content, without the path.
  std::string refusal(const std::string& content) const {
    put(path, content);
    const std::string error = error_of([&] { TensorFile file(path); });
    EXPECT_TRUE(error.starts_with(path.string() + ": ")) << error;
    return error.substr(std::min(error.size(), path.string().size() + 2));
  }
  std::string refusal(const std::string& header, std::size_t data_bytes) const {
    return refusal(file_of(header, data_bytes));
  }
  /// Of a tensor 'w' with these entries, in 4 bytes of data.
  std::string refusal_of(const std::string& type, const std::string& shape, const std::string& offsets) const {
    const std::string entries = R"("dtype": )" + type + R"(, "shape": )" + shape + R"(, "data_offsets": )" + offsets;
    return refusal("{\"w\": {" + entries + "}}", 4);
  }
};

TEST_F(TensorFileTest, GivesBackWhatWasWritten) {
  const std::vector<float> floats = {1, -0.0f, std::numeric_limits<float>::denorm_min(), 3e38f, 0.1f, 2};
  const std::vector<std::int32_t> integers = {-1, std::numeric_limits<std::int32_t>::min()};
  const std::vector<std::int64_t> longs = {-1, std::numeric_limits<std::int64_t>::min(), 7, 8};
  const std::vector<std::uint64_t> counts = {std::numeric_limits<std::uint64_t>::max()};
  write_tensor_file(path, {.tensors = {{"w", {2, 3}, floats},
                                       {"a name with ü and \"", {2}, integers},
                                       {"none", {0, 3}, std::span<const float>()},
                                       {"l", {2, 1, 2}, longs},
                                       {"", {}, counts}},
                           .metadata = {{"model", "tree\nlstm"}, {"", "ü"}}});
  const TensorFile file(path);
  std::vector<std::string> names;
  for (const StoredTensor& tensor : file.tensors()) names.push_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"w", "a name with ü and \"", "none", "l", ""}));
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"model", "tree\nlstm"}, {"", "ü"}}));
  EXPECT_EQ(file.at("l").shape, (TensorShape{2, 1, 2}));
  EXPECT_EQ(file.at("l").type, ElementType::i64);
  EXPECT_TRUE(file.contains("none"));
  EXPECT_FALSE(file.contains("v"));

  const std::vector<float> floats_read = read_like(file, "w", {2, 3}, floats);
  EXPECT_EQ(std::memcmp(floats_read.data(), floats.data(), 24), 0);
  EXPECT_EQ(read_like(file, "a name with ü and \"", {2}, integers), integers);
  EXPECT_EQ(read_like(file, "none", {0, 3}, std::vector<float>()), std::vector<float>());
  EXPECT_EQ(read_like(file, "l", {2, 1, 2}, longs), longs);
  EXPECT_EQ(read_like(file, "", {}, counts), counts);
}

TEST_F(TensorFileTest, HasTheLayoutOfTheFormat) {
  write_tensor_file(path, {.tensors = {{"b", {1, 2}, std::vector<float>{1, 2}}}, .metadata = {{"k", "v"}}});
  const std::string header =
      R"({"__metadata__": {"k": "v"},"b": {"data_offsets": [0, 8],"dtype": "F32","shape": [1, 2]}})";
  const std::string padding((8 - header.size() % 8) % 8, ' ');
  const std::string content = read_file(path);
  EXPECT_EQ(content.substr(0, content.size() - 8), file_of(header + padding, 0));
  EXPECT_EQ(content.substr(content.size() - 8), std::string("\0\0\x80\x3f\0\0\0\x40", 8));
  EXPECT_EQ(content.size() % 8, 0u);
}

TEST_F(TensorFileTest, MayHaveNoTensors) {
  const TensorFileSums sums = write_tensor_file(path, {});
  const TensorFile file(path);
  EXPECT_TRUE(file.tensors().empty());
  EXPECT_EQ(file.sums(), sums);
  EXPECT_EQ(sums.bytes, read_file(path).size());
}

TEST_F(TensorFileTest, HasTheSumsThatTheWriterTold) {
  std::vector<float> large(300'000);  // larger than the buffer for sums
  std::iota(large.begin(), large.end(), 0.0f);
  const std::vector<std::int64_t> small = {1, 2, 3};
  const TensorFileSums sums = write_tensor_file(path, {.tensors = {{"l", {300'000}, large}, {"s", {3}, small}}});
  EXPECT_EQ(TensorFile(path).sums(), sums);

  std::string content = read_file(path);
  content[content.size() - 30] ^= 1;
  put(path, content);
  const TensorFileSums changed = TensorFile(path).sums();
  EXPECT_EQ(changed.header, sums.header);
  EXPECT_NE(changed.tensors.at("l"), sums.tensors.at("l"));
  EXPECT_EQ(changed.tensors.at("s"), sums.tensors.at("s"));
}

TEST_F(TensorFileTest, RefusesToReadATensorOfAnotherShapeOrType) {
  std::vector<float> values(12);
  write_tensor_file(path, {.tensors = {{"w", {3, 4}, values}}});
  const TensorFile file(path);
  const std::string name = path.string();
  std::vector<std::int32_t> integers(12);
  const TensorShape shape = {3, 4}, other = {4, 3};
  EXPECT_EQ(error_of([&] { file.read("v", shape, values); }), name + ": has no tensor 'v'; expected one");
  const std::string found = name + ": tensor 'w' is 3 x 4 of F32; expected ";
  EXPECT_EQ(error_of([&] { file.read("w", other, values); }), found + "4 x 3 of F32");
  EXPECT_EQ(error_of([&] { file.read("w", {}, values); }), found + "a scalar of F32");
  EXPECT_EQ(error_of([&] { file.read("w", shape, integers); }), found + "3 x 4 of I32");
  EXPECT_THROW(file.read("w", {3, 4}, std::span(values).first(11)), MisuseError);
}

TEST_F(TensorFileTest, RefusesToWriteWhatItCouldNotRead) {
  const std::vector<float> values(4);
  const auto refused = [&](const TensorFileContents& contents) {
    EXPECT_THROW(write_tensor_file(path, contents), MisuseError);
    EXPECT_FALSE(std::filesystem::exists(path));
  };
  refused({.tensors = {{"w", {3}, values}}});
  refused({.tensors = {{"w", {4}, values}, {"w", {2, 2}, values}}});
  refused({.tensors = {{"__metadata__", {4}, values}}});
  refused({.tensors = {{"\xff", {4}, values}}});
  refused({.tensors = {{"w", {1, 1, 1, 1, 1, 1, 1, 1, 4}, values}}});
  refused({.tensors = {{"w", {std::uint64_t{1} << 63, 2}, std::span<const float>()}}});
  refused({.metadata = {{"k", "\xff"}}});
}

TEST_F(TensorFileTest, RefusesAFileThatIsTooShort) {
  EXPECT_EQ(error_of([&] { TensorFile file(path); }), path.string() + ": open failed: No such file or directory");
  EXPECT_EQ(error_of([&] { TensorFile file(folder); }), folder.string() + ": no regular file; expected one");
  EXPECT_EQ(refusal(""), "has 0 bytes; expected a tensor file, at least 8 bytes");
  EXPECT_EQ(refusal("1234567"), "has 7 bytes; expected a tensor file, at least 8 bytes");
  EXPECT_EQ(refusal(file_of("{}", 0).substr(0, 9)), "has a header of 2 bytes; expected at most 1");
  EXPECT_EQ(refusal("\xff\xff\xff\xff\xff\xff\xff\xff{}"),
            "has a header of 18446744073709551615 bytes; expected at most 2");
}

TEST_F(TensorFileTest, NamesTheFormatOfOtherFiles) {
  const auto expect = [&](const std::string& content, const std::string& format) {
    const std::string error = refusal(content + std::string(300, 'x'));
    EXPECT_TRUE(error.starts_with("looks like " + format)) << error;
    EXPECT_TRUE(error.ends_with("; expected a tensor file (safetensors)")) << error;
  };
  expect("PK\x03\x04", "a zip archive, as torch.save");
  expect(
      "\x80\x02\x8a\nl\xfc\x9c"
      "F\xf9 j\xa8P\x19.",
      "a pickle of Python");
  expect(std::string("\x80\x04\x95\x10\0\0\0\0\0\0\0}", 12), "a pickle of Python");
  expect("\x1f\x8b\x08", "a gzip file");
  expect("version https://git-lfs.github.com/spec/v1\noid sha256:", "a pointer of Git LFS");
  expect("\n <!DOCTYPE HTML>", "a page of HTML");
  expect("\xef\xbb\xbf<html lang=en>", "a page of HTML");
  expect("\x89HDF\r\n", "an HDF5 file");
  expect("{\"weights\": [", "a JSON file");
  EXPECT_TRUE(refusal("nothing that is known").starts_with("has a header of "));
}

TEST_F(TensorFileTest, RefusesAHeaderAbove100MB) {
  put(path, std::string("\x01\xe1\xf5\x05\0\0\0\0", 8));
  std::filesystem::resize_file(path, 200'000'000);  // with a hole
  EXPECT_EQ(error_of([&] { TensorFile file(path); }),
            path.string() + ": has a header of 100000001 bytes; expected at most 100000000");
}

TEST_F(TensorFileTest, RefusesAHeaderThatIsNotJson) {
  EXPECT_EQ(refusal("", 0), "header does not start with '{'; expected JSON");
  EXPECT_EQ(refusal(" {}", 0), "header does not start with '{'; expected JSON");
  EXPECT_EQ(refusal("[]", 0), "header does not start with '{'; expected JSON");
  EXPECT_EQ(refusal("{} x", 0), "header is not valid at byte 4; expected JSON");
  EXPECT_EQ(refusal(std::string("{}\0", 3), 0), "header is not valid at byte 3; expected JSON");
  EXPECT_EQ(refusal(R"({"w": 1})", 0), "header.w is an integer; expected a record");
  EXPECT_EQ(refusal(R"({"w": {}, "w": {}})", 0), "header has 'w' twice; expected each name once");
}

TEST_F(TensorFileTest, RefusesAnUnknownTypeOrEntry) {
  EXPECT_EQ(refusal(R"({"__metadata__": {"a": 1}})", 0), "header.__metadata__.a is an integer; expected a text");
  EXPECT_EQ(refusal(R"({"__metadata__": ["a"]})", 0), "header.__metadata__ is a list; expected a record");
  EXPECT_EQ(refusal_of(R"("BF16")", "[1]", "[0, 2]"), "tensor 'w' has type 'BF16'; expected F32, I32, I64 or U64");
  EXPECT_EQ(refusal_of("32", "[1]", "[0, 4]"), "header.w.dtype is an integer; expected a text");
  EXPECT_EQ(refusal(R"({"w": {"shape": [1], "data_offsets": [0, 4]}})", 4), "header.w has no 'dtype'; expected one");
  EXPECT_EQ(refusal(R"({"w": {"dtype": "F32", "data_offsets": [0, 4]}})", 4), "header.w has no 'shape'; expected one");
  EXPECT_EQ(refusal(R"({"w": {"dtype": "F32", "shape": [1]}})", 4), "header.w has no 'data_offsets'; expected one");
  EXPECT_EQ(refusal_of(R"("F32")", "[1]", R"([0, 4], "x": 1)"),
            "tensor 'w' has 'x'; expected 'dtype', 'shape' and 'data_offsets' only");
}

TEST_F(TensorFileTest, RefusesShapesThatDoNotFit) {
  const auto of = [&](const std::string& shape) { return refusal_of(R"("F32")", shape, "[0, 4]"); };
  EXPECT_EQ(of("[3, 4]"), "tensor 'w' has 4 bytes; expected 3 x 4 of F32, 48 bytes");
  EXPECT_EQ(refusal_of(R"("I64")", "[]", "[0, 4]"), "tensor 'w' has 4 bytes; expected a scalar of I64, 8 bytes");
  EXPECT_EQ(of("[4611686018427387904]"), "tensor 'w' is 4611686018427387904 of F32; expected less than 2^64 bytes");
  EXPECT_EQ(of("[4294967296, 4294967296]"),
            "tensor 'w' is 4294967296 x 4294967296 of F32; expected less than 2^64 bytes");
  EXPECT_EQ(of("[-1]"), "header.w.shape[0] is a negative integer; expected an integer that is not negative");
  for (const char* number : {"[1.0]", "[18446744073709551616]"}) {
    EXPECT_EQ(of(number), "header.w.shape[0] is a number; expected an integer that is not negative");
  }
  EXPECT_EQ(of("[1,1,1,1,1,1,1,1,1]"), "tensor 'w' has 9 dimensions; expected at most 8");
}

TEST_F(TensorFileTest, RefusesOffsetsOutOfRange) {
  const auto of = [&](const std::string& offsets) { return refusal_of(R"("F32")", "[1]", offsets); };
  EXPECT_EQ(of("[0, 8]"), "tensor 'w' lies at bytes 0 to 8; expected ascending offsets up to 4");
  EXPECT_EQ(of("[4, 0]"), "tensor 'w' lies at bytes 4 to 0; expected ascending offsets up to 4");
  EXPECT_EQ(
      of("[18446744073709551612, 18446744073709551615]"),
      "tensor 'w' lies at bytes 18446744073709551612 to 18446744073709551615; expected ascending offsets up to 4");
  EXPECT_EQ(of("[0, 2, 4]"), "tensor 'w' has 3 offsets; expected 2");
  EXPECT_EQ(of("[]"), "tensor 'w' has 0 offsets; expected 2");
  EXPECT_EQ(of("[0, \"4\"]"), "header.w.data_offsets[1] is a text; expected an integer that is not negative");
}

TEST_F(TensorFileTest, RefusesHolesOverlapsAndTrailingBytes) {
  const auto two = [](const std::string& first, const std::string& second) {
    return R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": )" + first +
           R"(}, "b": {"dtype": "F32", "shape": [1], "data_offsets": )" + second + "}}";
  };
  put(path, file_of(two("[4, 12]", "[0, 4]"), 12));
  EXPECT_EQ(TensorFile(path).tensors()[0].name, "b");
  EXPECT_EQ(refusal(two("[0, 8]", "[4, 8]"), 8),
            "tensor 'b' begins at byte 4; expected byte 8, where the tensor before it ends");
  EXPECT_EQ(refusal(two("[0, 8]", "[0, 4]"), 8),
            "tensor 'a' begins at byte 0; expected byte 4, where the tensor before it ends");
  EXPECT_EQ(refusal(two("[0, 8]", "[12, 16]"), 16),
            "tensor 'b' begins at byte 12; expected byte 8, where the tensor before it ends");
  EXPECT_EQ(refusal(two("[4, 12]", "[12, 16]"), 16),
            "tensor 'a' begins at byte 4; expected byte 0, where the tensor before it ends");
  const std::string header = two("[0, 8]", "[8, 12]");
  EXPECT_EQ(refusal(header, 13), "has " + std::to_string(header.size() + 21) + " bytes; expected " +
                                     std::to_string(header.size() + 20) + ", where the last tensor ends");
  EXPECT_EQ(refusal("{}", 1), "has 11 bytes; expected 10, where the last tensor ends");
}

TEST_F(TensorFileTest, EscapesNamesInErrors) {
  EXPECT_EQ(refusal(R"({"a\nb": {"dtype": "\u0007", "shape": [1], "data_offsets": [0, 4]}})", 4),
            "tensor 'a\\x0ab' has type '\\x07'; expected F32, I32, I64 or U64");
}

TEST_F(TensorFileTest, NoticesAFileThatShrinksWhileItIsOpen) {
  std::vector<float> values(100'000);
  write_tensor_file(path, {.tensors = {{"w", {100'000}, values}}});
  const TensorFile file(path);
  const std::uint64_t size = read_file(path).size();
  std::filesystem::resize_file(path, size - 1);
  EXPECT_NE(error_of([&] { file.read("w", {100'000}, values); }).find("while being read"), std::string::npos);
  EXPECT_NE(error_of([&] { file.sums(); }).find("while being read"), std::string::npos);
}

class PythonTest : public FileTest {
 protected:
  const std::filesystem::path path = folder / "t.safetensors";

  /// Runs an action of the script. Returns its exit status.
  int python(const std::string& action, const std::filesystem::path& on) const {
    const std::string script = WINDROW_SOURCE_DIR "/tests/training/tensor_files.py";
    return std::system(("python3 '" + script + "' " + action + " '" + on.string() + "'").c_str());
  }

  // The tensors of the script.
  std::vector<float> weight = {-1, -0.5, 0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5};
  std::vector<std::int32_t> index = {-2, -1, 0, 1, 2};
  std::vector<std::int64_t> large = {-(std::int64_t{1} << 40), std::int64_t{1} << 40};
  std::vector<std::uint64_t> seed = {~std::uint64_t{0}};
};

TEST_F(PythonTest, ReadsWhatThisLibraryWrites) {
  const FaultyCalls calls;  // which do not wait for the disk
  write_tensor_file(
      path,
      {.tensors = {{"weight", {3, 4}, weight}, {"index", {5}, index}, {"large", {2, 1}, large}, {"seed ü", {1}, seed}},
       .metadata = {{"model", "tree ü"}}},
      calls);
  EXPECT_EQ(python("check", path), 0);
}

TEST_F(PythonTest, WritesWhatThisLibraryReads) {
  ASSERT_EQ(python("write", path), 0);
  const TensorFile file(path);
  EXPECT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"model", "tree ü"}}));
  EXPECT_EQ(read_like(file, "weight", {3, 4}, weight), weight);
  EXPECT_EQ(read_like(file, "index", {5}, index), index);
  EXPECT_EQ(read_like(file, "large", {2, 1}, large), large);
  EXPECT_EQ(read_like(file, "seed ü", {1}, seed), seed);
}

TEST_F(PythonTest, ReadsManifests) {
  const FaultyCalls calls;
  CheckpointWriter(folder / "run", {}, calls).write(KnownCheckpoint{7}.contents());
  EXPECT_EQ(python("check-manifest", folder / "run/000000000007.json"), 0);
}

}  // namespace
}  // namespace windrow::testing
