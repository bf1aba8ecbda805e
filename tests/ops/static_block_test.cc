// Blocks of dynamic programs, compared with the same programs on a plain tape, and what their bodies may not do.
#include "windrow/ops/static_block.h"

#include <cmath>
#include <optional>
#include <random>

#include "tests/ops/drawn_tensors.h"

namespace windrow::testing {
namespace {

using Floats = std::vector<float>;
using Order = StaticOptions::Order;

class StaticBlockTest : public DrawnTensors {
 protected:
  using Loss = std::function<Tensor(Tape&, const std::vector<Tensor>&)>;
  void expect_as_on_a_plain_tape(StaticBlock& block, const StaticBlock::Body& body, const StaticInputs& call,
                                 const std::vector<Tensor>& watched, const Loss& loss = first_result);
  static Tensor first_result(Tape&, const std::vector<Tensor>& results) { return results[0]; }
};

void expect_near(const Floats& a, const Floats& b, const char* what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 2e-5 * (1 + std::abs(b[i]))) << what << ' ' << i;
}

/// A cell with a memory: h' = tanh(x W + h U + b) * sigmoid(c), c' = c + h'.
struct Cell {
  Tensor w, u, b;

  std::vector<Tensor> operator()(Tape& tape, const Tensor& x, const Tensor& h, const Tensor& c) const {
    const auto sum =
        tape.apply(op::add, {.in = {tape.apply(op::matmul, {.in = {x, w}}), tape.apply(op::matmul, {.in = {h, u}})}});
    const Tensor inner = tape.apply(op::tanh, {.in = {tape.apply(op::add_bias, {.in = {sum, b}})}});
    const Tensor next = tape.apply(op::mul, {.in = {inner, tape.apply(op::sigmoid, {.in = {c}})}});
    return {next, tape.apply(op::add, {.in = {c, next}})};
  }
};

/// What a sentence gives: its loss, and the gradients of the weights and of its words.
struct Outcome {
  Floats loss;
  std::vector<Floats> gradients;
};

class Sentences : public StaticBlockTest {
 protected:
  /// Calls `cell` for each word, and takes the loss of the last h, and of c for every second sentence.
  Outcome run(const std::vector<Tensor>& words, bool of_memory,
              const std::function<std::vector<Tensor>(Tape&, const Tensor&, const std::vector<Tensor>&)>& cell) {
    Tape tape(host_);
    for (const Tensor& weights : {cell_.w, cell_.u, cell_.b}) tape.watch(weights);
    for (const Tensor& word : words) tape.watch(word);
    std::vector<Tensor> state = {start_, start_};
    for (const Tensor& word : words) state = cell(tape, word, state);
    Tensor loss = tape.apply(op::square, {.in = {state[0]}});
    if (of_memory) loss = tape.apply(op::add, {.in = {loss, state[1]}});
    tape.backward(loss);
    Outcome outcome{loss.get(), {}};
    for (const Tensor& weights : {cell_.w, cell_.u, cell_.b})
      outcome.gradients.push_back(tape.gradient(weights)->get());
    for (const Tensor& word : words) outcome.gradients.push_back(tape.gradient(word)->get());
    return outcome;
  }

