#include "windrow/ops/random.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/engine/support.h"
#include "windrow/ops/apply.h"

namespace windrow::testing {
namespace {

using Floats = std::vector<float>;

// Known answers of the authors' Random123 1.14, kat_vectors, philox4x32 with 10 rounds.
TEST(Philox, GivesItsAuthorsKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

/// The uniform number of a word.
double unit(std::uint32_t word) { return static_cast<double>(word / 256) / 16777216; }

class GeneratorOnEveryPolicy : public EveryPolicy {};
WINDROW_EVERY_POLICY(GeneratorOnEveryPolicy);

/// What three draws give on an engine of these options.
std::vector<Floats> three_draws(EngineOptions options, std::uint64_t seed, std::uint32_t stream) {
  Engine engine(options);
  const Device host = host_device(engine);
  Generator generator(engine, seed, stream);
  Tensor a(host, 3, 5), b(host, 1, 100), c(host, 7, 7);
  generator.uniform(a, -1, 1);
  generator.normal(b, 0, 1);
  generator.uniform(c.column_range(2, 5), 0, 1);
  return {a.get(), b.get(), c.column_range(2, 5).get()};
}

TEST_P(GeneratorOnEveryPolicy, DrawsTheSameInTheOrderOfPushes) {
  const auto expected = three_draws({.policy = Policy::serial}, 42, 0);
  EXPECT_EQ(three_draws(options(), 42, 0), expected);
  EXPECT_NE(three_draws(options(), 43, 0), expected);
  EXPECT_NE(three_draws(options(), 42, 1), expected);
}

class Random : public ::testing::Test {
 protected:
  Engine engine{{.policy = Policy::serial}};
  Device host = host_device(engine);
  Generator generator{engine, 7};
};

TEST_F(Random, NumbersAreTheWordsOfTheirPlaceInTheDraw) {
  const Tensor x(host, 71, 70), y(host, 71, 70);
  generator.uniform(x, -1, 3);  // draw 0
  generator.normal(y, 2, 0.5);  // draw 1
  const Floats uniform = x.get(), normal = y.get();
  const PhiloxKey key = {7, 0x67656e72};
  for (std::uint32_t n = 0; n < 71 * 70; ++n) {
    EXPECT_NEAR(uniform[n], -1 + 4 * unit(philox({n / 4, 0, 0, 0}, key)[n % 4]), 1e-6);
    const PhiloxCounter words = philox({n / 4, 1, 0, 0}, key);
    const double length = unit(words[n % 4 < 2 ? 0 : 2]), turn = unit(words[n % 4 < 2 ? 1 : 3]);
    const double angle = 2 * 3.14159265358979 * turn;
    const double number = std::sqrt(-2 * std::log(1 - length)) * (n % 2 == 0 ? std::cos(angle) : std::sin(angle));
    EXPECT_NEAR(normal[n], 2 + 0.5 * number, 2e-6);
  }
}

TEST_F(Random, DropoutOfTheSameSeedIsIndependentOfTheNumbers) {
  const Tensor draw(host, 1, 64), ones(host, 1, 64);
  generator.uniform(draw, 0, 1);
  ones.set(Floats(64, 1));
  IntTensor keys(host, 1, 3);
  keys.set({0, 0, 0});
  const Floats mask =
      apply(host, op::dropout, {.in = {ones}, .indices = {keys}, .attributes = op::dropout_by(0.5, 7, 0)}).get();
  const Floats numbers = draw.get();
  int agree = 0;
  for (std::size_t i = 0; i < 64; ++i) agree += (mask[i] == 0) == (numbers[i] < 0.5f) ? 1 : 0;
  EXPECT_NEAR(agree, 32, 20);  // five standard deviations
}

TEST_F(Random, AFailedDrawNamesWhereItWasPushed) {
  const Tensor x(host, 1, 1);
  engine.push([] { throw std::runtime_error("broken"); }, {mutate(generator.var())});
  generator.uniform(x, 0, 1);
  const std::string text = error_of<OpError>([&] { x.get(); });
  EXPECT_NE(text.find("op 'uniform' (pushed at "), std::string::npos) << text;
  EXPECT_NE(text.find("random_test.cc:"), std::string::npos) << text;
  engine.heal(generator.var());
  generator.uniform(x, 0, 1);
  EXPECT_EQ(x.get().size(), 1u);
}

TEST_F(Random, ADrawIntoAPartLeavesPoisonWhereItIs) {
  const Tensor x(host, 2, 1);
  engine.push([] { throw std::runtime_error("broken"); }, {overwrite(x.var())});
  generator.uniform(x.row_range(0, 1), 0, 1);
  EXPECT_THROW(x.get(), OpError);
}

TEST_F(Random, UniformNumbersNeverRoundUpToTheEnd) {
  const Tensor x(host, 1, 100'000);
  const float low = 1, high = std::nextafter(std::nextafter(1.0f, 2.0f), 2.0f);
  generator.uniform(x, low, high);
  for (float v : x.get()) ASSERT_LT(v, high);
}

TEST_F(Random, DropoutKeepsItsShareAndItsSumAndTheMaskOfItsKeys) {
  const Tensor x(host, 400, 250);
  x.set(Floats(100'000, 1));
  IntTensor keys(host, 400, 3);
  generator.dropout_keys(keys);
  const Attributes quarter = op::dropout_by(0.25, 9, 1);
  const Floats first = apply(host, op::dropout, {.in = {x}, .indices = {keys}, .attributes = quarter}).get();
  const Floats again = apply(host, op::dropout, {.in = {x}, .indices = {keys}, .attributes = quarter}).get();
  EXPECT_EQ(first, again);  // as the gradient needs
  EXPECT_NEAR(static_cast<double>(std::count(first.begin(), first.end(), 0.0f)), 25'000, 700);
  EXPECT_NEAR(std::accumulate(first.begin(), first.end(), 0.0) / 100'000, 1, 0.01);

  generator.dropout_keys(keys);
  EXPECT_NE(apply(host, op::dropout, {.in = {x}, .indices = {keys}, .attributes = quarter}).get(), first);
  const Attributes none = op::dropout_by(0, 9, 1);
  EXPECT_EQ(apply(host, op::dropout, {.in = {x}, .indices = {keys}, .attributes = none}).get(), x.get());
}

TEST_F(Random, DropoutOfARowDoesNotDependOnWhereItLies) {
  const Tensor x(host, 2, 64);
  x.set(Floats(128, 1));
  IntTensor keys(host, 2, 3), swapped(host, 2, 3);
  keys.set({1, 2, 3, 4, 5, 6});
  swapped.set({4, 5, 6, 1, 2, 3});
  const Attributes half = op::dropout_by(0.5, 1, 2);
  const Tensor a = apply(host, op::dropout, {.in = {x}, .indices = {keys}, .attributes = half});
  const Tensor b = apply(host, op::dropout, {.in = {x}, .indices = {swapped}, .attributes = half});
  EXPECT_EQ(a.row_range(0, 1).get(), b.row_range(1, 2).get());
  EXPECT_EQ(a.row_range(1, 2).get(), b.row_range(0, 1).get());
  EXPECT_NE(a.row_range(0, 1).get(), a.row_range(1, 2).get());
  for (std::vector<std::int32_t> other : {std::vector{9, 2, 3}, std::vector{1, 9, 3}, std::vector{1, 2, 9}}) {
    other.insert(other.end(), {4, 5, 6});
    swapped.set(other);  // each of the keys counts
    const Tensor c = apply(host, op::dropout, {.in = {x}, .indices = {swapped}, .attributes = half});
    EXPECT_NE(c.row_range(0, 1).get(), a.row_range(0, 1).get());
    EXPECT_EQ(c.row_range(1, 2).get(), a.row_range(1, 2).get());
  }
  const Attributes elsewhere = op::dropout_by(0.5, 1, 3);
  EXPECT_NE(apply(host, op::dropout, {.in = {x}, .indices = {keys}, .attributes = elsewhere}).get(), a.get());
}

TEST_F(Random, DropoutBySeedsOfRowsIsDropoutByEachSeed) {
  const std::uint64_t seeds[] = {1, 5'000'000'000, ~std::uint64_t{0}};
  constexpr Index width = 38;
  const Tensor x(host, 3, width);
  x.set(Floats(3 * width, 1));
  IntTensor keys(host, 3, 3), with_seeds(host, 3, 5);
  keys.set({1, 2, 3, 4, 5, 6, 7, 8, 9});
  std::vector<std::int32_t> all;
  for (std::int32_t row = 0; row < 3; ++row) {
    const std::uint64_t seed = seeds[row];
    all.insert(all.end(), {3 * row + 1, 3 * row + 2, 3 * row + 3, static_cast<std::int32_t>(seed),
                           static_cast<std::int32_t>(seed >> 32)});
  }
  with_seeds.set(all);
  const Attributes by_rows = op::dropout_by(0.5, 99, 2);
  const Tensor found = apply(host, op::dropout, {.in = {x}, .indices = {with_seeds}, .attributes = by_rows});
  for (Index row = 0; row < 3; ++row) {
    const Attributes by_seed = op::dropout_by(0.5, seeds[row], 2);
    const Tensor expected = apply(host, op::dropout, {.in = {x}, .indices = {keys}, .attributes = by_seed});
    EXPECT_EQ(found.row_range(row, row + 1).get(), expected.row_range(row, row + 1).get()) << row;
  }
}

TEST_F(Random, BadRangesAreNamed) {
  const Tensor x(host, 1, 1);
  EXPECT_EQ(error_of<MisuseError>([&] { generator.uniform(x, 2, 2); }), "uniform: 2, 2; expected finite low < high");
  EXPECT_EQ(error_of<MisuseError>([&] { generator.normal(x, 0, -1); }),
            "normal: 0, -1; expected finite mean and deviation >= 0");
  EXPECT_EQ(error_of<MisuseError>([&] { generator.dropout_keys(IntTensor(host, 2, 2)); }),
            "dropout_keys: a tensor of width 2; expected 3");
}

TEST_F(Random, AMovedGeneratorGoesOnWhereItWas) {
  const Tensor first(host, 1, 4), second(host, 1, 4), again(host, 1, 4);
  Generator other(engine, 7);
  other.uniform(first, 0, 1);
  Generator moved = std::move(other);
  moved.uniform(second, 0, 1);
  generator.uniform(again, 0, 1);
  EXPECT_EQ(again.get(), first.get());
  generator.uniform(again, 0, 1);
  EXPECT_EQ(again.get(), second.get());
  EXPECT_THROW(other.uniform(first, 0, 1), MisuseError);
}

TEST_F(Random, AGeneratorMayEndBeforeItsDrawsAreDone) {
  Engine threads({.policy = Policy::pool, .workers = 2});
  const Device device = host_device(threads);
  const Tensor early(device, 10, 10), late(host, 10, 10);
  { Generator(threads, 7).uniform(early, 0, 1); }
  generator.uniform(late, 0, 1);
  EXPECT_EQ(early.get(), late.get());
}

}  // namespace
}  // namespace windrow::testing
