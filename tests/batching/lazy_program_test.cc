// Random programs of lazy expressions, evaluated as they are written by the reference kernels, one operation at a time;
// values asked for in their midst; and what lazy expressions refuse.
#include <gtest/gtest.h>

#include <random>

#include "tests/batching/cells.h"
#include "tests/engine/support.h"
#include "tests/ops/cases.h"
#include "tests/seed.h"
#include "windrow/batching/lazy.h"
#include "windrow/ops/kernel.h"

namespace windrow::testing {
namespace {

/// One operation, of operands that came before it.
struct Instruction {
  const Operator* op = nullptr;  ///< null for an input
  std::vector<std::size_t> in = {};
  std::vector<std::size_t> parameters = {};  ///< behind `in`; before them for embedding
  std::vector<std::int32_t> index = {};
  Attributes attributes = {};
  std::vector<float> values = {};
  Index width = 0;
  bool ask = false;  ///< for its value, as soon as it is written
};

/// Some instances of a few templates, so that much of it repeats, with accidents.
class RandomProgram {
 public:
  RandomProgram(unsigned seed, Parameters& parameters) : random_(seed), parameters_(parameters) {
    for (Index rows : {2, 3, 4}) {
      for (Index width : {2, 3, 4}) {
        const std::string name = "w" + std::to_string(rows) + std::to_string(width);
        parameters.add(name, rows, width, Initial::uniform(-1, 1));
      }
      parameters.add("b" + std::to_string(rows), 1, rows, Initial::uniform(-1, 1));
    }
    for (int instance = 0; instance < 6; ++instance) {
      const std::size_t first = instructions.size();
      add_input(below(2) + 2);
      const unsigned same = random_() % 3;  // instances of one template are drawn alike
      std::mt19937 alike(same);
      for (std::size_t n = 5 + same * 10; n > 0; --n) {
        std::mt19937& source = below(12) == 0 ? random_ : alike;
        draw(source, below(40) == 0 ? 0 : first);
      }
      losses.push_back(reduced(instructions.size() - 1));
      if (below(2) == 0) losses.push_back(reduced(first));
    }
  }

  std::vector<Instruction> instructions;
  std::vector<std::size_t> losses;

  /// All values, and what the losses add up to.
  double evaluate_all(const std::vector<std::vector<double>>& parameters,
                      std::vector<std::vector<double>>& values) const {
    values.clear();
    for (const Instruction& one : instructions) {
      if (one.op == nullptr) {
        values.push_back({one.values.begin(), one.values.end()});
        continue;
      }
      Application application{.signature = {.attributes = one.attributes}};
      const auto add_parameters = [&] {
        for (std::size_t p : one.parameters) {
          application.signature.in.push_back(parameters_[p].type());
          application.in.push_back(parameters[p]);
        }
      };
      if (one.op == &op::embedding) add_parameters();
      for (std::size_t in : one.in) {
        application.signature.in.push_back({Rows::count(1), instructions[in].width});
        application.in.push_back(values[in]);
      }
      if (one.op != &op::embedding) add_parameters();
      if (!one.index.empty()) {
        application.signature.indices.push_back({Rows::count(1), static_cast<Index>(one.index.size())});
        application.indices.push_back(one.index);
      }
      values.push_back(evaluate(reference_kernels(), *one.op, application));
    }
    double loss = 0;
    for (std::size_t l : losses) loss += values[l][0];
    return loss;
  }

