// Tapes: their gradients against central differences of whole programs in double precision; functions that compute
// gradients themselves; and backward passes of parts of programs.
#include "windrow/ops/tape.h"

#include "tests/ops/host_tensors.h"
#include "windrow/ops/static.h"

namespace windrow::testing {
namespace {

/// One application in a program; operands are numbers of earlier values.
struct TapedStep {
  const Operator* op;
  std::vector<std::size_t> in;
  Attributes attributes = {};
  std::vector<std::int32_t> indices = {};  // a column, if there are some
};

/// Values 0 to `inputs` - 1 are the inputs, then one value for each step; the last one is the loss.
struct TapedProgram {
  std::vector<Type> inputs;
  std::vector<TapedStep> steps;
};

double loss_of(const TapedProgram& program, std::vector<Values> values) {
  std::vector<Type> types = program.inputs;
  for (const TapedStep& step : program.steps) {
    Application application;
    application.signature.attributes = step.attributes;
    for (const std::size_t operand : step.in) {
      application.signature.in.push_back(types[operand]);
      application.in.push_back(values[operand]);
    }
    if (!step.indices.empty()) {
      application.signature.indices.push_back({Rows::count(static_cast<Index>(step.indices.size())), 1});
      application.indices.push_back(step.indices);
    }
    types.push_back(infer(*step.op, application.signature));
    values.push_back(evaluate(reference_kernels(), *step.op, application));
  }
  double loss = 0;
  for (const double element : values.back()) loss += element;
  return loss;
}

class TapeTest : public HostTensors {
 protected:
  /// Compares the gradients of all inputs.
  void expect_right_gradients(const TapedProgram& program) const {
    std::vector<Values> values;
    std::vector<Tensor> tensors;
    Tape tape(host);
    for (const Type& type : program.inputs) {
      Values& elements = values.emplace_back();
      for (Index i = 0; i < type.rows.number() * type.width; ++i) {
        elements.push_back(std::sin(static_cast<double>(3 * i + 7 * static_cast<Index>(values.size()))));
      }
      tensors.push_back(tensor(type.rows.number(), type.width, {elements.begin(), elements.end()}));
      tape.watch(tensors.back());
    }
    for (const TapedStep& step : program.steps) {
      Operands operands{.attributes = step.attributes};
      for (const std::size_t operand : step.in) operands.in.push_back(tensors[operand]);
      if (!step.indices.empty()) {
        operands.indices.emplace_back(host, static_cast<Index>(step.indices.size()), 1);
        operands.indices.back().set(step.indices);
      }
      tensors.push_back(tape.apply(*step.op, operands));
    }
    tape.backward(tensors.back());
    for (std::size_t k = 0; k < program.inputs.size(); ++k) {
      SCOPED_TRACE("input " + std::to_string(k));
      const Floats gradient = tape.gradient(tensors[k])->get();
      ASSERT_EQ(gradient.size(), values[k].size());
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        const auto at = [&](double shift) {
          std::vector<Values> shifted = values;
          shifted[k][i] += shift;
          return loss_of(program, std::move(shifted));
        };
        const double difference = (at(1e-5) - at(-1e-5)) / 2e-5;
        EXPECT_NEAR(gradient[i], difference, 1e-4 * (1 + std::fabs(difference))) << "element " << i;
      }
    }
  }

