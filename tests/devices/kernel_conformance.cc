// Kernels of a device, against the reference, and random numbers, against those of the host.
#include "tests/devices/conformance.h"
#include "tests/filled.h"
#include "tests/ops/planted.h"
#include "windrow/ops/internal/row_segments.h"
#include "windrow/ops/internal/step_numbers.h"

namespace windrow::testing {
namespace {

Values values_of(const Tensor& tensor) {
  const std::vector<float> values = tensor.get();
  return {values.begin(), values.end()};
}

TEST_P(KernelsOnDevice, ComputesEveryOperatorAsTheReferenceDoes) {
  const std::vector<Index> row_counts = sanitized ? std::vector<Index>{0, 5} : std::vector<Index>{0, 1, 3, 33, 150};
  for (const Operator* op : op::all()) {
    for (const Index rows : row_counts) {
      const unsigned seed = first_seed() + static_cast<unsigned>(rows);
      SCOPED_TRACE(std::string(op->name.text()) + ", rows " + std::to_string(rows) + ", seed " + std::to_string(seed));
      std::mt19937 random(seed);
      const Application c = random_case(*op, rows, random);
      const Type type = infer(*op, c.signature);
      Applied applied(device, c);
      if (!op->updates) {
        expect_close(values_of(apply(device, *op, applied.made)), evaluate(reference_kernels(), *op, c), 1e-5);
      }
      const Values before = random_before(*op, c, random);
      const auto size = static_cast<std::ptrdiff_t>(elements(type));
      std::vector<Tensor> written;  // the result, then the states
      for (auto part = before.begin(); written.size() <= op->states; part += size) {
        written.push_back(applied.view<float>(type, written.size() % 2 == 0));
        written.back().set({part, part + size});
      }
      applied.made.write = Write::add;
      applied.made.states = {written.begin() + 1, written.end()};
      apply(device, *op, applied.made, written[0]);
      Values values;
      for (const Tensor& tensor : written) std::ranges::copy(values_of(tensor), std::back_inserter(values));
      expect_close(values, evaluate(reference_kernels(), *op, c, before), 1e-5);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(KernelsOnDevice, ComputesElementwiseOperatorsInPlaceOfAnyOperand) {
  for (const Operator* op : op::all()) {
    if (op->locality != Locality::elementwise || op->updates) continue;
    SCOPED_TRACE(std::string(op->name.text()));
    std::mt19937 random(first_seed());
    for (const Index rows : {7, 40}) {
      const Application c = random_case(*op, rows, random);
      for (std::size_t place = 0; place < c.in.size(); ++place) {
        Applied applied(device, c);
        apply(device, *op, applied.made, applied.made.in[place]);
        expect_close(values_of(applied.made.in[place]), evaluate(reference_kernels(), *op, c), 1e-5);
      }
    }
  }
}

/// docs/ops.md states the rule.
TEST_P(KernelsOnDevice, TreatsNanAndInfinityAsTheReferenceDoes) {
  for (const Operator* op : op::all()) {
    if (op->updates) continue;
    std::mt19937 random(first_seed());
    const Application c = random_case(*op, 2, random);
    bool same = true;
    each_planted(*op, c, elements(c.signature.in[0]) / 3 + 1, [&](const Application& planted, const std::string& what) {
      if (!same) return;
      const std::string wrong = difference(values_of(apply(device, *op, Applied(device, planted).made)),
                                           evaluate(reference_kernels(), *op, planted));
      same = wrong.empty();
      EXPECT_TRUE(same) << op->name.text() << ", " << what << ", seed " << first_seed() << ": " << wrong;
    });
  }
}

/// The device's result, which is the reference's.
Values both(const Device& device, const Operator& op, const Application& c) {
  const Values found = values_of(apply(device, op, Applied(device, c).made));
  EXPECT_EQ(difference(found, evaluate(reference_kernels(), op, c)), "") << op.name.text();
  return found;
}

/// A rounding error of the mean would be multiplied by 1 / sqrt(epsilon).
TEST_P(KernelsOnDevice, NormalisesEqualElementsToZero) {
  for (const Index width : {1, 3, 7, 100, 300, 768}) {
    for (const float common : {3.3f, 1000.1f, 12345.678f, 1e6f + 0.3f, 1e8f, -1e30f, 1e38f}) {
      SCOPED_TRACE("width " + std::to_string(width) + ", " + std::to_string(common));
      const Type type{Rows::count(1), width};
      const Values zeros(static_cast<std::size_t>(width), 0), row(static_cast<std::size_t>(width), common);
      Application c{{.in = {type}, .attributes = op::with_epsilon(1e-5)}, {row}};
      EXPECT_EQ(both(device, op::layer_norm, c), zeros);
      // Equal gradients add up to none, whatever the row is.
      c.signature.in.push_back(type);
      c.in.push_back(row);
      for (Index i = 0; i < width; ++i) c.in[0][static_cast<std::size_t>(i)] = static_cast<double>(i % 5);
      EXPECT_EQ(both(device, op::layer_norm_gradient, c), zeros);
    }
  }
}

TEST_P(KernelsOnDevice, NormalisesRowsOfALargeCommonPart) {
  std::mt19937 random(first_seed());
  for (const float common : {0.0f, 1e3f, -1e4f}) {
    for (const Index width : {5, 64, 300}) {
      const Type type{Rows::count(3), width};
      Application c{{.in = {type, type}, .attributes = op::with_epsilon(1e-5)},
                    {random_values(type, random), random_values(type, random)}};
      for (Values& values : c.in) {
        for (double& value : values) value = static_cast<float>(value) + common;
      }
      SCOPED_TRACE("width " + std::to_string(width) + ", " + std::to_string(common) + ", seed " +
                   std::to_string(first_seed()));
      const Application forward{{.in = {type}, .attributes = c.signature.attributes}, {c.in[0]}};
      for (const auto& [op, of] : {std::pair(&op::layer_norm, &forward), {&op::layer_norm_gradient, &c}}) {
        expect_close(values_of(apply(device, *op, Applied(device, *of).made)), evaluate(reference_kernels(), *op, *of),
                     common == 0 ? 1e-5 : 2e-3);
      }
    }
  }
}

TEST_P(KernelsOnDevice, KeepsTheDigitsOfLossesWhateverLogitsHaveInCommon) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const auto loss = [&](const Values& logits, double epsilon) {
    const Application c{{.in = {{Rows::count(1), static_cast<Index>(logits.size())}},
                         .indices = {{Rows::count(1), 1}},
                         .attributes = op::smoothed_by(epsilon)},
                        {logits},
                        {{0}}};
    const double smoothed = both(device, op::smoothed_cross_entropy, c)[0];
    if (epsilon > 0) return smoothed;
    Application plain = c;
    plain.signature.attributes = {};
    EXPECT_EQ(difference(both(device, op::softmax_cross_entropy, plain), {smoothed}), "");
    return smoothed;
  };
  for (const std::size_t width : {3, 40}) {
    for (const float common : {0.0f, 1e4f, 1e6f, 1e8f, -1e30f, 3e38f}) {
      for (const double epsilon : {0.0, 0.1}) {
        const Values logits(width, common);
        EXPECT_NEAR(loss(logits, epsilon), std::log(static_cast<double>(width)), 1e-5) << common;
      }
    }
  }
  EXPECT_NEAR(loss({0, 1, -inf}, 0), std::log(1 + std::exp(1.0)), 1e-6);
  EXPECT_EQ(loss({0, 1, -inf}, 0.1), inf);
  EXPECT_EQ(loss({-inf, 1, 0}, 0), inf);
}

/// More than one kernel takes.
TEST_P(KernelsOnDevice, LimitsTheNormOfManyLargeGradients) {
  StepNumbers numbers;
  numbers.scale = 0.5f;
  numbers.most_norm = 3;
  std::vector<float> row(numbers.begin(), numbers.begin() + StepNumbers::count);
  Operands operands{.in = {tensor(1, StepNumbers::count, row)}};
  const Tensor large = tensor(50, 300, std::vector<float>(15000, 0.25f));
  for (int i = 0; i < 300; ++i) {
    operands.in.push_back(i < 3 ? apply(device, op::squared_norm, {.in = {large}}) : tensor(1, 1, {1}));
  }
  row[1] = static_cast<float>(0.5 * 3 / (0.5 * std::sqrt(3 * 15000.0 / 16 + 297) + 1e-6));
  const std::vector<float> limited = apply(device, op::limit_norm, operands).get();
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (row[i] != limited[i]) {
      EXPECT_NEAR(limited[i], row[i], 1e-5 * row[i]) << i;
    }
  }
  operands.in.push_back(tensor(1, 1, {std::numeric_limits<float>::infinity()}));
  EXPECT_TRUE(std::isnan(apply(device, op::limit_norm, operands).get()[1]));
  row[1] = 0;  // of a step that is skipped
  operands.in.front() = tensor(1, StepNumbers::count, row);
  EXPECT_EQ(apply(device, op::limit_norm, operands).get()[1], 0);
}

/// Squares that no float holds, in one kernel and in several bands; and steps by such gradients.
TEST_P(KernelsOnDevice, TakesStepsByGradientsWhoseSquaresAreTooLarge) {
  StepNumbers numbers{.rate = 0.5f, .most_norm = 2, .first = 0.75f, .second = 0.875f};
  numbers.correct(3);
  const std::vector<float> row(numbers.begin(), numbers.begin() + StepNumbers::count);
  for (const auto& [rows, width] : {std::pair<Index, Index>(1, 4), std::pair<Index, Index>(100, 100)}) {
    for (const float large : {1e20f, 1e30f, 1e38f}) {
      SCOPED_TRACE(std::to_string(rows) + ", " + std::to_string(large));
      const auto count = static_cast<std::size_t>(rows * width);
      const Tensor gradient = tensor(rows, width, std::vector<float>(count, large));
      const Tensor norm = apply(device, op::squared_norm, {.in = {gradient}});
      const Tensor limited = apply(device, op::limit_norm, {.in = {tensor(1, StepNumbers::count, row), norm}});
      const Tensor value = tensor(rows, width, std::vector<float>(count, 0));
      apply(device, op::sgd_step, {.in = {gradient, limited}, .write = Write::add}, value);
      const double expected = -0.5 * 2 / std::sqrt(static_cast<double>(count));
      for (const float x : value.get()) ASSERT_NEAR(x / expected, 1, 1e-4);
      for (const Operator* const step : {&op::adagrad_step, &op::rmsprop_step, &op::adam_step}) {
        const Tensor to = tensor(rows, width, std::vector<float>(count, 0));
        Operands operands{.in = {gradient, tensor(1, StepNumbers::count, row)}, .write = Write::add};
        for (std::size_t k = 0; k < step->states; ++k) {
          operands.states.push_back(tensor(rows, width, std::vector<float>(count, 0)));
        }
        apply(device, *step, operands, to);
        for (const float x : to.get()) ASSERT_TRUE(x < -0.3f && x > -1.6f) << step->name.text() << " " << x;
      }
    }
  }
}

/// Some rows of a table have most of the gradient's rows, as frequent words do. A second time in more parts than one
/// kernel takes.
TEST_P(KernelsOnDevice, SumsLongSegmentsOfRows) {
  const Index rows = sanitized ? 600 : 3000, width = 37;
  std::mt19937 random(first_seed());
  Values gradient(static_cast<std::size_t>(rows * width));
  for (double& value : gradient) value = static_cast<double>(random() % 256) / 16;  // sums are exact in any order
  std::vector<std::int32_t> row_of;
  for (Index r = 0; r < rows; ++r) row_of.push_back(random() % 8 == 0 ? static_cast<std::int32_t>(random() % 50) : 7);
  const RowSegments segments = row_segments(row_of);
  const auto found = static_cast<Index>(segments.bounds.size()) / 3;
  for (const Index parts : {1, 100}) {
    SCOPED_TRACE(std::to_string(parts) + " parts, seed " + std::to_string(first_seed()));
    Application c{
        {.indices = {{Rows::count(found), 3}, {Rows::count(rows), 1}}}, {}, {segments.bounds, segments.order}};
    for (Index p = 0; p < parts; ++p) {
      const Index begin = rows * p / parts, end = rows * (p + 1) / parts;
      c.signature.in.push_back({Rows::count(end - begin), width});
      c.in.emplace_back(gradient.begin() + begin * width, gradient.begin() + end * width);
    }
    EXPECT_EQ(values_of(apply(device, op::sum_parts, Applied(device, c).made)),
              evaluate(reference_kernels(), op::sum_parts, c));
  }
}

/// An operator on `rows` rows of 0.1, in which a float that becomes large loses a part of each further addend.
Application long_sum(const Operator& op, Index rows) {
  const auto count = static_cast<std::size_t>(rows);
  const Type column{Rows::count(rows), 1}, row{Rows::count(1), rows};
  const Values tenths(count, static_cast<double>(0.1f)), ones(count, 1);
  const std::vector<std::int32_t> all = {0, static_cast<std::int32_t>(rows)}, zeros(count, 0);
  std::vector<std::int32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  const Type bounds{Rows::count(1), 2}, pairs{Rows::count(rows), 2};
  std::vector<std::int32_t> pair_of_each;
  for (const std::int32_t number : numbers) pair_of_each.insert(pair_of_each.end(), {number, number});
  if (&op == &op::row_sum) return {{.in = {row}}, {tenths}};
  if (&op == &op::row_dot) return {{.in = {row, row}}, {tenths, ones}};
  if (&op == &op::column_dot) return {{.in = {column, column}}, {tenths, ones}};
  if (&op == &op::segment_sum || &op == &op::segment_mean) {
    return {{.in = {column}, .indices = {bounds}}, {tenths}, {all}};
  }
  if (&op == &op::gather_sum) return {{.in = {column}, .indices = {bounds, column}}, {tenths}, {all, numbers}};
  if (&op == &op::gather_dot || &op == &op::gather_weighted_sum) {
    return {{.in = {column, column}, .indices = {bounds, pairs}}, {tenths, ones}, {all, pair_of_each}};
  }
  if (&op == &op::scatter_rows || &op == &op::scatter_bags) {
    return {{.in = {column}, .indices = {column}, .attributes = op::to_rows(Rows::count(3))}, {tenths}, {zeros}};
  }
  if (&op == &op::sum_parts) {
    return {{.in = {column}, .indices = {{Rows::count(1), 3}, column}}, {tenths}, {{0, all[0], all[1]}, numbers}};
  }
  if (&op == &op::add_channel_bias_gradient) return {{.in = {column}, .attributes = op::to_width(1)}, {tenths}};
  return {{.in = {column}}, {tenths}};
}

TEST_P(KernelsOnDevice, LosesNoDigitsInSumsOfManyRows) {
  for (const Operator* op :
       {&op::column_sum, &op::column_dot, &op::row_sum, &op::row_dot, &op::squared_norm, &op::segment_sum,
        &op::segment_mean, &op::gather_sum, &op::gather_dot, &op::gather_weighted_sum, &op::scatter_rows,
        &op::scatter_bags, &op::sum_parts, &op::add_channel_bias_gradient}) {
    SCOPED_TRACE(std::string(op->name.text()));
    const Application c = long_sum(*op, sanitized ? 20'000 : 200'000);
    const Values exact = evaluate(reference_kernels(), *op, c);
    Applied applied(device, c);
    EXPECT_NEAR(values_of(apply(device, *op, applied.made))[0] / exact[0], 1, 2e-6);
  }
}

/// Of its own kernels. On the host the op fails.
TEST_P(KernelsOnDevice, MakesRowsWithABadIndexNotANumber) {
  const Tensor table = tensor(3, 2, {1, 2, 3, 4, 5, 6});
  for (const std::int32_t bad : {4, -2, INT32_MAX, INT32_MIN}) {
    const IntTensor rows = ints(3, 1, {2, bad, 0});
    const Tensor found = apply(device, op::gather_rows, {.in = {table}, .indices = {rows}});
    const Tensor picked = apply(device, op::pick, {.in = {table}, .indices = {rows}});
    if (device.on_host()) {
      EXPECT_THROW(found.get(), OpError);
    }
    if (under_test.kernels == DeviceUnderTest::Kernels::of_host) continue;
    const std::vector<float> values = found.get();
    EXPECT_EQ(values[0], 5);
    EXPECT_EQ(values[5], 2);
    EXPECT_TRUE(std::isnan(values[2]) && std::isnan(values[3]));
    EXPECT_TRUE(std::isnan(picked.get()[1]));
    const IntTensor segments = ints(2, 2, {0, 2, std::min(2, bad), bad});
    const Tensor sums = apply(device, op::segment_sum, {.in = {table}, .indices = {segments}});
    EXPECT_EQ(sums.get()[1], 6);
    EXPECT_TRUE(std::isnan(sums.get()[2]));
    // A scattered row with a bad index is left out, and no row outside the result is written.
    const Tensor around = tensor(5, 2, std::vector<float>(10, 7));
    apply(device, op::scatter_rows,
          {.in = {table}, .indices = {rows}, .attributes = op::to_rows(Rows::count(3)), .write = Write::add},
          around.row_range(1, 4));
    EXPECT_EQ(around.get(), (std::vector<float>{7, 7, 12, 13, 7, 7, 8, 9, 7, 7}));
    const Tensor gathered = apply(device, op::gather_sum, {.in = {table}, .indices = {ints(2, 2, {0, 1, 1, 2}), rows}});
    EXPECT_EQ(gathered.get()[0], 5);
    EXPECT_TRUE(std::isnan(gathered.get()[2]));
    const IntTensor pairs = ints(2, 2, {0, 1, 2, bad}), each = ints(2, 2, {0, 1, 1, 2});
    const Tensor weighted =
        apply(device, op::gather_weighted_sum, {.in = {table, tensor(2, 1, {2, 3})}, .indices = {each, pairs}});
    EXPECT_EQ(weighted.get()[0], 3 * table.get()[0]);
    EXPECT_TRUE(std::isnan(weighted.get()[2]));
    const Tensor dots = apply(device, op::gather_dot, {.in = {table, table}, .indices = {each, pairs}});
    EXPECT_EQ(dots.get()[0], table.get()[0] * table.get()[2] + table.get()[1] * table.get()[3]);
    EXPECT_TRUE(std::isnan(dots.get()[1]));
  }
  if (device.on_host()) error_of<OpError>([&] { engine.wait_all(); });
}

TEST_P(KernelsOnDevice, MakesElementsWithABadTargetNotANumber) {
  const Tensor x = tensor(2, 2, {1, 2, 3, 4}), y = tensor(2, 2, {0, 1, 0.5, 2});
  const Tensor loss = apply(device, op::binary_cross_entropy, {.in = {x, y}});
  if (device.on_host()) {
    EXPECT_THROW(loss.get(), OpError);
  }
  if (under_test.kernels == DeviceUnderTest::Kernels::of_host) return;
  EXPECT_TRUE(std::isnan(loss.get()[3]));
  EXPECT_NEAR(loss.get()[1], std::log1p(std::exp(-2.0)), 1e-6);
}

/// Draws what the host draws, in the order of the pushes, whatever the device is.
TEST_P(KernelsOnDevice, DrawsTheNumbersOfTheHost) {
  const Device host = host_device(engine);
  Generator here(engine, 7), there(engine, 7);
  for (const Index width : {1, 64, 70}) {
    const Tensor a(device, 5, width), b(host, 5, width), c(device, 6, width), d(host, 6, width);
    const IntTensor keys(device, 5, 3), expected(host, 5, 3);
    here.uniform(a, -1, 2);
    here.normal(c, 1, 2);
    here.dropout_keys(keys);
    there.uniform(b, -1, 2);
    there.normal(d, 1, 2);
    there.dropout_keys(expected);
    EXPECT_EQ(a.get(), b.get());
    EXPECT_EQ(c.get(), d.get());
    EXPECT_EQ(keys.get(), expected.get());
  }
}

}  // namespace
}  // namespace windrow::testing