  /// Writes the program; `asked` gets what was asked for in its midst.
  std::vector<LazyExpr> write(LazyGraph& graph, std::map<std::size_t, std::vector<float>>& asked) const {
    std::vector<LazyExpr> values;
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      const Instruction& one = instructions[i];
      if (one.op == nullptr) {
        values.push_back(graph.input(one.values));
      } else {
        std::vector<Parameter> parameters;
        for (std::size_t p : one.parameters) parameters.push_back(parameters_[p]);
        std::vector<LazyOperand> in;
        for (std::size_t operand : one.in) in.push_back(values[operand]);
        for (const Parameter& parameter : parameters) in.push_back(parameter);
        std::vector<LazyIndex> indices;
        if (!one.index.empty()) indices.push_back(graph.index(one.index));
        values.push_back(apply(*one.op, in, indices, one.attributes));
      }
      if (one.ask) asked[i] = values.back().value();
    }
    return values;
  }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }
  std::size_t add(Instruction one) {
    one.ask = below(60) == 0;
    instructions.push_back(std::move(one));
    return instructions.size() - 1;
  }
  std::size_t add_input(std::size_t width) {
    Instruction one{.width = static_cast<Index>(width)};
    for (std::size_t i = 0; i < width; ++i) one.values.push_back(static_cast<float>(below(2001)) / 1000 - 1);
    return add(std::move(one));
  }
  std::size_t parameter(const std::string& name) const {
    std::size_t i = 0;
    while (parameters_.name(parameters_[i]) != name) ++i;
    return i;
  }
  std::size_t squashed(std::size_t x) { return add({.op = &op::tanh, .in = {x}, .width = instructions[x].width}); }
  std::size_t reduced(std::size_t x) {
    const std::size_t square = add({.op = &op::square, .in = {x}, .width = instructions[x].width});
    return add({.op = &op::row_sum, .in = {square}, .width = 1});
  }
  /// Of width 2 to 4.
  void draw(std::mt19937& source, std::size_t first) {
    const auto any = [&] { return first + source() % (instructions.size() - first); };
    const std::size_t x = any(), y = any();
    const Index width = instructions[x].width, to = 2 + static_cast<Index>(source() % 3);
    switch (source() % 9) {
      case 0:
      case 1:
        if (width < 2) return;
        squashed(add({.op = &op::matmul,
                      .in = {x},
                      .parameters = {parameter("w" + std::to_string(width) + std::to_string(to))},
                      .width = to}));
        return;
      case 2:
        if (width < 2) return;
        add({.op = &op::add_bias, .in = {x}, .parameters = {parameter("b" + std::to_string(width))}, .width = width});
        return;
      case 3:
        if (instructions[y].width != width) return;
        add({.op = source() % 2 == 0 ? &op::mul : &op::sub, .in = {x, y}, .width = width});
        return;
      case 4:
        add({.op = &op::embedding,
             .parameters = {parameter("w4" + std::to_string(to))},
             .index = {static_cast<std::int32_t>(source() % 4)},
             .width = to});
        return;
      case 5:
        if (width + instructions[y].width > 4) return;
        add({.op = &op::concat, .in = {x, y}, .width = width + instructions[y].width});
        return;
      case 6:
        if (width < 3) return;
        add({.op = &op::slice, .in = {x}, .attributes = op::columns(1, 3), .width = 2});
        return;
      case 7:
        add({.op = &op::scale, .in = {x}, .attributes = op::scaled_by(0.25 * (1 + source() % 7)), .width = width});
        return;
      default:
        add({.op = &op::dropout,
             .in = {x},
             .index = {1, static_cast<std::int32_t>(source() % 100), 3},
             .attributes = op::dropout_by(0.3, source() % 3, 1),
             .width = width});
    }
  }

  std::mt19937 random_;
  Parameters& parameters_;
};

