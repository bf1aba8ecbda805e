// Vertex functions on a device: values, losses, gradients and errors, against the oracle and the host.
#include "tests/batching/check_minibatch.h"
#include "tests/batching/layers_cell.h"
#include "tests/batching/random_function.h"
#include "tests/devices/conformance.h"
#include "tests/ops/planted.h"

namespace windrow::testing {
namespace {

/// Products that look alike: one uses the result of another, and the gradients of two overlap; and a state at a column
/// that nothing divides.
struct ChainCell {
  static constexpr std::size_t arity = 2;
  static constexpr Index in = 2, h = 101;
  Parameter own, square_matrix, out;

  explicit ChainCell(Parameters& p)
      : own(p.add("own", in, h + 1, Initial::uniform(-1, 1))),
        square_matrix(p.add("square", 4, 4, Initial::uniform(-1, 1))),
        out(p.add("out", 4, 1, Initial::uniform(-1, 1))) {}

  void operator()(auto& v) const {
    const auto state = v.state("h", h);
    const auto left = v.gather(0, state), right = v.gather(1, state);
    const auto first = matmul(slice(left, 0, 4), square_matrix), second = matmul(first, square_matrix);
    const auto overlapping = matmul(slice(left, 2, 6), square_matrix) + matmul(slice(right, 2, 6), square_matrix);
    const auto wide = matmul(v.pull("x", in), own);
    v.scatter(state, tanh(slice(wide, 1, h + 1) + 0.5 * right));
    v.push("second", second);
    v.loss(matmul(tanh(second + overlapping), out));
  }
};

template <class Cell>
void check_forms(const Device& device) {
  check_cell<Cell>(device, Form::trees, first_seed());
  check_cell<Cell>(device, Form::dag, first_seed() + 1);
  check_cell<Cell>(device, Form::any_order, first_seed() + 2, {.schedule = SchedulePolicy::agenda});
  check_cell<Cell>(device, Form::dag, first_seed() + 3, {.own_types = 0});  // vertices may lack children and indices
  check_cell<Cell>(device, Form::dag, first_seed() + 4,
                   {.batch_rows = 2, .optimisations = {.specialisation = false, .eager = false, .lazy = false}});
}

TEST_P(OnDeviceInFull, ComputesTreesOfFixedArity) {
  check_forms<TreeLstm>(device);
  check_forms<PassingCell>(device);
}
TEST_P(OnDeviceInFull, ComputesCellsOfOddShapes) {
  check_forms<OddCell>(device);
  check_forms<WideCell>(device);
}
TEST_P(OnDeviceInFull, ComputesVerticesWithAnyNumberOfChildren) {
  check_forms<ChildSumCell>(device);
  check_forms<MixedCell>(device);
}
TEST_P(OnDeviceInFull, ComputesAttention) { check_forms<AttendingCell>(device); }
TEST_P(OnDeviceInFull, ComputesProductsOfProducts) { check_forms<ChainCell>(device); }
TEST_P(OnDeviceInFull, ComputesVerticesOfSeveralKinds) { check_forms<Kinds>(device); }
TEST_P(OnDeviceInFull, ComputesVerticesThatSeeImages) { check_forms<ImageCell>(device); }

TEST_P(OnDeviceInFull, ComputesLayers) { check_cell<LayersCell>(device, Form::dag, first_seed()); }

TEST_P(OnDeviceInFull, ComputesRandomFunctions) {
  for (unsigned seed = first_seed(); seed < first_seed() + (sanitized ? 2 : 10); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    Parameters parameters(device, seed);
    const RandomFunction body(random, parameters);
    const VertexFunction function("random", {.arity = body.arity}, [&](Vertex& v) { body(v); });
    Oracle oracle(parameters, [&](OracleVertex& v) { body(v); });
    Runner runner(device, function, parameters);
    check_minibatch(runner, parameters, oracle, function, random_graphs({1, 9, 0, 14}, body.arity, Form::dag, random));
    if (HasFatalFailure()) return;
  }
}

GraphData chain(int length, int bad) {
  GraphData data = chain_of(length);
  for (int i = 0; i < length; ++i) {
    data.values["x"].insert(data.values["x"].end(), {1.0f, 2.0f});
    data.values["y"].push_back(i == bad ? -1.0f : 1.0f);
  }
  return data;
}

/// What a minibatch with a bad loss tells, and the parameter behind a step.
std::pair<std::string, std::vector<float>> told_by(const Device& device, ParametersOptions options) {
  Parameters parameters(device, 1, options);
  const Parameter w = parameters.add("w", 2, 2, Initial::constant(1));
  const VertexFunction function("logs", {.arity = 1}, [&](Vertex& v) {
    const State h = v.state("h", 2);
    const Expr state = matmul(v.pull("x", 2), w) + v.gather(0, h);
    v.scatter(h, state);
    v.loss(row_sum(log(v.pull("y", 1))) + row_sum(state));
  });
  Runner runner(device, function, parameters);
  const Graphs graphs(function, {chain(3, -1), chain(4, 2)});
  const Minibatch bad = runner.differentiate(graphs.pointers);
  parameters.sgd(0.5);
  if (options.non_finite == NonFinite::skip) {
    EXPECT_TRUE(std::isnan(bad.loss()));
    device.engine->wait_all();
    const SkippedSteps skipped = parameters.skipped_steps();
    EXPECT_EQ(skipped.count, 1u);
    return {skipped.last.at(0).why, parameters.value(w).get()};
  }
  return {error_of<OpError>([&] { bad.loss(); }), {}};
}

TEST_P(OnDevice, NamesTheCulpritOfALossThatIsNotFinite) {
  Engine other({.policy = Policy::serial});
  const auto after_op = [](const std::string& text) { return text.substr(text.find("minibatch 0 of logs")); };
  const std::string here = told_by(device, {}).first, there = told_by(host_device(other), {}).first;
  EXPECT_NE(here.find("the loss of sample 1, vertex 2 is nan"), std::string::npos) << here;
  EXPECT_NE(here.find("'log'"), std::string::npos) << here;
  EXPECT_EQ(after_op(here), after_op(there));
}

/// The gradient of sqrt at 0 is infinite, and the loss is 0.
TEST_P(OnDevice, SkipsStepsWhoseGradientAloneIsNotFinite) {
  Parameters parameters(device, 1, {.non_finite = NonFinite::skip});
  const Parameter w = parameters.add("w", 2, 2, Initial::constant(0)),
                  b = parameters.add("b", 1, 1, Initial::constant(1));
  const VertexFunction function("root", {.arity = 0}, [&](Vertex& v) {
    v.loss(row_sum(sqrt(matmul(v.pull("x", 2), w))) + matmul(v.pull("y", 1), b));
  });
  Runner runner(device, function, parameters);
  GraphData data{.child_begin = {0, 0}};
  data.values = {{"x", {2, 1}}, {"y", {0}}};
  const Graphs graphs(function, {data});
  const Minibatch minibatch = runner.differentiate(graphs.pointers);
  parameters.sgd(0.5);
  EXPECT_EQ(minibatch.loss(), 0);
  EXPECT_EQ(parameters.value(w).get(), (std::vector<float>{0, 0, 0, 0}));
  engine.wait_all();
  const SkippedSteps skipped = parameters.skipped_steps();
  ASSERT_EQ(skipped.count, 1u);
  EXPECT_EQ(skipped.last.back().why, "the gradient of parameter 'w' is not finite");
}

/// Each launch checks its own losses.
TEST_P(OnDevice, ChecksTheLossesOfEachLaunchOfAGraph) {
  Parameters parameters(device, 1);
  const Parameter w = parameters.add("w", 2, 2, Initial::constant(1));
  const VertexFunction function("root", {.arity = 0},
                                [&](Vertex& v) { v.loss(row_sum(sqrt(matmul(v.pull("x", 2), w)))); });
  Runner runner(device, function, parameters);
  const Graphs graphs(function, {leaves(1, {2, 1})});
  runner.differentiate(graphs.pointers).loss();
  engine.wait_all();
  const Graph step = engine.capture([&] { runner.differentiate(graphs.pointers); });
  step.launch();
  EXPECT_TRUE(std::isfinite(parameters.dense_gradient(w).get()[0]));
  parameters.value(w).set({-1, -1, -1, -1});
  step.launch();
  EXPECT_THROW(parameters.dense_gradient(w).get(), OpError);
  error_of<OpError>([&] { engine.wait_all(); });
}

TEST_P(OnDevice, CollectsAnOutputOfSeveralVerticesInOneRow) {
  Engine other({.policy = Policy::serial});
  const auto collected = [](const Device& on) {
    Parameters parameters(on, 1);
    const VertexFunction function("sums", {.arity = 1}, [](Vertex& v) {
      const State s = v.state("s", 1);
      const Expr sum = v.pull("x", 1) + v.gather(0, s);
      v.scatter(s, sum);
      v.push("sum", sum);
    });
    Runner runner(on, function, parameters);
    const Graphs graphs(function, {graph_of({{}, {0}, {}}, {1, 10, 100})});
    return runner.run(graphs.pointers).output("sum", {0, 0, 2}).row_range(0, 1).get();
  };
  EXPECT_EQ(collected(device), collected(host_device(other)));
}

TEST_P(OnDevice, SkipsStepsWhoseGradientIsNotFinite) {
  Engine other({.policy = Policy::serial});
  const ParametersOptions skip{.non_finite = NonFinite::skip};
  const auto here = told_by(device, skip), there = told_by(host_device(other), skip);
  EXPECT_EQ(here, there);
  EXPECT_EQ(here.second, (std::vector<float>{1, 1, 1, 1}));
}

/// What a reduction makes of a group of numbers, and its gradient.
struct OfGroup {
  Values value, gradient;
};

/// A group of any number of children; the gradient is that of exp(value).
template <class Reduce>
OfGroup by_children(const Device& device, const Values& group, Reduce reduce) {
  Parameters parameters(device, 1);
  const VertexFunction function("group", {.arity = any_arity}, [&](Vertex& v) {
    const State state = v.state("x", 1);
    v.scatter(state, v.pull_row("terms", 1));
    v.push("value", reduce(v.each(state)));
  });
  Runner runner(device, function, parameters);
  std::vector<Ints> children(group.size() + 1);
  for (std::size_t child = 0; child < group.size(); ++child)
    children.back().push_back(static_cast<std::int32_t>(child));
  const Graphs graphs(function, {graph_of(children)});
  const Tensor terms(device, std::ssize(children), 1), slope(device, std::ssize(children), 1);
  Floats of_terms(group.begin(), group.end()), of_slope(group.size(), 0);
  of_terms.push_back(0);
  terms.set(of_terms);
  const Minibatch minibatch = runner.record(graphs.pointers, {{"terms", {terms}}}, {"value"});
  const double value = minibatch.output("value").get().back();
  if (!std::isfinite(std::exp(value))) return {{value}, {}};
  of_slope.push_back(static_cast<float>(std::exp(value)));
  slope.set(of_slope);
  runner.backward(minibatch, {{"value", slope}});
  const Floats slopes = minibatch.gradient("terms").get();
  return {{value}, {slopes.begin(), slopes.end() - 1}};
}

/// The same for a list.
template <class Reduce>
OfGroup by_list(const Device& device, const Values& group, Reduce reduce) {
  Parameters parameters(device, 1);
  const Parameter w = parameters.add("w", std::ssize(group), 1, Initial::constant(0));
  parameters.value(w).set({group.begin(), group.end()});
  LazyGraph graph(device, parameters);
  std::vector<LazyExpr> list;
  for (std::int32_t i = 0; i < std::ssize(group); ++i) list.push_back(embedding(w, graph.index(i)));
  const LazyExpr value = reduce(list);
  const double found = value.value()[0];
  if (!std::isfinite(std::exp(found))) return {{found}, {}};
  graph.backward(std::array{row_sum(exp(value))});
  const std::vector<float> slopes = parameters.dense_gradient(w).get();
  return {{found}, {slopes.begin(), slopes.end()}};
}

/// Operators, vertex functions and lists agree about groups that are empty, forbidden, infinite or not a number.
TEST_P(OnDeviceInFull, ReducesGroupsByOneRule) {
  constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  struct Group {
    Values terms;
    double log_sum, log_sum_slope, top;  // the slope of exp(log_sum) for the first term
    double share;                        // of the first term, by softmax
  };
  for (const Group& group : {Group{{-inf}, -inf, 0, -inf, nan},
                             {{-inf, -inf, -inf}, -inf, 0, -inf, nan},
                             {{-inf, 0}, 0, 0, 0, 0},
                             {{0, -inf, 0}, std::log(2), 1, 0, 0.5},
                             {{inf, 0}, inf, 0, inf, nan},
                             {{inf, -inf}, inf, 0, inf, nan},
                             {{nan}, nan, 0, nan, nan},
                             {{nan, -inf}, nan, 0, nan, nan},
                             {{-inf, nan, -inf}, nan, 0, nan, nan},
                             {{inf, nan}, nan, 0, nan, nan},
                             {{-1e30f, -1e30f}, -1e30f, 0, -1e30f, 0.5},
                             {{2}, 2, std::exp(2), 2, 1}}) {
    SCOPED_TRACE(::testing::PrintToString(group.terms));
    const auto operator_gives = [&](const Operator& op) {
      const Tensor x = tensor(1, std::ssize(group.terms), {group.terms.begin(), group.terms.end()});
      return static_cast<double>(apply(device, op, {.in = {x}}).get()[0]);
    };
    const auto same = [&](const Values& found, const Values& expected) { EXPECT_EQ(difference(found, expected), ""); };
    same({operator_gives(op::log_sum_exp), operator_gives(op::row_max), operator_gives(op::softmax)},
         {group.log_sum, group.top, group.share});
    const OfGroup log_sum = by_children(device, group.terms, [](const Expr& x) { return log_sum_exp_children(x); });
    const OfGroup of_list = by_list(device, group.terms, [](const auto& list) { return log_sum_exp(list); });
    for (const OfGroup& found : {log_sum, of_list}) {
      same(found.value, {group.log_sum});
      if (!std::isfinite(std::exp(group.log_sum))) continue;
      EXPECT_NEAR(found.gradient.at(0), group.log_sum_slope, 1e-5);
    }
    same(by_children(device, group.terms, [](const Expr& x) { return max_children(x); }).value, {group.top});
    same(by_list(device, group.terms, [](const auto& list) { return max(list); }).value, {group.top});
    // The share of the first term times 1, and those of the others times 0.
    same(by_list(device, group.terms, [](const auto& list) { return softmax(list)[0]; }).value, {group.share});
    if (group.terms.size() == 1) {
      same(by_children(device, group.terms, [](const Expr& x) { return sum_children(softmax_children(x)); }).value,
           {group.share});
    }
  }
  for (const auto reduce : {windrow::sum_children, windrow::max_children, windrow::log_sum_exp_children}) {
    EXPECT_EQ(by_children(device, {}, reduce).value, Values{0});
  }
}

}  // namespace
}  // namespace windrow::testing