  static constexpr Index rows_ = 3, width_ = 5;
  const Cell cell_{drawn(width_, width_, "w"), drawn(width_, width_, "u"), drawn(1, width_, "b")};
  const Tensor start_ = drawn(rows_, width_, "start");
};

TEST_F(Sentences, OfAnyLengthHaveTheGradientsOfAPlainTape) {
  for (const Order order : {Order::parallel, Order::serial, Order::breadth_first}) {
    StaticBlock block(host_, {cell_.w, cell_.u, cell_.b},
                      [&](Tape& tape, const StaticInputs& of) { return cell_(tape, of.in[0], of.in[1], of.in[2]); },
                      {.order = order});
    std::uint64_t calls = 0;
    for (const std::size_t length : {1, 4, 2, 7, 3, 1}) {
      std::vector<Tensor> words;
      for (std::size_t i = 0; i < length; ++i) words.push_back(drawn(rows_, width_, "word"));
      calls += length;
      const bool of_memory = length % 2 == 0;
      const Outcome plain =
          run(words, of_memory, [&](Tape& tape, const Tensor& word, const std::vector<Tensor>& state) {
            return cell_(tape, word, state[0], state[1]);
          });
      const Outcome blocks =
          run(words, of_memory, [&](Tape& tape, const Tensor& word, const std::vector<Tensor>& state) {
            return block(tape, {.in = {word, state[0], state[1]}});
          });
      EXPECT_EQ(blocks.loss, plain.loss);
      for (std::size_t k = 0; k < plain.gradients.size(); ++k) {
        expect_near(blocks.gradients[k], plain.gradients[k], "gradient");
      }
    }
    EXPECT_EQ(block.forward().recorded, 1u);
    EXPECT_EQ(block.forward().replayed, calls - 1);
    EXPECT_EQ(block.backward().recorded + block.backward().replayed, calls);
    EXPECT_LE(block.backward().recorded, 4u);  // of h or c or both; the first word has no earlier state to pass it to
  }
}

TEST_F(Sentences, AreAPartOfAWholeRecordedStep) {
  const StaticBlock::Body body = [&](Tape& tape, const StaticInputs& of) {
    return cell_(tape, of.in[0], of.in[1], of.in[2]);
  };
  StaticBlock block(host_, {cell_.w, cell_.u, cell_.b}, body);
  const auto step = [&](const StaticInputs& call) -> std::vector<Tensor> {
    Tape tape(host_);
    for (const Tensor& weights : {cell_.w, cell_.u, cell_.b}) tape.watch(weights);
    std::vector<Tensor> state = {start_, start_};
    for (const Tensor& word : call.in) state = block(tape, {.in = {word, state[0], state[1]}});
    tape.backward(tape.apply(op::square, {.in = {state[0]}}));
    return {*tape.gradient(cell_.w), *tape.gradient(cell_.u), *tape.gradient(cell_.b)};
  };
  Static recorded(host_, step);
  for (int i = 0; i < 3; ++i) {
    const StaticInputs call{.in = {drawn(rows_, width_), drawn(rows_, width_), drawn(rows_, width_)}};
    const std::vector<Tensor> plain = step(call), replayed = recorded(call);
    for (std::size_t k = 0; k < plain.size(); ++k) expect_near(replayed[k].get(), plain[k].get(), "gradient");
  }
}

/// Compares the loss of the results of a call, and the gradients of these tensors, with those of the body on a plain
/// tape.
void StaticBlockTest::expect_as_on_a_plain_tape(StaticBlock& block, const StaticBlock::Body& body,
                                                const StaticInputs& call, const std::vector<Tensor>& watched,
                                                const Loss& loss) {
  const auto run = [&](const StaticBlock::Body& by, const StaticInputs& of) {
    Tape tape(host_);
    for (const Tensor& tensor : watched) tape.watch(tensor);
    std::vector<Tensor> all = {loss(tape, by(tape, of))};
    tape.backward(all[0]);
    for (const Tensor& tensor : watched) all.push_back(*tape.gradient(tensor));
    return all;
  };
  const auto by_block = [&](Tape& tape, const StaticInputs& of) { return block(tape, of); };
  const std::vector<Tensor> expected = run(body, call), found = run(by_block, call);
  EXPECT_EQ(found[0].get(), expected[0].get());
  for (std::size_t k = 0; k < expected.size(); ++k) expect_near(found[k].get(), expected[k].get(), "gradient");
}

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
  StaticBlock inner(host_, {a}, one);
  StaticBlock outer(host_, {a, b}, two([&](Tape& tape, const StaticInputs& of) { return inner(tape, of); }));
  for (int i = 0; i < 3; ++i) expect_as_on_a_plain_tape(outer, two(one), {.in = {x}}, {a, b, x});
}