void check_program(unsigned seed, LazyOptions options) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Engine engine({.workers = 2});
  const Device host = host_device(engine);
  Parameters parameters(host, seed);
  const RandomProgram program(seed, parameters);
  std::vector<std::vector<double>> theta, expected, scratch;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const std::vector<float> value = parameters.value(parameters[p]).get();
    theta.emplace_back(value.begin(), value.end());
  }
  program.evaluate_all(theta, expected);
  LazyGraph graph(host, parameters, options);
  std::map<std::size_t, std::vector<float>> asked;
  std::vector<LazyExpr> values = program.write(graph, asked);
  const auto check = [&](std::size_t i, const std::vector<float>& value) {
    SCOPED_TRACE("value " + std::to_string(i));
    expect_close({value.begin(), value.end()}, expected[i], 1e-4);
  };
  for (const auto& [i, value] : asked) check(i, value);
  if (options.use == LazyOptions::For::training) {
    std::vector<LazyExpr> losses;
    for (std::size_t l : program.losses) losses.push_back(values[l]);
    graph.backward(losses);
  }
  for (std::size_t i = 0; i < values.size(); ++i) check(i, values[i].value());
  if (options.use == LazyOptions::For::inference) return;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    SCOPED_TRACE(parameters.name(parameters[p]));
    std::vector<double> gradient = dense(parameters, parameters[p]);
    gradient.resize(theta[p].size(), 0);
    for (std::size_t i = 0; i < theta[p].size(); ++i) {
      const double before = theta[p][i];
      theta[p][i] = before + 1e-6;
      const double above = program.evaluate_all(theta, scratch);
      theta[p][i] = before - 1e-6;
      const double below = program.evaluate_all(theta, scratch);
      theta[p][i] = before;
      const double difference = (above - below) / 2e-6;
      ASSERT_NEAR(gradient[i], difference, 1e-3 * (1 + std::abs(difference))) << i;
    }
  }
}