  const Type rows_ = {Rows::count(3), 4};
};

TEST_F(TapeTest, DifferentiatesALayer) {
  expect_right_gradients({.inputs = {rows_, {Rows::count(4), 5}, {Rows::count(1), 5}},
                          .steps = {{&op::matmul, {0, 1}},
                                    {&op::add_bias, {3, 2}},
                                    {&op::tanh, {4}},
                                    {&op::softmax_cross_entropy, {5}, {}, {4, 0, 2}}}});
}

TEST_F(TapeTest, DifferentiatesRandomPrograms) {
  const Operator* const unary[] = {&op::tanh, &op::sigmoid, &op::softmax, &op::square, &op::silu, &op::layer_norm};
  const Operator* const binary[] = {&op::add, &op::sub, &op::mul};
  for (std::uint32_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    std::uint32_t next = seed;
    const auto draw = [&](std::size_t below) {
      next = next * 1664525 + 1013904223;
      return static_cast<std::size_t>(next >> 8) % below;
    };
    TapedProgram program{.inputs = {rows_, rows_, {Rows::count(4), 4}}, .steps = {}};
    std::vector<std::size_t> values = {0, 1};
    for (std::size_t i = 0; i < 8; ++i) {
      const std::size_t x = values[draw(values.size())], y = values[draw(values.size())];
      switch (draw(4)) {
        case 0:
          program.steps.push_back({&op::matmul, {x, 2}});
          break;
        case 1:
          program.steps.push_back({binary[draw(std::size(binary))], {x, y}});
          break;
        default: {
          const Operator* const op = unary[draw(std::size(unary))];
          program.steps.push_back({op, {x}, op == &op::layer_norm ? op::with_epsilon(1e-3) : Attributes()});
        }
      }
      values.push_back(3 + i);
    }
    std::size_t sum = 0;  // of all values, so that the loss depends on each input
    for (std::size_t k = 1; k < values.size(); ++k) {
      program.steps.push_back({&op::add, {sum, values[k]}});
      sum = 2 + program.steps.size();
    }
    program.steps.push_back({&op::matmul, {sum, 2}});
    expect_right_gradients(program);
  }
}

TEST_F(TapeTest, AppliesAllOperatorsAsItIsTold) {
  const Tensor x = filled(3, 4, 1), y = filled(3, 4, 2);
  std::vector<std::string> applied;
  std::vector<Tensor> made;
  Tape tape(host, [&](const Operator& op, const Operands& operands, const Tensor* out, auto pushed_at) {
    applied.emplace_back(op.name.text());
    if (operands.write == Write::add) applied.back() += " added";
    if (out == nullptr) made.emplace_back(host, x.rows(), x.width());  // all are of one shape
    const Tensor result = out == nullptr ? made.back() : *out;
    apply(host, op, operands, result, pushed_at);
    return result;
  });
  tape.watch(x);
  const Tensor product = tape.apply(op::mul, {.in = {x, x}});
  const Tensor loss = tape.apply(op::mul, {.in = {product, y}});
  EXPECT_TRUE(loss.same_view(made[1]));
  tape.backward(loss);
  EXPECT_EQ(applied, (std::vector<std::string>{"mul", "mul", "mul", "mul", "mul added"}));
  EXPECT_TRUE(tape.gradient(x)->same_view(made[3]));
  EXPECT_EQ(tape.gradient(x)->get(), Floats(12, 4));
}

TEST_F(TapeTest, GivesNoGradientWhereTheLossDoesNotDepend) {
  const Tensor x = filled(3, 4, 1), unused = filled(3, 4, 1), data = filled(3, 4, 2);
  Tape tape(host);
  tape.watch(x);
  tape.watch(unused);
  const Tensor y = tape.apply(op::mul, {.in = {x, data}});
  tape.apply(op::neg, {.in = {unused}});
  const Tensor still = tape.apply(op::stop_gradient, {.in = {x}});
  tape.backward(tape.apply(op::add, {.in = {y, still}}));
  EXPECT_FALSE(tape.gradient(unused));
  EXPECT_EQ(tape.gradient(x)->get(), Floats(12, 2));
  expect_error<MisuseError>([&] { tape.gradient(data); }, "not watched");
}

TEST_F(TapeTest, RefusesMisuse) {
  const Tensor x = filled(3, 4, 1);
  Tape tape(host);
  expect_error<MisuseError>([&] { tape.watch(x.row_range(0, 1)); }, "a part");
  tape.watch(x);
  expect_error<MisuseError>([&] { tape.apply(op::neg, {.in = {x.row_range(0, 1)}}); }, "neg");
  expect_error<MisuseError>([&] { tape.apply(op::neg, {.in = {x}, .write = Write::add}); }, "Write::add");
  expect_error<MisuseError>([&] { tape.gradient(x); }, "before");
  expect_error<MisuseError>([&] { tape.backward(filled(3, 4, 1)); }, "depends");
  tape.backward(tape.apply(op::neg, {.in = {x}}));
  expect_error<MisuseError>([&] { tape.backward(x); }, "after backward()");
  expect_error<MisuseError>([&] { tape.apply(op::neg, {.in = {x}}); }, "new tape");
  Tape other(host);
  other.watch(x);
  const Tensor slope = other.apply(op::neg, {.in = {other.apply(op::tanh_gradient, {.in = {x, x}})}});
  const std::uint64_t pushed = engine.stats().pushed;
  expect_error<MisuseError>([&] { other.backward(slope); }, "tanh_gradient");
  EXPECT_EQ(engine.stats().pushed, pushed);
  other.backward(other.apply(op::neg, {.in = {x}}));  // which is on no path through it
  EXPECT_EQ(other.gradient(x)->get(), Floats(12, -1));
  expect_error<MisuseError>([&] { other.gradient(x.row_range(0, 1)); }, "a view");
}

TEST_F(TapeTest, RefusesToWatchATensorThatWasUsed) {
  const Tensor x = filled(3, 4, 1), w = filled(3, 4, 2), v = filled(3, 4, 3);
  Tape tape(host);
  tape.watch(x);
  tape.apply(op::mul, {.in = {x, w}});
  expect_error<MisuseError>([&] { tape.watch(w); }, "first use");
  const Tensor y = tape.apply(op::mul, {.in = {x, v}});
  tape.watch(x);  // as before
  tape.watch(y);  // known since it was made
  expect_error<MisuseError>([&] { tape.watch(v); }, "first use");
  tape.backward(tape.apply(op::mul, {.in = {y, y}}));
  EXPECT_EQ(tape.gradient(y)->get(), Floats(12, 6));
  EXPECT_EQ(tape.gradient(x)->get(), Floats(12, 18));
}

TEST_F(TapeTest, RefusesABackwardPassOverWhatWasModifiedInPlace) {
  const auto change = [&](const Tensor& tensor) {
    apply(host, op::scale, {.in = {tensor}, .attributes = op::scaled_by(2)}, tensor);
  };
  const auto said = [&](auto program) {
    Tape tape(host);
    return error_of<MisuseError>([&] { program(tape); });
  };
  const Tensor x = tensor(2, 3, {1, 2, 3, 4, 5, 6}), w = tensor(2, 3, {6, 5, 4, 3, 2, 1});
  const std::string end = " was modified in place after it was noted; expected the same value until backward()";
  EXPECT_EQ(said([&](Tape& tape) {
              tape.watch(x);
              const Tensor y = tape.apply(op::tanh, {.in = {x}});
              change(y);
              tape.backward(y);
            }),
            "Tape: backward(): the result of tanh" + end);
  EXPECT_EQ(said([&](Tape& tape) {
              tape.watch(x);
              const Tensor y = tape.apply(op::mul, {.in = {x, w}});
              w.set(Floats(6, 0.0f));
              tape.backward(y);
            }),
            "Tape: backward(): operand 1 of mul" + end);
  const IntTensor labels = ints(2, 1, {0, 1});
  EXPECT_EQ(said([&](Tape& tape) {
              tape.watch(x);
              const Tensor y = tape.apply(op::pick, {.in = {x}, .indices = {labels}});
              labels.set({1, 1});
              tape.backward(y);
            }),
            "Tape: backward(): index operand 0 of pick" + end);
  EXPECT_EQ(said([&](Tape& tape) {
              tape.watch(x);
              const Tensor y = filled(2, 3, 0);
              tape.note({x}, {y}, [](const auto& given, const auto&, auto) { return Tape::Gradients{given[0]}; });
              engine.push([] {}, {mutate(y.var())}, {.name = "an op of the program"});
              tape.backward(y);
            }),
            "Tape: backward(): the result of what was noted" + end);
}

TEST_F(TapeTest, LetsBeWrittenWhatNoGradientIsComputedFrom) {
  const Tensor x = tensor(1, 2, {1, 2}), w = tensor(1, 2, {3, 4});
  Tape tape(host);
  tape.watch(x);
  const Tensor y = tape.apply(op::add, {.in = {tape.apply(op::mul, {.in = {x, w}}), w}});
  const Tensor unused = tape.apply(op::tanh, {.in = {x}});
  x.set({7, 7});  // the gradient of x needs w alone
  unused.set({0, 0});
  tape.backward(y);
  EXPECT_EQ(tape.gradient(x)->get(), (Floats{3, 4}));
}

TEST_F(TapeTest, RefusesInTheBodyOfAStaticWhatWasModifiedInPlace) {
  const Tensor x = tensor(1, 2, {1, 2});
  for (const bool changes : {false, true}) {
    Static step(host, [&](const StaticInputs& inputs) -> std::vector<Tensor> {
      Tape tape(host);
      tape.watch(inputs.in[0]);
      const Tensor y = tape.apply(op::tanh, {.in = {inputs.in[0]}});
      apply(host, op::scale, {.in = {y}, .attributes = op::scaled_by(2)}, changes ? y : Tensor(host, 1, 2, "other"));
      tape.backward(y);
      return {*tape.gradient(inputs.in[0])};
    });
    if (changes) {
      expect_error<MisuseError>([&] { step({.in = {x}}); }, "the result of tanh was modified in place");
    } else {
      EXPECT_NEAR(step({.in = {x}})[0].get()[0], 0.41997, 1e-4);
    }
  }
}

using TapeNotes = HostTensors;

TEST_F(TapeNotes, CallFunctionsThatComputeGradients) {
  const Tensor x = drawn(2, 3), y = drawn(2, 3);
  for (const bool both : {false, true}) {
    Tape tape(host);
    tape.watch(x);
    if (both) tape.watch(y);
    int calls = 0;
    const Tensor result = apply(host, op::mul, {.in = {x, y}});
    tape.note({x, y}, {result}, [&](const Tape::Gradients& given, const std::vector<bool>& wanted, auto) {
      ++calls;
      EXPECT_EQ(wanted, (std::vector<bool>{true, both}));
      return Tape::Gradients{apply(host, op::mul, {.in = {*given[0], y}}),
                             apply(host, op::mul, {.in = {*given[0], x}})};
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
  const Tensor x = drawn(2, 3), kept(host, 2, 3, "kept");
  Tape tape(host);
  tape.watch(x);
  Tensor sum = tape.apply(op::neg, {.in = {x}});
  for (float factor = 1; factor < 4; ++factor) {
    const Attributes by = op::scaled_by(factor);
    const Tensor scaled = apply(host, op::scale, {.in = {x}, .attributes = by});
    tape.note({x}, {scaled}, [=, this](const Tape::Gradients& given, const std::vector<bool>&, auto) {
      apply(host, op::scale, {.in = {*given[0]}, .attributes = by}, kept);
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
  Tape tape(host);
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
  Tape wrong(host);
  wrong.watch(x);
  const Tensor z = drawn(1, 1);
  wrong.note({x}, {z}, [&](const auto& given, const auto&, auto) { return Tape::Gradients{*given[0]}; });
  expect_error<MisuseError>([&] { wrong.backward(z); }, "is 1 x 1; expected 2 x 3");
}

TEST_F(TapeNotes, GoBackFromGivenGradients) {
  const Tensor x = drawn(2, 3), given = drawn(2, 3), constant = drawn(2, 3);
  Tape tape(host);
  tape.watch(x);
  const Tensor square = tape.apply(op::square, {.in = {x}}), other = tape.apply(op::neg, {.in = {x}});
  // One result twice, a watched tensor, a result without a gradient, and one that depends on nothing.
  const std::vector<Tensor> results = {square, square, x, other, constant};
  tape.backward_from(results, {given, given, given, std::nullopt, given});
  const Floats a = x.get(), g = given.get(), gradient = tape.gradient(x)->get();
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(gradient[i], g[i] + 4 * a[i] * g[i], 1e-5);
  EXPECT_EQ(given.get(), g);

  Tape nothing(host);
  nothing.watch(x);
  nothing.backward_from({constant}, {given});
  EXPECT_FALSE(nothing.gradient(x));
  Tape refused(host);
  refused.watch(x);
  expect_error<MisuseError>([&] { refused.backward_from({x}, {}); }, "expected one for each");
  expect_error<MisuseError>([&] { refused.backward_from({x}, {drawn(1, 3)}); }, "is 1 x 3; expected 2 x 3");
  expect_error<MisuseError>([&] { refused.backward_from({x.row_range(0, 1)}, {drawn(1, 3)}); }, "of a view");
}

}  // namespace
}  // namespace windrow::testing