TEST_F(StaticBlockTest, PassesOneTensorTwice) {
  const Tensor x = drawn(2, 3);
  const StaticBlock::Body body = [](Tape& tape, const StaticInputs& of) -> std::vector<Tensor> {
    return {tape.apply(op::mul, {.in = of.in})};
  };
  StaticBlock product(host_, {}, body);
  for (int i = 0; i < 2; ++i) expect_as_on_a_plain_tape(product, body, {.in = {x, x}}, {x});
  // In another body the inputs are no copies, and so one tensor.
  Static recorded(host_, [&](const StaticInputs& of) -> std::vector<Tensor> {
    Tape tape(host_);
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
  StaticBlock look_up(host_, {table}, body);
  for (int i = 0; i < 4; ++i) {
    const IntTensor numbers(host_, 3, 1, "numbers"), keys(host_, 3, 3, "keys");
    numbers.set({i, 5, i});
    draws_.dropout_keys(keys);
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
  StaticBlock block(host_, {w}, body, {.most_recordings = 2});
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
  const Tensor w = drawn(3, 3), u = drawn(3, 3), x(host_, 0, 3, "x");
  std::optional<StaticBlock> block;
  block.emplace(host_, std::vector<Tensor>{u}, [&](Tape& tape, const StaticInputs& of) -> std::vector<Tensor> {
    return {tape.apply(op::matmul, {.in = {of.in[0], u}})};
  });
  Tape tape(host_);
  for (const Tensor& tensor : {w, u}) tape.watch(tensor);
  const Tensor result = (*block)(tape, {.in = {tape.apply(op::matmul, {.in = {x, w}})}})[0];
  block.reset();
  tape.backward(tape.apply(op::column_sum, {.in = {result}}));
  for (const Tensor& tensor : {w, u}) EXPECT_EQ(tape.gradient(tensor).value().get(), Floats(9, 0));
}

TEST_F(StaticBlockTest, GivesGradientsWhereThereAreSome) {
  const Tensor w = drawn(3, 3), unused = drawn(1, 1), x = drawn(2, 3), y = drawn(2, 3);
  StaticBlock block(host_, {w, unused}, [&](Tape& tape, const StaticInputs& of) -> std::vector<Tensor> {
    return {tape.apply(op::matmul, {.in = {of.in[0], w}}), tape.apply(op::square, {.in = {of.in[1]}})};
  });
  Tape tape(host_);
  for (const Tensor& tensor : {w, unused, y}) tape.watch(tensor);
  const std::vector<Tensor> results = block(tape, {.in = {x, y}});
  tape.backward(results[1]);
  EXPECT_FALSE(tape.gradient(w));
  EXPECT_FALSE(tape.gradient(unused));
  const Floats values = y.get(), gradient = tape.gradient(y)->get();
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_FLOAT_EQ(gradient[i], 2 * values[i]);
  // Nothing is noted where nothing is watched.
  Tape other(host_);
  expect_error<MisuseError>([&] { other.backward(block(other, {.in = {x, y}})[0]); }, "depends on no watched");
}

TEST_F(StaticBlockTest, RecoversWhereTheProgramGoesOnWithoutItsGradients) {
  const Tensor table = drawn(4, 3), x = drawn(2, 3);
  const IntTensor right(host_, 2, 1), wrong(host_, 2, 1);
  right.set({1, 2});
  wrong.set({1, 9});
  StaticBlock block(host_, {table}, [&](Tape& tape, const StaticInputs& of) -> std::vector<Tensor> {
    const Tensor rows = tape.apply(op::embedding, {.in = {table}, .indices = of.indices});
    return {tape.apply(op::mul, {.in = {tape.apply(op::tanh, {.in = {rows}}), of.in[0]}})};
  });
  const auto step = [&](const IntTensor& numbers, bool differentiates) {
    Tape tape(host_);
    tape.watch(table);
    const Tensor result = block(tape, {.in = {x}, .indices = {numbers}})[0];
    if (differentiates) tape.backward(result);
    return result.get();
  };
  const Floats expected = step(right, true);
  EXPECT_THROW(step(wrong, true), Error);
  EXPECT_THROW(engine_.wait_all(), Error);
  EXPECT_EQ(step(right, false), expected);
  EXPECT_EQ(step(right, false), expected);
  engine_.wait_all();
}

TEST_F(StaticBlockTest, TakesPartsOfTensorsInTheBodyOfAStatic) {
  const Tensor w = drawn(3, 3), x = drawn(2, 3);
  // A program that places its results in parts of larger tensors.
  const Tape::Apply place = [&](const Operator& op, const Operands& operands, const Tensor* out, auto from) {
    if (out != nullptr) return apply(host_, op, operands, *out, from), *out;
    const Tensor like = apply(host_, op, operands, from), whole(host_, like.rows() + 1, like.width(), "whole");
    const Tensor part = whole.row_range(0, like.rows());
    apply(host_, op, operands, part, from);
    return part;
  };
  StaticBlock block(host_, {w}, [&](Tape& tape, const StaticInputs& of) -> std::vector<Tensor> {
    return {tape.apply(op::tanh, {.in = {tape.apply(op::matmul, {.in = {of.in[0], w}})}})};
  });
  const auto step = [&](const StaticInputs& of) -> std::vector<Tensor> {
    Tape tape(host_, place);
    tape.watch(w);
    const Tensor y = tape.apply(op::matmul, {.in = {of.in[0], w}});
    tape.backward(block(tape, {.in = {y}})[0]);
    return {*tape.gradient(w)};
  };
  const Floats expected = step({.in = {x}})[0].get();
  Static recorded(host_, step);
  expect_near(recorded({.in = {x}})[0].get(), expected, "gradient");
}

TEST_F(StaticBlockTest, MayUseAnInputThatHasNoGradient) {
  const Tensor w = drawn(3, 3), x = drawn(2, 3);
  StaticBlock block(host_, {w}, [&](Tape& tape, const StaticInputs& of) -> std::vector<Tensor> {
    const Tensor constant = tape.apply(op::stop_gradient, {.in = {of.in[1]}});
    return {tape.apply(op::mul, {.in = {tape.apply(op::matmul, {.in = {of.in[0], w}}), constant}})};
  });
  const auto mask_of = [&](Tape& tape) { return tape.apply(op::relu_gradient, {.in = {x, x}}); };
  Tape tape(host_);
  for (const Tensor& tensor : {w, x}) tape.watch(tensor);
  tape.backward(block(tape, {.in = {x, mask_of(tape)}})[0]);
  EXPECT_TRUE(tape.gradient(w));
  // Where it needs one, it is missed.
  StaticBlock product(host_, {}, [&](Tape& inner, const StaticInputs& of) -> std::vector<Tensor> {
    return {inner.apply(op::mul, {.in = of.in})};
  });
  Tape other(host_);
  other.watch(x);
  const Tensor result = product(other, {.in = {x, mask_of(other)}})[0];
  expect_error<MisuseError>([&] { other.backward(result); }, "relu_gradient has no gradient");
  EXPECT_FALSE(other.gradient(x));
}

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
