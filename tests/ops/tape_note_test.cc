// Functions that compute gradients themselves, and backward passes of parts of programs.
#include <gtest/gtest.h>

#include "tests/ops/drawn_tensors.h"
#include "windrow/ops/tape.h"

namespace windrow::testing {
namespace {

using Floats = std::vector<float>;

class TapeNotes : public DrawnTensors {};

TEST_F(TapeNotes, CallFunctionsThatComputeGradients) {
  const Tensor x = drawn(2, 3), y = drawn(2, 3);
  for (const bool both : {false, true}) {
    Tape tape(host_);
    tape.watch(x);
    if (both) tape.watch(y);
    int calls = 0;
    const Tensor result = apply(host_, op::mul, {.in = {x, y}});
    tape.note({x, y}, {result}, [&](const Tape::Gradients& given, const std::vector<bool>& wanted, auto) {
      ++calls;
      EXPECT_EQ(wanted, (std::vector<bool>{true, both}));
      return Tape::Gradients{apply(host_, op::mul, {.in = {*given[0], y}}),
                             apply(host_, op::mul, {.in = {*given[0], x}})};
    });
    // x has an earlier gradient and a later one besides.
    const Tensor sum = tape.apply(op::add, {.in = {tape.apply(op::square, {.in = {result}}), x}});
    tape.backward(tape.apply(op::add, {.in = {sum, x}}));
    EXPECT_EQ(calls, 1);
    const Floats a = x.get(), b = y.get(), of_x = tape.gradient(x)->get();
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(of_x[i], 2 + 2 * a[i] * b[i] * b[i], 1e-5);
    if (!both) continue;
    const Floats of_y = tape.gradient(y)->get();
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(of_y[i], 2 * b[i] * a[i] * a[i], 1e-5);
  }
}

TEST_F(TapeNotes, CopyGradientsThatFunctionsWriteAgain) {
  const Tensor x = drawn(2, 3), kept(host_, 2, 3, "kept");
  Tape tape(host_);
  tape.watch(x);
  Tensor sum = tape.apply(op::neg, {.in = {x}});
  for (float factor = 1; factor < 4; ++factor) {
    const Attributes by = op::scaled_by(factor);
    const Tensor scaled = apply(host_, op::scale, {.in = {x}, .attributes = by});
    tape.note({x}, {scaled}, [=, this](const Tape::Gradients& given, const std::vector<bool>&, auto) {
      apply(host_, op::scale, {.in = {*given[0]}, .attributes = by}, kept);
      return Tape::Gradients{kept};
    });
    sum = tape.apply(op::add, {.in = {sum, scaled}});
  }
  tape.backward(sum);
  EXPECT_EQ(tape.gradient(x)->get(), Floats(6, 5));
}

TEST_F(TapeNotes, RefuseWhatTheyCannotNote) {
  const Tensor x = drawn(2, 3), y = drawn(2, 3);
  const Tape::Backward none = [](const auto& given, const auto& wanted, auto) {
    static_cast<void>(given);
    return Tape::Gradients(wanted.size() + 1);
  };
  Tape tape(host_);
  tape.watch(x);
  EXPECT_NE(error([&] { tape.note({x}, {y}, {}); }).find("without a function"), std::string::npos);
  EXPECT_NE(error([&] { tape.note({x}, {x}, none); }).find("which the tape knows"), std::string::npos);
  EXPECT_NE(error([&] { tape.note({x, y}, {y}, none); }).find("which the tape knows"), std::string::npos);
  EXPECT_NE(error([&] { tape.note({x}, {y, y}, none); }).find("which the tape knows"), std::string::npos);
  EXPECT_NE(error([&] { tape.note({x}, {y.row_range(0, 1)}, none); }).find("part of a tensor"), std::string::npos);
  EXPECT_NE(error([&] { tape.note({x.row_range(0, 1)}, {y}, none); }).find("of a view"), std::string::npos);
  tape.note({x}, {y}, none);
  const Tensor sum = tape.apply(op::add, {.in = {x, y}});
  EXPECT_NE(error([&] { tape.backward(sum); }).find("returned 2 gradients for 1 operands"), std::string::npos);
  EXPECT_FALSE(tape.gradient(x));
  EXPECT_NE(error([&] { tape.note({x}, {drawn(1, 1)}, none); }).find("after backward()"), std::string::npos);
  Tape wrong(host_);
  wrong.watch(x);
  const Tensor z = drawn(1, 1);
  wrong.note({x}, {z}, [&](const auto& given, const auto&, auto) { return Tape::Gradients{*given[0]}; });
  EXPECT_NE(error([&] { wrong.backward(z); }).find("is 1 x 1; expected 2 x 3"), std::string::npos);
}

TEST_F(TapeNotes, GoBackFromGivenGradients) {
  const Tensor x = drawn(2, 3), given = drawn(2, 3), constant = drawn(2, 3);
  Tape tape(host_);
  tape.watch(x);
  const Tensor square = tape.apply(op::square, {.in = {x}}), other = tape.apply(op::neg, {.in = {x}});
  // One result twice, a watched tensor, a result without a gradient, and one that depends on nothing.
  const std::vector<Tensor> results = {square, square, x, other, constant};
  tape.backward_from(results, {given, given, given, std::nullopt, given});
  const Floats a = x.get(), g = given.get(), gradient = tape.gradient(x)->get();
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(gradient[i], g[i] + 4 * a[i] * g[i], 1e-5);
  EXPECT_EQ(given.get(), g);

  Tape nothing(host_);
  nothing.watch(x);
  nothing.backward_from({constant}, {given});
  EXPECT_FALSE(nothing.gradient(x));
  Tape refused(host_);
  refused.watch(x);
  EXPECT_NE(error([&] { refused.backward_from({x}, {}); }).find("expected one for each"), std::string::npos);
  EXPECT_NE(error([&] { refused.backward_from({x}, {drawn(1, 3)}); }).find("is 1 x 3; expected 2 x 3"),
            std::string::npos);
  EXPECT_NE(error([&] { refused.backward_from({x.row_range(0, 1)}, {drawn(1, 3)}); }).find("of a view"),
            std::string::npos);
}

}  // namespace
}  // namespace windrow::testing
