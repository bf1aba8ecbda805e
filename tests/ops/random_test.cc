#include "windrow/ops/random.h"

#include <numeric>

#include "tests/ops/host_tensors.h"
#include "windrow/ops/apply.h"

namespace windrow::testing {
namespace {

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

class Random : public HostTensors {
 protected:
  Random() : HostTensors({.policy = Policy::serial}) {}

  Floats dropped(const Tensor& x, const IntTensor& keys, const Attributes& by) const {
    return apply(host, op::dropout, {.in = {x}, .indices = {keys}, .attributes = by}).get();
  }
};

TEST_F(Random, NumbersAreTheWordsOfTheirPlaceInTheDraw) {
  const Tensor x(host, 71, 70), y(host, 71, 70);
  draws.uniform(x, -1, 3);  // draw 0
  draws.normal(y, 2, 0.5);  // draw 1
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

TEST_F(Random, DrawsOfAGeneratorAreThoseOfTheirSeedNumberAndStream) {
  Generator generator(engine, 42, 3);
  const Tensor a(host, 3, 5), b(host, 3, 5), c(host, 3, 5), d(host, 3, 5);
  const IntTensor e(host, 2, 3), f(host, 2, 3);
  generator.uniform(a, -1, 1);
  generator.normal(b, 2, 3);
  generator.dropout_keys(e);
  Draw(42, 2, 3).dropout_keys(f);  // in another order
  Draw(42, 1, 3).normal(d, 2, 3);
  Draw(42, 0, 3).uniform(c, -1, 1);
  EXPECT_EQ(a.get(), c.get());
  EXPECT_EQ(b.get(), d.get());
  EXPECT_EQ(e.get(), f.get());
}

TEST_F(Random, NumberNOfADrawIsElementN) {
  const Draw draw(5, 6, 7);
  const Tensor uniform(host, 7, 3), normal(host, 7, 3);
  draw.uniform(uniform, 0, 1);
  draw.normal(normal, 0, 1);
  const Floats u = uniform.get(), v = normal.get();
  for (std::size_t n = 0; n < 21; ++n) {
    EXPECT_EQ(u[n], draw.uniform(n));
    EXPECT_EQ(v[n], draw.normal(n));
  }
  EXPECT_NE(draw.uniform(3), Draw(5, 7, 7).uniform(3));
  EXPECT_NE(draw.uniform(3), Draw(5, 6, 8).uniform(3));
  EXPECT_NE(draw.uniform(3), Draw(6, 6, 7).uniform(3));
  constexpr std::uint64_t most = (std::uint64_t{1} << 48) - 1;
  EXPECT_NE(Draw(5, most).uniform(3), Draw(5, most - (std::uint64_t{1} << 32)).uniform(3));
  EXPECT_EQ(error_of<MisuseError>([&] { Draw(5, most + 1); }), "draw: number 281474976710656; expected one below 2^48");
}

/// An op that fails, and is pushed again, draws the same; and nobody else notices.
TEST_F(Random, AnOpThatIsRepeatedDrawsTheSameNumbers) {
  std::vector<float> drawn;
  const Var out = engine.new_var("out");
  const auto attempt = [&](bool fails) {
    engine.push(
        [&drawn, fails, draw = Draw(1, 2)] {
          drawn.push_back(draw.uniform(0));
          if (fails) throw std::runtime_error("no");
        },
        {overwrite(out)});
  };
  attempt(true);
  error_of<OpError>([&] { engine.wait(out); });
  attempt(false);
  engine.wait(out);
  EXPECT_EQ(drawn, Floats(2, Draw(1, 2).uniform(0)));

  const Tensor bad(host, 1, 4), good(host, 1, 4);
  engine.push([] { throw std::runtime_error("no"); }, {mutate(bad.var())}, {.name = "fails"});
  Draw(1).uniform(bad.column_range(0, 2), 0, 1);  // skipped
  Draw(1).uniform(good, 0, 1);
  EXPECT_EQ(good.get()[0], Draw(1).uniform(0));
  error_of<OpError>([&] { bad.get(); });
  engine.heal(bad.var());
  engine.wait_all();
}

TEST_F(Random, EachLaunchOfAGraphRepeatsADrawAndContinuesAGenerator) {
  const Tensor x(host, 1, 4), y(host, 1, 4);
  const Graph graph = engine.capture([&] {
    Draw(9, 1).uniform(x, 0, 1);
    draws.uniform(y, 0, 1);
  });
  graph.launch();
  const Floats x1 = x.get(), y1 = y.get();
  graph.launch();
  EXPECT_EQ(x.get(), x1);
  EXPECT_NE(y.get(), y1);
}

TEST_F(Random, DropoutOfTheSameSeedIsIndependentOfTheNumbers) {
  const Tensor draw(host, 1, 64);
  draws.uniform(draw, 0, 1);
  const Floats mask = dropped(filled(1, 64, 1), ints(1, 3, {0, 0, 0}), op::dropout_by(0.5, 7, 0));
  const Floats numbers = draw.get();
  int agree = 0;
  for (std::size_t i = 0; i < 64; ++i) agree += (mask[i] == 0) == (numbers[i] < 0.5f) ? 1 : 0;
  EXPECT_NEAR(agree, 32, 20);  // five standard deviations
}

TEST_F(Random, AFailedDrawNamesWhereItWasPushed) {
  const Tensor x(host, 1, 1);
  engine.push([] { throw std::runtime_error("broken"); }, {mutate(draws.var())});
  draws.uniform(x, 0, 1);
  expect_error<OpError>([&] { x.get(); }, {"op 'uniform' (pushed at ", "random_test.cc:"});
  engine.heal(draws.var());
  draws.uniform(x, 0, 1);
  EXPECT_EQ(x.get().size(), 1u);
}

TEST_F(Random, ADrawIntoAPartLeavesPoisonWhereItIs) {
  const Tensor x(host, 2, 1);
  engine.push([] { throw std::runtime_error("broken"); }, {overwrite(x.var())});
  draws.uniform(x.row_range(0, 1), 0, 1);
  EXPECT_THROW(x.get(), OpError);
}

TEST_F(Random, UniformNumbersNeverRoundUpToTheEnd) {
  const Tensor x(host, 1, 100'000);
  const float low = 1, high = std::nextafter(std::nextafter(1.0f, 2.0f), 2.0f);
  draws.uniform(x, low, high);
  for (float v : x.get()) ASSERT_LT(v, high);
}

TEST_F(Random, DropoutKeepsItsShareAndItsSumAndTheMaskOfItsKeys) {
  const Tensor x = filled(400, 250, 1);
  const IntTensor keys(host, 400, 3);
  draws.dropout_keys(keys);
  const Attributes quarter = op::dropout_by(0.25, 9, 1);
  const Floats first = dropped(x, keys, quarter);
  EXPECT_EQ(first, dropped(x, keys, quarter));  // as the gradient needs
  EXPECT_NEAR(static_cast<double>(std::count(first.begin(), first.end(), 0.0f)), 25'000, 700);
  EXPECT_NEAR(std::accumulate(first.begin(), first.end(), 0.0) / 100'000, 1, 0.01);

  draws.dropout_keys(keys);
  EXPECT_NE(dropped(x, keys, quarter), first);
  EXPECT_EQ(dropped(x, keys, op::dropout_by(0, 9, 1)), x.get());
}

TEST_F(Random, DropoutOfARowDoesNotDependOnWhereItLies) {
  const Tensor one = filled(1, 64, 1), two = filled(2, 64, 1);
  const Attributes half = op::dropout_by(0.5, 1, 2);
  const auto masks = [&](std::vector<std::int32_t> keys) {
    const Floats both = dropped(two, ints(2, 3, std::move(keys)), half);
    return std::pair(Floats(both.begin(), both.begin() + 64), Floats(both.begin() + 64, both.end()));
  };
  const auto [first, second] = masks({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(masks({4, 5, 6, 1, 2, 3}), std::pair(second, first));
  EXPECT_NE(first, second);
  for (std::vector<std::int32_t> other : {std::vector{9, 2, 3}, std::vector{1, 9, 3}, std::vector{1, 2, 9}}) {
    other.insert(other.end(), {4, 5, 6});
    EXPECT_NE(masks(other).first, first);  // each of the keys counts
    EXPECT_EQ(masks(other).second, second);
  }
  EXPECT_NE(dropped(one, ints(1, 3, {1, 2, 3}), op::dropout_by(0.5, 1, 3)), first) << "at another site";
}

TEST_F(Random, DropoutBySeedsOfRowsIsDropoutByEachSeed) {
  const std::uint64_t seeds[] = {1, 5'000'000'000, ~std::uint64_t{0}};
  const Tensor one = filled(1, 38, 1);
  std::vector<std::int32_t> keys;
  Floats expected;
  for (const std::uint64_t seed : seeds) {
    const auto next = static_cast<std::int32_t>(keys.size());
    const Floats row = dropped(one, ints(1, 3, {next, next + 1, next + 2}), op::dropout_by(0.5, seed, 2));
    expected.insert(expected.end(), row.begin(), row.end());
    keys.insert(keys.end(),
                {next, next + 1, next + 2, static_cast<std::int32_t>(seed), static_cast<std::int32_t>(seed >> 32)});
  }
  EXPECT_EQ(dropped(filled(3, 38, 1), ints(3, 5, keys), op::dropout_by(0.5, 99, 2)), expected);
}

TEST_F(Random, BadRangesAreNamed) {
  const Tensor x(host, 1, 1);
  EXPECT_EQ(error_of<MisuseError>([&] { draws.uniform(x, 2, 2); }), "uniform: 2, 2; expected finite low < high");
  EXPECT_EQ(error_of<MisuseError>([&] { draws.normal(x, 0, -1); }),
            "normal: 0, -1; expected finite mean and deviation >= 0");
  EXPECT_EQ(error_of<MisuseError>([&] { draws.dropout_keys(IntTensor(host, 2, 2)); }),
            "dropout_keys: a tensor of width 2; expected 3");
}

TEST_F(Random, AMovedGeneratorGoesOnWhereItWas) {
  const Tensor first(host, 1, 4), second(host, 1, 4), again(host, 1, 4);
  Generator other(engine, 7);
  other.uniform(first, 0, 1);
  Generator moved = std::move(other);
  moved.uniform(second, 0, 1);
  draws.uniform(again, 0, 1);
  EXPECT_EQ(again.get(), first.get());
  draws.uniform(again, 0, 1);
  EXPECT_EQ(again.get(), second.get());
  EXPECT_THROW(other.uniform(first, 0, 1), MisuseError);
}

TEST_F(Random, AGeneratorMayEndBeforeItsDrawsAreDone) {
  Engine threads({.policy = Policy::pool, .workers = 2});
  const Device device = host_device(threads);
  const Tensor early(device, 10, 10), late(host, 10, 10);
  { Generator(threads, 7).uniform(early, 0, 1); }
  draws.uniform(late, 0, 1);
  EXPECT_EQ(early.get(), late.get());
}

}  // namespace
}  // namespace windrow::testing
