// How minibatches fail, and what is said.
#include <type_traits>

#include "tests/batching/trainer.h"

namespace windrow::testing {
namespace {

class Failure : public ::testing::Test, protected OnHost {};

void expect_failed(const Minibatch& minibatch, std::initializer_list<std::string_view> parts) {
  expect_error<OpError>([&] { minibatch.loss(); }, parts);
}

/// Vertex 4 of graph 1 has what the kernel refuses.
std::vector<GraphData> bad_trees() {
  std::vector<GraphData> data = many_trees(1, 3);
  data[1].values["x"].at(8) = refused;
  return data;
}

TEST_F(Failure, OfAnOpPoisonsTheMinibatchAndWhatIsMadeOfIt) {
  Watched s;
  const Minibatch minibatch = s.runner.differentiate(Graphs(s.function, bad_trees()).pointers);
  s.parameters.sgd(0.1);
  expect_failed(minibatch,
                {"minibatch 0 of watched_sum: watched at sample 1, vertex 4: row 0 is refused", "failure_test.cc"});
  EXPECT_THROW(s.parameters.value(s.w).get(), OpError);
  EXPECT_THROW(s.parameters.gradient(s.w).all->get(), OpError);
}

TEST_F(Failure, IsToldOnceAndDoesNotHinderWhatComesAfterIt) {
  for (const bool asked : {true, false}) {
    Watched s({}, {.ahead = 2});
    const double loss = s.runner.run(s.graphs.pointers).loss();
    const Graphs bad(s.function, bad_trees());
    const Minibatch minibatch = s.runner.differentiate(bad.pointers);
    if (asked) expect_failed(minibatch, {"watched"});
    int told = 0;
    for (int call = 0; call < 4; ++call) {
      try {
        EXPECT_EQ(s.runner.differentiate(s.graphs.pointers).loss(), loss);
      } catch (const OpError&) {
        ++told;
      }
    }
    EXPECT_EQ(told, asked ? 0 : 1);
    EXPECT_FALSE(s.parameters.gradient(s.w).all->get().empty());
  }
}

TEST_F(Failure, OfAGradientIsNotHiddenByThePartsThatAreAddedToIt) {
  host.kernels.add(op::matmul_tn, [](const KernelCall<float>& call) {
    if (call.write == Write::overwrite) throw Error("the first part fails");
  });
  const Parameter w = parameters.add("w", 2, 2, Initial::constant(1));
  const VertexFunction function("twice", {.arity = 2},
                                [&](Vertex& v) { v.loss(row_sum(matmul(tanh(matmul(v.pull("x", 2), w)), w))); });
  Runner runner(host, function, parameters);
  const Graphs graphs(function, many_trees(1, 2));
  for (int i = 0; i < 20; ++i) {  // and not by the next minibatch either
    runner.differentiate(graphs.pointers).loss();
    expect_error<OpError>([&] { parameters.gradient(w).all->get(); }, "the first part fails");
  }
}

/// exp of a sum over the tree, where maximum(log(x), x) hides an infinity.
struct Growing : OnHost {
  explicit Growing(const Optimisations& optimisations = {})
      : runner(host, function, parameters, {.groups = 2, .group_flops = 1, .optimisations = optimisations}) {
    parameters.value(w).set({1, 1});
  }
  GraphData tree(const Floats& x) const {  // 0 and 1 below 2, below 3
    return graph_of({{}, {}, {0, 1}, {2}}, x);
  }
  Minibatch of(const std::vector<GraphData>& data) { return runner.differentiate(Graphs(function, data).pointers); }

