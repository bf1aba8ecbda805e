// Blocks of dynamic programs, compared with the same programs on a plain tape, and what their bodies may not do.
#include "windrow/ops/static_block.h"

#include "tests/ops/host_tensors.h"

namespace windrow::testing {
namespace {

class StaticBlockTest : public HostTensors {
 protected:
  using Loss = std::function<Tensor(Tape&, const std::vector<Tensor>&)>;
  static Tensor first_result(Tape&, const std::vector<Tensor>& results) { return results[0]; }

  /// Compares the loss of the results of a call, and the gradients of these tensors, with those of the body on a plain
  /// tape.
  void expect_as_on_a_plain_tape(StaticBlock& block, const StaticBlock::Body& body, const StaticInputs& call,
                                 const std::vector<Tensor>& watched, const Loss& loss = first_result) {
    const auto run = [&](const StaticBlock::Body& by) {
      Tape tape(host);
      for (const Tensor& tensor : watched) tape.watch(tensor);
      std::vector<Tensor> all = {loss(tape, by(tape, call))};
      tape.backward(all[0]);
      for (const Tensor& tensor : watched) all.push_back(*tape.gradient(tensor));
      return all;
    };
    const std::vector<Tensor> expected = run(body),
                              found = run([&](Tape&tape, const StaticInputs&of) { return block(tape, of); });
    EXPECT_EQ(found[0].get(), expected[0].get());
    for (std::size_t k = 0; k < expected.size(); ++k) expect_near(found[k].get(), expected[k].get(), 1e-4);
  }
};

TEST_F(StaticBlockTest, MayBeCalledByABlock) {
  const Tensor a = drawn(4, 4), b = drawn(4, 4), x = drawn(2, 4);
  const StaticBlock::Body one = [&](Tape& tape, const StaticInputs& of) -> std::vector<Tensor> {
    return {tape.apply(op::tanh, {.in = {tape.apply(op::matmul, {.in = {of.in[0], a}})}})};
  };
  const auto two = [&](const StaticBlock::Body& by) -> StaticBlock::Body {
    return [&, by](Tape& tape, const StaticInputs& of) -> std::vector<Tensor> {
      const Tensor once = by(tape, of)[0];
      const Tensor twice = by(tape, {.in = {tape.apply(op::matmul, {.in = {once, b}})}})[0];
      return {tape.apply(op::add, {.in = {twice, once}})};
    };
  };
  StaticBlock inner(host, {a}, one);
  StaticBlock outer(host, {a, b}, two([&](Tape& tape, const StaticInputs& of) { return inner(tape, of); }));
  for (int i = 0; i < 3; ++i) expect_as_on_a_plain_tape(outer, two(one), {.in = {x}}, {a, b, x});
}

TEST_F(StaticBlockTest, PassesOneTensorTwice) {
  const Tensor x = drawn(2, 3);
  const StaticBlock::Body body = [](Tape& tape, const StaticInputs& of) -> std::vector<Tensor> {
    return {tape.apply(op::mul, {.in = of.in})};
  };
  StaticBlock product(host, {}, body);
  for (int i = 0; i < 2; ++i) expect_as_on_a_plain_tape(product, body, {.in = {x, x}}, {x});
  // In another body the inputs are no copies, and so one tensor.
  Static recorded(host, [&](const StaticInputs& of) -> std::vector<Tensor> {
    Tape tape(host);
    tape.watch(of.in[0]);
    tape.backward(product(tape, {.in = {of.in[0], of.in[0]}})[0]);
    return {*tape.gradient(of.in[0])};
  });
  const Floats values = x.get(), twice = recorded({.in = {x}})[0].get();
  for (std::size_t k = 0; k < twice.size(); ++k) EXPECT_FLOAT_EQ(twice[k], 2 * values[k]);
}

TEST_F(StaticBlockTest, TakesIndicesAndKeysOfDropout) {
  const Tensor table = drawn(6, 4, "table");
  const StaticBlock::Body body = [&](Tape& tape, const StaticInputs& of) -> std::vector<Tensor> {
    const Tensor rows = tape.apply(op::embedding, {.in = {table}, .indices = {of.indices[0]}});
    return {
        tape.apply(op::dropout, {.in = {rows}, .indices = {of.indices[1]}, .attributes = op::dropout_by(0.5, 3, 0)})};
  };
  StaticBlock look_up(host, {table}, body);
  for (int i = 0; i < 4; ++i) {
    const IntTensor numbers = ints(3, 1, {i, 5, i}), keys(host, 3, 3, "keys");
    draws.dropout_keys(keys);
    expect_as_on_a_plain_tape(look_up, body, {.indices = {numbers, keys}}, {table});
  }
}

TEST_F(StaticBlockTest, HasRecordingsByKeyAndKeepsFew) {
  const Tensor w = drawn(3, 3), x = drawn(2, 3);
  // Several results, of which the key says how many are squashed.
  const auto body = [&](Tape& tape, const StaticInputs& of) -> std::vector<Tensor> {
    std::vector<Tensor> results;
    Tensor y = of.in[0];
    for (std::uint64_t k = 0; k < 6; ++k) {
      y = tape.apply(k < of.key ? op::tanh : op::square, {.in = {tape.apply(op::matmul, {.in = {y, w}})}});
      results.push_back(y);
    }
    return results;
  };
  StaticBlock block(host, {w}, body, {.most_recordings = 2});
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    const StaticInputs call{.in = {x}, .key = random() % 5};
    const std::uint32_t used = 1 + random() % 63;
    expect_as_on_a_plain_tape(block, body, call, {w}, [&](Tape& tape, const std::vector<Tensor>& results) {
      std::optional<Tensor> sum;
      for (std::size_t k = 0; k < results.size(); ++k) {
        if ((used >> k & 1) == 0) continue;
        sum = sum ? tape.apply(op::add, {.in = {*sum, results[k]}}) : results[k];
      }
      return *sum;
    });
  }
  EXPECT_EQ(block.forward().kept, 2u);
  EXPECT_EQ(block.backward().kept, 8u);
}

TEST_F(StaticBlockTest, HasGradientsWithoutRowsAndMayEndBeforeThem) {
  const Tensor w = drawn(3, 3), u = drawn(3, 3), x(host, 0, 3, "x");
  std::optional<StaticBlock> block;
  block.emplace(host, std::vector<Tensor>{u}, [&](Tape& tape, const StaticInputs& of) -> std::vector<Tensor> {
    return {tape.apply(op::matmul, {.in = {of.in[0], u}})};
  });
  Tape tape(host);
  for (const Tensor& tensor : {w, u}) tape.watch(tensor);
  const Tensor result = (*block)(tape, {.in = {tape.apply(op::matmul, {.in = {x, w}})}})[0];
  block.reset();
  tape.backward(tape.apply(op::column_sum, {.in = {result}}));
  for (const Tensor& tensor : {w, u}) EXPECT_EQ(tape.gradient(tensor).value().get(), Floats(9, 0));
}

TEST_F(StaticBlockTest, GivesGradientsWhereThereAreSome) {
  const Tensor w = drawn(3, 3), unused = drawn(1, 1), x = drawn(2, 3), y = drawn(2, 3);
  StaticBlock block(host, {w, unused}, [&](Tape& tape, const StaticInputs& of) -> std::vector<Tensor> {
    return {tape.apply(op::matmul, {.in = {of.in[0], w}}), tape.apply(op::square, {.in = {of.in[1]}})};
  });
  Tape tape(host);
  for (const Tensor& tensor : {w, unused, y}) tape.watch(tensor);
  const std::vector<Tensor> results = block(tape, {.in = {x, y}});
  tape.backward(results[1]);
  EXPECT_FALSE(tape.gradient(w));
  EXPECT_FALSE(tape.gradient(unused));
  const Floats values = y.get(), gradient = tape.gradient(y)->get();
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_FLOAT_EQ(gradient[i], 2 * values[i]);
  // Nothing is noted where nothing is watched.
  Tape other(host);
  expect_error<MisuseError>([&] { other.backward(block(other, {.in = {x, y}})[0]); }, "depends on no watched");
}

TEST_F(StaticBlockTest, RecoversWhereTheProgramGoesOnWithoutItsGradients) {
  const Tensor table = drawn(4, 3), x = drawn(2, 3);
  const IntTensor right = ints(2, 1, {1, 2}), wrong = ints(2, 1, {1, 9});
  StaticBlock block(host, {table}, [&](Tape& tape, const StaticInputs& of) -> std::vector<Tensor> {
    const Tensor rows = tape.apply(op::embedding, {.in = {table}, .indices = of.indices});
    return {tape.apply(op::mul, {.in = {tape.apply(op::tanh, {.in = {rows}}), of.in[0]}})};
  });
  const auto step = [&](const IntTensor& numbers, bool differentiates) {
    Tape tape(host);
    tape.watch(table);
    const Tensor result = block(tape, {.in = {x}, .indices = {numbers}})[0];
    if (differentiates) tape.backward(result);
    return result.get();
  };
  const Floats expected = step(right, true);
  EXPECT_THROW(step(wrong, true), Error);
  EXPECT_THROW(engine.wait_all(), Error);
  EXPECT_EQ(step(right, false), expected);
  EXPECT_EQ(step(right, false), expected);
  engine.wait_all();
}

TEST_F(StaticBlockTest, IsAPartOfARecordedStepAndTakesPartsOfTensorsThere) {
  const Tensor w = drawn(3, 3);
  // A program that places its results in parts of larger tensors.
  const Tape::Apply place = [&](const Operator& op, const Operands& operands, const Tensor* out, auto from) {
    if (out != nullptr) return apply(host, op, operands, *out, from), *out;
    const Tensor like = apply(host, op, operands, from), whole(host, like.rows() + 1, like.width(), "whole");
    const Tensor part = whole.row_range(0, like.rows());
    apply(host, op, operands, part, from);
    return part;
  };
  StaticBlock block(host, {w}, [&](Tape& tape, const StaticInputs& of) -> std::vector<Tensor> {
    return {tape.apply(op::tanh, {.in = {tape.apply(op::matmul, {.in = {of.in[0], w}})}})};
  });
  const auto step = [&](const StaticInputs& of) -> std::vector<Tensor> {
    Tape tape(host, place);
    tape.watch(w);
    Tensor y = of.in[0];
    for (int i = 0; i < 3; ++i) y = block(tape, {.in = {tape.apply(op::matmul, {.in = {y, w}})}})[0];
    tape.backward(y);
    return {*tape.gradient(w)};
  };
  Static recorded(host, step);
  for (int i = 0; i < 3; ++i) {
    const StaticInputs call{.in = {drawn(2, 3)}};
    const Floats expected = step(call)[0].get();
    expect_near(recorded(call)[0].get(), expected, 1e-4);
  }
}

TEST_F(StaticBlockTest, MayUseAnInputThatHasNoGradient) {
  const Tensor w = drawn(3, 3), x = drawn(2, 3);
  StaticBlock block(host, {w}, [&](Tape& tape, const StaticInputs& of) -> std::vector<Tensor> {
    const Tensor constant = tape.apply(op::stop_gradient, {.in = {of.in[1]}});
    return {tape.apply(op::mul, {.in = {tape.apply(op::matmul, {.in = {of.in[0], w}}), constant}})};
  });
  const auto mask_of = [&](Tape& tape) { return tape.apply(op::relu_gradient, {.in = {x, x}}); };
  Tape tape(host);
  for (const Tensor& tensor : {w, x}) tape.watch(tensor);
  tape.backward(block(tape, {.in = {x, mask_of(tape)}})[0]);
  EXPECT_TRUE(tape.gradient(w));
  // Where it needs one, it is missed.
  StaticBlock product(host, {}, [&](Tape& inner, const StaticInputs& of) -> std::vector<Tensor> {
    return {inner.apply(op::mul, {.in = of.in})};
  });
  Tape other(host);
  other.watch(x);
  const Tensor result = product(other, {.in = {x, mask_of(other)}})[0];
  expect_error<MisuseError>([&] { other.backward(result); }, "relu_gradient has no gradient");
  EXPECT_FALSE(other.gradient(x));
}

using StaticBlockMisuse = HostTensors;

TEST_F(StaticBlockMisuse, RefusesBodiesWithOtherEffects) {
  const Tensor w = drawn(2, 2), x = drawn(2, 2);
  const auto expect_refused = [&](std::vector<Tensor> weights, const StaticBlock::Body& body, const char* reason) {
    expect_error<MisuseError>(
        [&] {
          StaticBlock block(host, std::move(weights), body);
          Tape tape(host);
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
    apply(host, op::neg, {.in = of.in}, w);
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
  StaticBlock block(host, {}, product);
  Static outer(host, [&](const StaticInputs& of) {
    Tape tape(host);
    return block(tape, of);
  });
  expect_error<MisuseError>([&] { outer({.in = {x}}); }, "no input and not listed");
}

TEST_F(StaticBlockMisuse, RefusesABodyThatChanges) {
  int calls = 0;
  const Tensor x = drawn(2, 2);
  StaticBlock block(host, {}, [&](Tape& tape, const StaticInputs& of) {
    return std::vector<Tensor>(++calls > 1 ? 2 : 1, tape.apply(op::square, {.in = of.in}));
  });
  Tape tape(host);
  tape.watch(x);
  const Tensor square = block(tape, {.in = {x}})[0];
  expect_error<MisuseError>([&] { tape.backward(square); }, "expected the same program");
}

}  // namespace
}  // namespace windrow::testing
