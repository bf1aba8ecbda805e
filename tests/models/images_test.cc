// Images in IDX files: what is read, what is refused; and generated digits.
#include <array>
#include <functional>

#include "tests/models/data.h"
#include "tests/seed.h"

namespace windrow::testing {
namespace {

struct IdxFiles {
  std::string images, labels;

  LabelledImages read() const {
    std::istringstream from(images), of(labels);
    return read_idx(NamedBytes{from, "images"}, NamedBytes{of, "labels"});
  }
};

/// Three images of 2 x 3 pixels.
IdxFiles three_images() {
  LabelledImages images{.height = 2, .width = 3, .labels = {7, 0, 9}};
  for (int i = 0; i < 18; ++i) images.pixels.push_back(static_cast<std::uint8_t>(14 * i));
  std::ostringstream of_images, of_labels;
  write_idx(images, of_images, of_labels);
  return {of_images.str(), of_labels.str()};
}

TEST(Images, AreReadAsTheyWereWritten) {
  const LabelledImages images = three_images().read();
  EXPECT_EQ(images.height, 2);
  EXPECT_EQ(images.width, 3);
  EXPECT_EQ(images.labels, (std::vector<std::uint8_t>{7, 0, 9}));
  EXPECT_EQ(images.image(2)[5], 14 * 17);
  // The header of the published format, byte by byte.
  EXPECT_EQ(three_images().images.substr(0, 16), std::string("\0\0\10\3\0\0\0\3\0\0\0\2\0\0\0\3", 16));
  EXPECT_EQ(three_images().labels, std::string("\0\0\10\1\0\0\0\3\7\0\11", 11));
}

TEST(Images, RefuseFilesThatAreNotInTheFormat) {
  const auto error = [](const std::function<void(IdxFiles&)>& change) {
    IdxFiles files = three_images();
    change(files);
    return refusal([&] { files.read(); });
  };
  EXPECT_EQ(error([](IdxFiles& f) { f.images.resize(7); }),
            "images: ends within its header; expected a file in IDX format");
  EXPECT_EQ(error([](IdxFiles& f) { f.images = "\x1f\x8b\x08\x08 compressed"; }),
            "images: looks like a gzip file; expected images, or a name that ends in .gz");
  EXPECT_EQ(error([](IdxFiles& f) { std::swap(f.images, f.labels); }),
            "images: begins with the number 2049; expected 2051, images in IDX format");
  EXPECT_EQ(error([](IdxFiles& f) { f.images.pop_back(); }), "images: 17 bytes behind its header; expected 18");
  EXPECT_EQ(error([](IdxFiles& f) { f.labels += '\0'; }), "labels: 4 bytes behind its header; expected 3");
  EXPECT_EQ(error([](IdxFiles& f) { f.labels.back() = 10; }), "labels: label 10 of image 3; expected 0 to 9");
  EXPECT_EQ(error([](IdxFiles& f) {
              f.labels[7] = 2;
              f.labels.pop_back();
            }),
            "labels: 2 labels for 3 images; expected as many");
  EXPECT_EQ(error([](IdxFiles& f) { f.images.replace(4, 12, 12, '\x7f'); }),
            "images: a header of more than 2^40 elements; expected images");
  EXPECT_EQ(error([](IdxFiles& f) { f.images.replace(4, 12, std::string(12, '\0')).resize(16); }),
            "images: 0 images of 0 x 0 pixels; expected at least 1 image of 1 x 1");
  EXPECT_EQ(error([](IdxFiles& f) {
              f.images = f.images.replace(8, 8, std::string("\0\0\20\1\0\0\0\1", 8)) + std::string(3 * 4097 - 18, '\0');
            }),
            "images: images of 4097 x 1 pixels; expected at most 4096 a side");
}

TEST(Images, ThatAreDamagedAreReadOrRefused) {
  const unsigned seed = first_seed();
  SCOPED_TRACE("WINDROW_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return random() % n; };
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    IdxFiles files = three_images();
    std::string& bytes = below(2) == 0 ? files.images : files.labels;
    for (std::size_t changes = 1 + below(3); changes > 0; --changes) {
      bytes[below(bytes.size())] = static_cast<char>(below(256));
    }
    if (below(4) == 0) bytes.resize(below(bytes.size()));
    try {
      const LabelledImages images = files.read();
      EXPECT_EQ(images.pixels.size(), images.size() * static_cast<std::size_t>(images.height * images.width));
    } catch (const DataError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace windrow::testing
