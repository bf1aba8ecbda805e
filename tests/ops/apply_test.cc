// Operators on tensors, as ops of the engine.
#include "windrow/ops/apply.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "tests/engine/support.h"
#include "tests/memory/counting_allocator.h"

namespace windrow {
namespace {

using testing::error_of;
using testing::EveryPolicy;
using Floats = std::vector<float>;

class ApplyOnEveryPolicy : public EveryPolicy {};
WINDROW_EVERY_POLICY(ApplyOnEveryPolicy);

TEST_P(ApplyOnEveryPolicy, TrainsALineByGradientDescent) {
  Engine engine(options());
  const Device host = host_device(engine);
  // y = 2 a - 3 b + 0.5 for eight points; the loss is half the squared distance.
  Tensor x(host, 8, 2, "x"), y(host, 8, 1, "y"), w(host, 2, 1, "w"), b(host, 1, 1, "b");
  Floats points, wanted;
  for (int i = 0; i < 8; ++i) {
    const auto p = static_cast<float>(i % 3) - 1, q = static_cast<float>(i) / 4 - 1;
    points.insert(points.end(), {p, q});
    wanted.push_back(2 * p - 3 * q + 0.5f);
  }
  x.set(points);
  y.set(wanted);
  w.set({0, 0});
  b.set({0});
  for (int step = 0; step < 400; ++step) {
    const Tensor guess = apply(host, op::add_bias, {.in = {apply(host, op::matmul, {.in = {x, w}}), b}});
    const Tensor off = apply(host, op::sub, {.in = {guess, y}});
    const auto rate = op::at_rate(0.1);
    apply(host, op::sgd,
          {.in = {apply(host, op::matmul_tn, {.in = {x, off}})}, .attributes = rate, .write = Write::add}, w);
    apply(host, op::sgd, {.in = {apply(host, op::column_sum, {.in = {off}})}, .attributes = rate, .write = Write::add},
          b);
  }
  EXPECT_NEAR(w.get()[0], 2, 1e-3);
  EXPECT_NEAR(w.get()[1], -3, 1e-3);
  EXPECT_NEAR(b.get()[0], 0.5, 1e-3);
  EXPECT_EQ(engine.stats().waits_in_ops, 0u);
}

class Apply : public ::testing::Test {
 protected:
  Engine engine{{.policy = Policy::pool, .workers = 2}};
  Device host = host_device(engine);

