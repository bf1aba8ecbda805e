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
  expect_error<MisuseError>([&] { tape.note({x}, {y}, {}); }, "without a function");
  expect_error<MisuseError>([&] { tape.note({x}, {x}, none); }, "which the tape knows");
  expect_error<MisuseError>([&] { tape.note({x, y}, {y}, none); }, "which the tape knows");
  expect_error<MisuseError>([&] { tape.note({x}, {y, y}, none); }, "which the tape knows");
  expect_error<MisuseError>([&] { tape.note({x}, {y.row_range(0, 1)}, none); }, "part of a tensor");
  expect_error<MisuseError>([&] { tape.note({x.row_range(0, 1)}, {y}, none); }, "of a view");
  tape.note({x}, {y}, none);
  const Tensor sum = tape.apply(op::add, {.in = {x, y}});
  expect_error<MisuseError>([&] { tape.backward(sum); }, "returned 2 gradients for 1 operands");
  EXPECT_FALSE(tape.gradient(x));
  expect_error<MisuseError>([&] { tape.note({x}, {drawn(1, 1)}, none); }, "after backward()");
  Tape wrong(host_);
  wrong.watch(x);
  const Tensor z = drawn(1, 1);
  wrong.note({x}, {z}, [&](const auto& given, const auto&, auto) { return Tape::Gradients{*given[0]}; });
  expect_error<MisuseError>([&] { wrong.backward(z); }, "is 1 x 1; expected 2 x 3");
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
  expect_error<MisuseError>([&] { refused.backward_from({x}, {}); }, "expected one for each");
  expect_error<MisuseError>([&] { refused.backward_from({x}, {drawn(1, 3)}); }, "is 1 x 3; expected 2 x 3");
  expect_error<MisuseError>([&] { refused.backward_from({x.row_range(0, 1)}, {drawn(1, 3)}); }, "of a view");
}

}  // namespace
}  // namespace windrow::testing