/// Some keep all of a flush, some its values, and some the one or the other.
TEST(LazyPrograms, GiveWhatTheReferenceGives) {
  constexpr std::int64_t flops[] = {0, 500, INT64_MAX};
  for (unsigned seed = first_seed(); seed < first_seed() + 30; ++seed) {
    check_program(seed,
                  {.runner = {.schedule = static_cast<SchedulePolicy>(seed % 5)}, .recompute_below = flops[seed % 3]});
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(LazyPrograms, GiveWhatTheReferenceGivesWhateverRunnersAreTold) {
  const Optimisations lacking[] = {{.specialisation = false}, {.eager = false},    {.lazy = false},
                                   {.slots = false},          {.sharing = false},  {.fusion = false},
                                   {.streaming = false},      {.splitting = false}};
  unsigned seed = first_seed();
  for (const Optimisations& one : lacking) {
    check_program(++seed, {.runner = {.optimisations = one}, .recompute_below = 500 * (seed % 2)});
  }
  check_program(++seed, {.runner = {.ahead = 1, .batch_rows = 1}});
  check_program(++seed, {.runner = {.groups = 3, .group_flops = 1}});
  check_program(++seed, {.runner = {.op_flops = 1, .split_rows = 1}, .recompute_below = 0});
}

TEST(LazyPrograms, GiveWhatTheReferenceGivesWithoutTraining) {
  for (unsigned seed = first_seed(); seed < first_seed() + 10; ++seed) {
    check_program(seed, {.use = LazyOptions::For::inference});
    if (::testing::Test::HasFailure()) return;
  }
}

class Lazy : public ::testing::Test, protected OnHost {
 protected:
  template <class Body>
  std::string said_of(Body body) {
    return error_of<MisuseError>(body);
  }
  Parameter w = parameters.add("w", 2, 3, Initial::uniform(-1, 1));
  LazyGraph graph{host, parameters};
};

TEST_F(Lazy, TellsWhatDoesNotFit) {
  const LazyExpr x = graph.input({1, 2}), y = graph.input({1, 2, 3});
  EXPECT_EQ(said_of([&] { x + y; }), "add: operands vertices x 2, vertices x 3; expected operands of one shape");
  EXPECT_EQ(said_of([&] { matmul(y, w); }).substr(0, 36), "matmul: operands vertices x 3, 2 x 3");
  EXPECT_EQ(said_of([&] {
              apply(op::matmul_tn, {x, x});
            }),
            "matmul_tn: mixes the rows of a batch; expected an operator that is elementwise or rowwise");
  EXPECT_EQ(said_of([&] {
              apply(op::segment_sum, {x}, {graph.index(std::array{0, 1})});
            }),
            "segment_sum: operand 0 is vertices x 2; expected a parameter");
  EXPECT_EQ(said_of([&] { graph.index(std::array{1, 2, 3, 4, 5}); }), "an index of 5 numbers; expected at most 4");
  EXPECT_EQ(said_of([&] { graph.backward({}); }), "backward() of no loss; expected one or more");
  EXPECT_EQ(said_of([&] { graph.backward(std::array{x}); }), "backward(): a loss of width 2; expected 1");
  EXPECT_EQ(said_of([&] { LazyGraph(host, parameters, {.runner = {.ahead = 0}}); }),
            "RunnerOptions: ahead is 0; expected 1 or more");
  EXPECT_EQ(said_of([&] { sum({}); }), "sum of no expressions; expected one or more");
  EXPECT_EQ(said_of([&] { apply(op::concat, std::vector<LazyOperand>(32, x), {}); }),
            "concat of 32 expressions; expected 31 at most");
  EXPECT_EQ(said_of([&] { x.scalar(); }), "scalar of an expression of width 2; expected 1");
}

TEST_F(Lazy, KnowsExpressionsOfOtherGraphsAndOfThePast) {
  const LazyExpr x = graph.input({1, 2});
  LazyGraph other(host, parameters, {.use = LazyOptions::For::inference});
  EXPECT_EQ(said_of([&] { other.input({1, 2}) + x; }), "add: an expression of another lazy graph");
  const LazyExpr loss = row_sum(x);
  graph.backward(std::array{loss});
  EXPECT_EQ(said_of([&] { graph.backward(std::array{loss}); }),
            "backward() for a second time; expected clear() between them");
  EXPECT_EQ(x.value(), (std::vector<float>{1, 2}));
  graph.clear();
  EXPECT_EQ(said_of([&] { x.value(); }), "value: an expression from before clear(); expected one recorded since");
  const LazyExpr last = row_sum(other.input({3, 4}));
  EXPECT_EQ(last.scalar(), 7);
  EXPECT_EQ(said_of([&] { other.backward(std::array{last}); }),
            "backward() of a lazy graph for inference; expected one for training");
}

TEST_F(Lazy, HandlesMayOutliveTheirGraph) {
  auto short_lived = std::make_unique<LazyGraph>(host, parameters);
  const LazyExpr x = short_lived->input({1, 2});
  const LazyIndex row = short_lived->index(1);
  LazyExpr copy = x, moved = std::move(copy);
  short_lived.reset();
  EXPECT_EQ(said_of([&] { moved.value(); }), "value: an expression of a lazy graph that is gone");
  EXPECT_EQ(said_of([&] { embedding(w, row); }), "embedding: an operand of a lazy graph that is gone");
  const LazyExpr y = graph.input({1});
  EXPECT_EQ(said_of([&] { copy.value(); }), "value: an expression that was moved from");
  EXPECT_EQ(said_of([&] { tanh(copy); }), "tanh: an expression that was moved from");
  EXPECT_EQ(said_of([&] { y + copy; }), "add: an expression that was moved from");
  EXPECT_EQ(said_of([&] { graph.backward(std::array{copy}); }), "backward: an expression that was moved from");
  EXPECT_EQ(said_of([&] { copy.width(); }), "width: an expression that was moved from");
}

TEST_F(Lazy, AddsUpManyTermsAndJoinsManyParts) {
  std::vector<LazyExpr> terms;
  for (int i = 0; i < 1000; ++i) terms.push_back(graph.input({static_cast<float>(i)}));
  EXPECT_EQ(sum(terms).scalar(), 999 * 500);
  EXPECT_NEAR(mean(terms).scalar(), 499.5f, 1e-3);
  const std::vector<LazyOperand> parts(terms.begin(), terms.end());
  const std::vector<float> joined = concat(parts).value();
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(joined[static_cast<std::size_t>(i)], static_cast<float>(i));
}

/// One that computes with nothing but itself and values from before.
TEST_F(Lazy, ComputesALongChainOfOnePiece) {
  const Parameter u = parameters.add("u", 1, 1, Initial::constant(1));
  const LazyExpr one = graph.input({1});
  graph.flush();
  LazyExpr x = one;
  constexpr int length = 20'000;
  for (int i = 1; i < length; ++i) x = matmul(x, u) + one;
  graph.backward(std::array{x});
  EXPECT_EQ(x.scalar(), length);
  EXPECT_LE(graph.stats().kinds, 6);
}

}  // namespace
}  // namespace windrow::testing