  Tensor tensor(Index rows, Index width, Floats values, OpName name = "tensor") {
    Tensor made(host, rows, width, name);
    made.set(std::move(values));
    return made;
  }
  IntTensor ints(Index rows, Index width, std::vector<std::int32_t> values) {
    IntTensor made(host, rows, width, "ints");
    made.set(std::move(values));
    return made;
  }
};

TEST_F(Apply, WritesAPartAndKeepsTheRest) {
  const Tensor x = tensor(3, 3, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  const Tensor part = x.row_range(1, 3).column_range(0, 2);
  EXPECT_EQ(part.get(), (Floats{4, 5, 7, 8}));
  EXPECT_FALSE(part.whole());
  apply(host, op::scale, {.in = {tensor(2, 2, {1, 2, 3, 4})}, .attributes = op::scaled_by(10)}, part);
  EXPECT_EQ(x.get(), (Floats{1, 2, 3, 10, 20, 6, 30, 40, 9}));
  part.set({0, 0, 0, 0});
  EXPECT_EQ(x.get(), (Floats{1, 2, 3, 0, 0, 6, 0, 0, 9}));
}

TEST_F(Apply, AddsToWhatIsThere) {
  const Tensor sum = tensor(1, 2, {10, 20});
  apply(host, op::scale, {.in = {tensor(1, 2, {1, 2})}, .attributes = op::scaled_by(2), .write = Write::add}, sum);
  EXPECT_EQ(sum.get(), (Floats{12, 24}));
}

TEST_F(Apply, ElementwiseInPlace) {
  const Tensor x = tensor(1, 3, {1, 2, 3});
  apply(host, op::mul, {.in = {x, x}}, x);
  EXPECT_EQ(x.get(), (Floats{1, 4, 9}));
}

TEST_F(Apply, UpdatesRowsOfATableOneByOne) {
  const Tensor table = tensor(3, 2, {1, 1, 2, 2, 3, 3});
  const Tensor step = tensor(3, 2, {1, 0, 0, 1, 1, 1});
  apply(host, op::sgd_rows,
        {.in = {step},
         .indices = {ints(3, 1, {2, 0, 2})},
         .attributes = {.sizes = {3, 0}, .values = {0.5, 0}},
         .write = Write::add},
        table);
  EXPECT_EQ(table.get(), (Floats{1, 0.5, 2, 2, 2, 2.5}));
}

TEST_F(Apply, OperandsOfNoRowsGiveNoRows) {
  const Tensor x = tensor(0, 3, {}), w = tensor(3, 2, {1, 2, 3, 4, 5, 6});
  const Tensor y = apply(host, op::matmul, {.in = {x, w}});
  EXPECT_EQ(y.rows(), 0);
  EXPECT_EQ(y.get(), Floats{});
  EXPECT_EQ(apply(host, op::column_sum, {.in = {y}}).get(), (Floats{0, 0}));
}

TEST_F(Apply, FreesWhatNobodyNamesAfterItsLastReader) {
  auto memory = std::make_shared<testing::CountingAllocator>();
  host.memory = memory;
  std::optional<Tensor> y;
  {
    const Tensor x = tensor(4, 4, Floats(16, 1));
    y = apply(host, op::square, {.in = {apply(host, op::neg, {.in = {x}})}});
  }
  EXPECT_EQ(y->get(), Floats(16, 1));
  engine.wait_all();
  EXPECT_EQ(memory->held, 64u);
  y.reset();
  engine.wait_all();
  EXPECT_EQ(memory->held, 0u);
}

TEST_F(Apply, RefusesAResultOfAnotherShape) {
  const Tensor x = tensor(1, 3, {1, 2, 3}, "x"), out(host, 1, 2, "out");
  EXPECT_EQ(error_of<MisuseError>([&] { apply(host, op::neg, {.in = {x}}, out); }),
            "neg: operands 1 x 3; expected a result 1 x 3, not 1 x 2");
}

TEST_F(Apply, RefusesAResultThatIsAnOperand) {
  const Tensor x = tensor(2, 2, {1, 2, 3, 4});
  const std::string expected = "expected a result that shares no buffer with an operand";
  EXPECT_NE(error_of<MisuseError>([&] {
              apply(host, op::matmul, {.in = {x, x}}, x);
            }).find(expected),
            std::string::npos);
  const std::string shifted =
      error_of<MisuseError>([&] { apply(host, op::neg, {.in = {x.row_range(0, 1)}}, x.row_range(1, 2)); });
  EXPECT_NE(shifted.find(expected), std::string::npos);
  EXPECT_EQ(x.get(), (Floats{1, 2, 3, 4}));
}

TEST_F(Apply, UpdatesDemandToBeAdded) {
  const Tensor x = tensor(1, 1, {1});
  EXPECT_EQ(error_of<MisuseError>([&] { apply(host, op::sgd, {.in = {x}}); }),
            "sgd: operands 1 x 1; expected Write::add");
}

TEST_F(Apply, NamesAnOperatorWithoutKernel) {
  static const Operator mystery{.name = "mystery", .infer = op::neg.infer};
  const Tensor x = tensor(1, 1, {1});
  EXPECT_EQ(error_of<MisuseError>([&] { apply(host, mystery, {.in = {x}}); }),
            "operator 'mystery' has no kernel in this table; expected one added with KernelTable::add");
}

TEST_F(Apply, AnIndexOutOfRangePoisonsTheResult) {
  const Tensor table = tensor(2, 1, {1, 2});
  const Tensor rows = apply(host, op::embedding, {.in = {table}, .indices = {ints(2, 1, {0, 2})}});
  const std::string text = error_of<OpError>([&] { rows.get(); });
  EXPECT_NE(text.find("op 'embedding' (pushed at "), std::string::npos) << text;
  EXPECT_NE(text.find("apply_test.cc:"), std::string::npos) << text;
  EXPECT_NE(text.find("index 2 at row 1; expected 0 to 1"), std::string::npos) << text;
  EXPECT_EQ(table.get(), (Floats{1, 2}));
}

TEST_F(Apply, AnOperandNobodyWroteFailsTheOp) {
  const Tensor never(host, 1, 1, "never");
  const std::string text = error_of<OpError>([&] { apply(host, op::neg, {.in = {never}}).get(); });
  EXPECT_NE(text.find("buffer 'never' is read before anything was written to it"), std::string::npos) << text;
}

TEST_F(Apply, TensorsOfImpossibleSizesAreRefused) {
  EXPECT_EQ(error_of<MisuseError>([&] { Tensor(host, -1, 2, "x"); }), "tensor 'x': -1 x 2; expected no negative size");
  constexpr Index huge = std::numeric_limits<Index>::max();
  EXPECT_EQ(error_of<OutOfMemory>([&] { Tensor(host, huge, 2, "x"); }),
            "tensor 'x': 9223372036854775807 x 2 is more than any memory holds");
  const Tensor x = tensor(2, 2, {1, 2, 3, 4});
  EXPECT_EQ(error_of<MisuseError>([&] { x.row_range(1, 3); }), "view of rows [1, 3); expected it within [0, 2)");
  EXPECT_EQ(error_of<MisuseError>([&] { x.set({1}); }), "set: 1 values; expected 2 x 2");
}

}  // namespace
}  // namespace windrow
