// What bodies of a StaticBlock may not do.
#include <gtest/gtest.h>

#include "tests/ops/drawn_tensors.h"
#include "windrow/ops/static_block.h"

namespace windrow::testing {
namespace {

class StaticBlockMisuse : public DrawnTensors {};

TEST_F(StaticBlockMisuse, RefusesBodiesWithOtherEffects) {
  const Tensor w = drawn(2, 2), x = drawn(2, 2);
  const auto refused = [&](std::vector<Tensor> weights, const StaticBlock::Body& body) {
    return error([&] {
      StaticBlock block(host_, std::move(weights), body);
      Tape tape(host_);
      block(tape, {.in = {x}});
    });
  };
  const auto product = [&](Tape& tape, const StaticInputs& of) -> std::vector<Tensor> {
    return {tape.apply(op::matmul, {.in = {of.in[0], w}})};
  };
  EXPECT_NE(refused({}, product).find("no input and not listed"), std::string::npos);
  EXPECT_NE(refused({w, w}, product).find("listed twice"), std::string::npos);
  EXPECT_NE(refused({}, {}).find("no body"), std::string::npos);
  const auto draw = [&](Tape&, const StaticInputs&) -> std::vector<Tensor> { return {drawn(2, 2)}; };
  EXPECT_NE(refused({}, draw).find("or draws"), std::string::npos);
  const auto write = [&](Tape&, const StaticInputs& of) -> std::vector<Tensor> {
    apply(host_, op::neg, {.in = of.in}, w);
    return {w};
  };
  EXPECT_NE(refused({w}, write).find("writes what the body has not made"), std::string::npos);
  const auto part = [&](Tape& tape, const StaticInputs& of) -> std::vector<Tensor> {
    return {tape.apply(op::neg, {.in = of.in}).row_range(0, 1)};
  };
  EXPECT_NE(refused({}, part).find("returns a part of a tensor"), std::string::npos);
  const auto give = [&](Tape&, const StaticInputs&) -> std::vector<Tensor> { return {w}; };
  EXPECT_NE(refused({}, give).find("returns a tensor from outside"), std::string::npos);
  // In another body, too.
  const std::string inside = error([&] {
    StaticBlock block(host_, {}, product);
    Static outer(host_, [&](const StaticInputs& of) {
      Tape tape(host_);
      return block(tape, of);
    });
    outer({.in = {x}});
  });
  EXPECT_NE(inside.find("no input and not listed"), std::string::npos);
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