  Parameter w = parameters.add("w", 2, 1, Initial::zeros()), u = parameters.add("u", 1, 1, Initial::constant(2));
  VertexFunction function{"growing", {.arity = 2}, [this](Vertex& v) {
                            const State sum = v.state("sum", 1);
                            const Expr x = v.pull("x", 2);
                            const Expr own = matmul(maximum(log(x), x), w) + log(v.parameter(u));
                            const Expr total = own + v.gather(0, sum) + v.gather(1, sum);
                            v.scatter(sum, total);
                            v.loss(square(exp(total)));
                          }};
  Runner runner;
};

void name_culprits(Growing& s) {
  const GraphData good = s.tree({0, 1, 0, 1, 1, 1, 1, 1});
  EXPECT_GT(s.of({good}).loss(), 0);
  expect_failed(
      s.of({good, s.tree({0, 1, 100, 1, 1, 1, 1, 1})}),
      {"minibatch 1 of growing: the loss of sample 1, vertex 1 is inf, expected a finite number; the first such "
       "value on its way is of 'exp' at sample 1, vertex 1"});
  expect_failed(s.of({good, s.tree({1, 1, 20, 1, 20, 1, 3e38, 3e38})}), {"is of 'matmul' at sample 1, vertex 3"});
  expect_failed(s.of({s.tree({1, 1, 20, 1, 20, 1, 1, 1}), good}), {"is of 'square' at sample 0, vertex 3"});
}

TEST_F(Failure, OfALossNamesMinibatchOperatorAndVertex) {
  Growing with, without({.slots = false});
  name_culprits(with);
  name_culprits(without);
}

TEST_F(Failure, OfALossNamesInputsAndParameters) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  Growing s;
  const GraphData good = s.tree({0, 1, 0, 1, 1, 1, 1, 1});
  expect_failed(s.of({good, s.tree({nan, 1, 1, 1, 1, 1, 1, 1})}),
                {"its input 'x' at sample 1, vertex 0 is not finite"});
  s.parameters.value(s.u).set({-1});
  expect_failed(s.of({good}), {"'log' of parameters is not finite"});
  s.parameters.value(s.w).set({nan, 1});
  expect_failed(s.of({good}), {"parameter 'w' is not finite"});
}

TEST_F(Failure, OfALossThatIsAnInputNamesIt) {
  const VertexFunction function("given", {}, [&](Vertex& v) { v.loss(v.pull("x", 1)); });
  EXPECT_EQ(differentiated(function, {leaves(2, {1, 2})}).loss(), 3);
  expect_failed(computed(function, {leaves(2, {1, HUGE_VALF})}), {"its input 'x' at sample 0, vertex 1 is not finite"});
}

TEST_F(Failure, OfALossLeavesParametersAsTheyWere) {
  Growing s;
  s.of({s.tree({0, 1, 100, 1, 1, 1, 1, 1})});
  s.parameters.sgd(0.1);
  EXPECT_THROW(s.parameters.value(s.w).get(), OpError);
  s.engine.heal(s.parameters.value(s.w).var());
  EXPECT_EQ(s.parameters.value(s.w).get(), (std::vector<float>{1, 1}));
}

TEST_F(Failure, ByMisuseIsNamedAtTheCall) {
  Watched s, elsewhere;
  Device device = s.host;
  Parameters& set = s.parameters;
  Parameters other(device, 1);
  const auto said = [](auto call) { return error_of<MisuseError>(call); };
  EXPECT_EQ(said([&] { Runner(device, s.function, other); }),
            "watched_sum: parameter 'w' of another set; expected one of this");
  for (const auto& [options, what] : {std::pair(RunnerOptions{.ahead = 0}, "ahead"),
                                      {RunnerOptions{.batch_rows = 0}, "batch_rows"},
                                      {RunnerOptions{.groups = 0}, "groups"},
                                      {RunnerOptions{.group_flops = 0}, "group_flops"}}) {
    EXPECT_EQ(said([&] { Runner(device, s.function, set, options); }),
              "RunnerOptions: " + std::string(what) + " is 0; expected 1 or more");
  }
  EXPECT_EQ(said([&] { Runner(elsewhere.host, s.function, set); }),
            "watched_sum: its parameters are on another engine than its runner; expected the same");
  EXPECT_EQ(said([&] { set.sgd(std::numeric_limits<double>::infinity()); }),
            "sgd: rate inf, decay 0; expected numbers that a float holds");
  EXPECT_EQ(said([&] { set[1]; }), "there is no parameter 1; expected less than 1");
  const InputGraph* null = nullptr;
  EXPECT_EQ(said([&] { s.runner.run(std::span(&null, 1)); }),
            "watched_sum: sample 0: no graph; expected graphs made for this one");
  EXPECT_EQ(said([&] { s.runner.run(elsewhere.graphs.pointers); }),
            "watched_sum: sample 0: a graph of another vertex function; expected graphs made for this one");
  EXPECT_EQ(said([&] { s.runner.run({}).output("x"); }),
            "watched_sum: there is no output 'x'; expected one that the function pushes");
  EXPECT_EQ(said([&] { set.add("w", 1, 1, Initial::zeros()); }), "parameter 'w' is added twice; expected once");
  EXPECT_EQ(said([&] { set.find("v"); }), "there is no parameter 'v'; expected one that was added");
  EXPECT_EQ(said([&] { other.value(s.w); }), "parameter 'w' of another set; expected one of this");

  const VertexFunction lossless("lossless", {}, [&](Vertex& v) { v.push("y", matmul(v.pull("x", 2), s.w)); });
  EXPECT_EQ(said([&] { Runner(device, lossless, set).differentiate({}); }),
            "lossless: has no loss; expected one to differentiate");
  const VertexFunction rough("rough", {.arity = 2},
                             [&](Vertex& v) { v.loss(apply(no_gradient, {matmul(v.pull("x", 2), s.w)})); });
  const Graphs one(rough, many_trees(1, 1));
  EXPECT_NE(said([&] { Runner(device, rough, set).run(one.pointers); }).find("no_gradient"), std::string::npos)
      << "no kernel";
  device.kernels.add(no_gradient, watched_copy);
  EXPECT_EQ(said([&] { Runner(device, rough, set).differentiate(one.pointers); }),
            "rough: no_gradient has no gradient; expected an operator that has one");
}

Type eight_wide(const Operator&, const Signature& signature) { return {signature.in[0].rows, 8}; }
constexpr Operator widened{.name = "widened", .infer = eight_wide, .gradients = passed, .locality = Locality::rowwise};

TEST_F(Failure, OfATargetNamesItsVertex) {
  const VertexFunction function("targets", {}, [&](Vertex& v) {
    const Expr x = v.pull("x", 1);
    v.loss(binary_cross_entropy(x, square(x)));
  });
  expect_failed(computed(function, {leaves(4, {0.5f, 0.25f, 2, 1})}),
                {"binary_cross_entropy at sample 0, vertex 2: target 4 at row 0, column 0; expected 0 to 1"});
}

TEST_F(Failure, OfAnInitialDrawNamesTheParameter) {
  const auto said = [&](Index rows, Initial initial) {
    return error_of<MisuseError>([&] { parameters.add("u", rows, 3, initial); });
  };
  EXPECT_EQ(said(2, Initial::normal(0, -1)), "parameter 'u': normal: 0, -1; expected finite mean and deviation >= 0");
  EXPECT_EQ(said(2, Initial::uniform(1, 0)).substr(0, 23), "parameter 'u': uniform:");
  EXPECT_EQ(said(-2, Initial::zeros()), "parameter 'u': tensor 'parameter': -2 x 3; expected no negative size");
  EXPECT_EQ(parameters.size(), 0u);
}

TEST_F(Failure, OfARuleForGradientsNamesOperatorAndShapes) {
  host.kernels.add(widened, watched_copy);
  const Parameter w = parameters.add("w", 2, 3, Initial::constant(1));
  const VertexFunction function("wide", {.arity = 2},
                                [&](Vertex& v) { v.loss(row_sum(apply(widened, {matmul(v.pull("x", 2), w)}))); });
  EXPECT_EQ(error_of<MisuseError>([&] { differentiated(function, many_trees(1, 1)); }),
            "wide: widened: the gradient of operand 0 is vertices x 8; expected vertices x 3");
}

static_assert(!std::is_copy_constructible_v<Vertex>, "a copy would outlive the tracing");

}  // namespace
}  // namespace windrow::testing
