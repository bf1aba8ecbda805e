// What bodies of a StaticBlock may not do.
#include <gtest/gtest.h>

#include "tests/ops/drawn_tensors.h"
#include "windrow/ops/static_block.h"

namespace windrow::testing {
namespace {

class StaticBlockMisuse : public DrawnTensors {};

TEST_F(StaticBlockMisuse, RefusesBodiesWithOtherEffects) {
  const Tensor w = drawn(2, 2), x = drawn(2, 2);
  const auto expect_refused = [&](std::vector<Tensor> weights, const StaticBlock::Body& body, const char* reason) {
    expect_error<MisuseError>(
        [&] {
          StaticBlock block(host_, std::move(weights), body);
          Tape tape(host_);
          block(tape, {.in = {x}});
        },
        reason);
  };
  const auto product = [&](Tape& tape, const StaticInputs& of) -> std::vector<Tensor> {
    return {tape.apply(op::matmul, {.in = {of.in[0], w}})};
  };
  expect_refused({}, product, "no input and not listed");
  expect_refused({w, w}, product, "listed twice");
  expect_refused({}, {}, "no body");
  expect_refused(
      {}, [&](Tape&, const auto&) -> std::vector<Tensor> { return {drawn(2, 2)}; }, "or draws");
  const auto write = [&](Tape&, const StaticInputs& of) -> std::vector<Tensor> {
    apply(host_, op::neg, {.in = of.in}, w);
    return {w};
  };
  expect_refused({w}, write, "writes what the body has not made");
  const auto part = [&](Tape& tape, const StaticInputs& of) -> std::vector<Tensor> {
    return {tape.apply(op::neg, {.in = of.in}).row_range(0, 1)};
  };
  expect_refused({}, part, "returns a part of a tensor");
  expect_refused(
      {}, [&](Tape&, const auto&) -> std::vector<Tensor> { return {w}; }, "returns a tensor from outside");
  // In another body, too.
  StaticBlock block(host_, {}, product);
  Static outer(host_, [&](const StaticInputs& of) {
    Tape tape(host_);
    return block(tape, of);
  });
  expect_error<MisuseError>([&] { outer({.in = {x}}); }, "no input and not listed");
}

TEST_F(StaticBlockMisuse, RefusesABodyThatChanges) {
  int calls = 0;
  const Tensor x = drawn(2, 2);
  StaticBlock block(host_, {}, [&](Tape& tape, const StaticInputs& of) {
    return std::vector<Tensor>(++calls > 1 ? 2 : 1, tape.apply(op::square, {.in = of.in}));
  });
  Tape tape(host_);
  tape.watch(x);
  const Tensor square = block(tape, {.in = {x}})[0];
  expect_error<MisuseError>([&] { tape.backward(square); }, "expected the same program");
}

}  // namespace
}  // namespace windrow::testing
