// The line of progress in terminals of any width.
#include "progress.h"

#include <gtest/gtest.h>

#include <limits>

namespace windrow::program {
namespace {

TEST(ProgressLines, FitEveryWidth) {
  const ProgressLine line{.epoch = 3,
                          .epochs = 12,
                          .samples = 50,
                          .of = 100,
                          .loss = 1.25,
                          .units_per_second = 12345,
                          .unit = "trees",
                          .seconds_left = 3723};
  EXPECT_EQ(to_string(line, 200), "epoch 3/12  50 %  1:02:03 left  loss 1.2500  12,345 trees/s");
  EXPECT_EQ(to_string(line, 50), "epoch 3/12  50 %  1:02:03 left  loss 1.2500");
  EXPECT_EQ(to_string(line, 30), "epoch 3/12  50 %  1:02:03 left");
  EXPECT_EQ(to_string(line, 29), "epoch 3/12  50 %");
  for (std::size_t width = 0; width < 100; ++width) EXPECT_LE(to_string(line, width).size(), width);
  ProgressLine large = line;
  large.loss = 1e300;
  large.seconds_left = std::numeric_limits<double>::infinity();
  EXPECT_EQ(to_string(large, 79), "epoch 3/12  50 %  loss 1.0000e+300  12,345 trees/s");
}

TEST(ProgressLines, AreNotCutInsideACharacter) {
  EXPECT_EQ(fitted("größer", 4), "größ");
  EXPECT_EQ(fitted("größer", 6), "größer");
  EXPECT_EQ(fitted("größer", 9), "größer");
  EXPECT_EQ(fitted("\xf0\x9f\x8c\xbe", 0), "");
}

}  // namespace
}  // namespace windrow::program
