// What each optimisation saves, in counts that no clock is needed for.
#include <sstream>

#include "tests/batching/oracle.h"
#include "tests/batching/trainer.h"

namespace windrow::testing {
namespace {

std::vector<GraphData> ten_trees() {
  std::mt19937 random(1);
  return random_graphs(std::vector<std::int32_t>(10, 20), 2, Form::trees, random);
}

/// Of a minibatch of trees with and without.
class Counts : OnHost {
 public:
  RunnerStats of(const Optimisations& optimisations) {
    Runner runner(host, function_, parameters, {.optimisations = optimisations});
    runner.differentiate(graphs_.pointers).loss();
    plan_ = runner.describe();
    return runner.stats();
  }
  /// Of the last plan: how many steps are of that name.
  std::ptrdiff_t steps(const std::string& name) const {
    std::istringstream lines(plan_);
    std::ptrdiff_t count = 0;
    for (std::string line; std::getline(lines, line);) count += line.find(" " + name + " ") != std::string::npos;
    return count;
  }

 private:
  TreeLstm cell_{parameters};
  VertexFunction function_{"cell", {.arity = 2}, [&](Vertex& v) { cell_(v); }};
  Graphs graphs_{function_, ten_trees()};
  std::string plan_;
};

TEST(Sharing, KeepsGradientsOfStatesOfWhichNoElementIsRead) {
  OnHost s;
  const Parameter w = s.parameters.add("w", 2, 4, Initial::uniform(-1, 1));
  const VertexFunction function("unread", {.arity = 1}, [&](Vertex& v) {
    const State state = v.state("state", 4);
    const Expr own = tanh(matmul(v.pull("x", 2), w)), child = v.gather(0, state);
    v.scatter(state, own);
    v.loss(row_sum(own));
    v.loss(row_sum(slice(child, 0, 0)));
  });
  const auto gradient = [&](const Optimisations& optimisations) {
    s.differentiated(function, {chain_of(3, {1, 2, 3, 4, 5, 6})}, {.optimisations = optimisations}).loss();
    return s.parameters.gradient(w).all->get();
  };
  const std::vector<float> expected = gradient({.sharing = false});
  EXPECT_EQ(gradient({}), expected);
  EXPECT_EQ(gradient({.slots = false}), expected);
}

TEST(StepTimes, OfOperatorsAddUpToThoseOfTheirKindIfTheyAreAskedFor) {
  Trainer s({.workers = 2}, {.time_steps = true}), untimed;
  std::mt19937 random(1);
  const Graphs graphs(s.function, {random_graph(200, 2, Form::trees, random)}),
      same(untimed.function, many_trees(1, 1));
  const auto train = [&] {
    s.runner.differentiate(graphs.pointers).loss();
    s.engine.wait_all();
    return s.runner.stats();
  };
  const RunnerStats once = train(), twice = train();
  const StepTimes second = twice.times - once.times;
  const auto sum = [](const OperatorTimes& times, std::int64_t OperatorTime::*member) {
    std::int64_t all = 0;
    for (const auto& [name, time] : times) all += time.*member;
    return all;
  };
  EXPECT_EQ(sum(second.products, &OperatorTime::ns), second.product_ns);
  EXPECT_EQ(sum(second.arithmetic, &OperatorTime::ns), second.arithmetic_ns);
  EXPECT_EQ(sum(second.moves, &OperatorTime::ns), second.move_ns);
  EXPECT_EQ(sum(second.products, &OperatorTime::flops), twice.multiply_flops - once.multiply_flops);
  EXPECT_EQ(sum(second.products, &OperatorTime::bytes), 0);
  EXPECT_EQ(sum(second.arithmetic, &OperatorTime::bytes), second.arithmetic_bytes);
  EXPECT_EQ(sum(second.moves, &OperatorTime::bytes), second.move_bytes);
  for (const char* const name : {"matmul", "matmul_tn"}) {
    ASSERT_EQ(second.products.count(name), 1u) << name;
    EXPECT_GT(second.products.at(name).steps, 0) << name;
  }
  EXPECT_EQ(second.arithmetic.count("tanh"), 1u);
  EXPECT_EQ(second.moves.count("scatter"), 1u);
  for (const std::int64_t positive : {second.product_ns, second.arithmetic_ns, second.move_ns, second.move_bytes}) {
    EXPECT_GT(positive, 0);
  }
  untimed.runner.differentiate(same.pointers).loss();
  EXPECT_EQ(untimed.runner.stats().times.product_ns + untimed.runner.stats().times.move_bytes, 0);
}

TEST(Optimisations, NeedFewerBatchesAndSlotsNoGathersBeforeWhatLooksAtChildren) {
  Counts counts;
  const RunnerStats with = counts.of({});
  EXPECT_EQ(counts.steps("gather"), 0);
  EXPECT_GT(counts.steps("scatter"), 0);
  EXPECT_LT(with.batches, counts.of({.eager = false}).batches);
  EXPECT_LT(with.batches, counts.of({.lazy = false}).batches);
  EXPECT_LT(with.batches, 0.5 * static_cast<double>(counts.of({.fusion = false}).batches)) << "many steps at a time";
  const RunnerStats without = counts.of({.slots = false});
  EXPECT_GT(counts.steps("gather"), 0);
  EXPECT_EQ(counts.steps("scatter"), 0);
  EXPECT_EQ(with.multiply_flops, without.multiply_flops);
  EXPECT_LT(with.batches, without.batches);
}

TEST(Optimisations, SharingTakesLessMemoryAndChangesNoBits) {
  const Index h = 2 * 64;  // so wide that values lie beside each other in one matrix
  std::vector<Values> gradients[2];
  std::int64_t bytes[2];
  for (const bool sharing : {false, true}) {
    OnHost s;
    const windrow::TreeLstm cell(s.parameters, {TreeLstm::vocabulary, h, h, TreeLstm::classes});
    const VertexFunction function = cell.function();
    const Graphs graphs(function, ten_trees());
    Runner runner(s.host, function, s.parameters, {.groups = 2, .optimisations = {.sharing = sharing}});
    for (int i = 0; i < 2; ++i) runner.differentiate(graphs.pointers);
    gradients[sharing] = s.gradients();
    bytes[sharing] = runner.stats().peak_bytes;
  }
  EXPECT_EQ(gradients[0], gradients[1]);
  EXPECT_LT(bytes[true], 0.5 * static_cast<double>(bytes[false]));
}

/// Rows that many tables hold, of which a vertex has any.
struct ManyIndices : OnHost {
  static constexpr std::int32_t rows = 3;
  const int fields;
  Parameter table = parameters.add("table", rows, 2, Initial::uniform(-1, 1));
  Parameter w = parameters.add("w", 2, 2, Initial::uniform(-1, 1));
  VertexFunction function{"many", {.arity = 1}, [this](Vertex& v) {
                            const State s = v.state("s", 2);
                            Expr sum = matmul(v.gather(0, s), w);
                            for (int i = 0; i < fields; ++i) {
                              sum = sum + embedding(table, v.pull_index(name(i), Presence::sometimes));
                            }
                            v.scatter(s, tanh(sum));
                            v.push("sum", sum);
                            v.loss(row_sum(square(sum)));
                          }};

  explicit ManyIndices(int fields_, EngineOptions options = {}) : OnHost(options), fields(fields_) {}
  static std::string name(int i) { return "i" + std::to_string(i); }

  GraphData graph(std::int32_t vertices, std::mt19937& random) const {
    GraphData data;
    for (std::int32_t v = 0; v < vertices; ++v) {
      data.children.push_back(v % 8 == 0 ? no_child : v - 1);
      data.child_begin.push_back(v + 1);
      for (int i = 0; i < fields; ++i) {
        const bool missing = random() % 2 == 0;
        data.indices[name(i)].push_back(missing ? -1 : static_cast<std::int32_t>(random() % rows));
      }
    }
    return data;
  }
};

/// What a minibatch costs after some others, of graphs that are all different.
template <class Graph>
RunnerStats cost_of_a_minibatch(Runner& runner, const VertexFunction& function, Graph graph) {
  std::mt19937 random(1);
  RunnerStats before, after;
  for (int step = 0; step < 8; ++step) {
    before = runner.stats();
    const Graphs graphs(function, {graph(random)});
    EXPECT_TRUE(std::isfinite(runner.differentiate(graphs.pointers).loss()));
    after = runner.stats();
  }
  EXPECT_EQ(after.plans, 1);
  after.batches -= before.batches;
  after.kernels -= before.kernels;
  after.ops -= before.ops;
  after.multiply_flops -= before.multiply_flops;
  return after;
}

void expect_within(const RunnerStats& one, const RunnerStats& other, std::int64_t factor) {
  EXPECT_LE(one.batches, factor * other.batches);
  EXPECT_LE(one.kernels, factor * other.kernels);
  EXPECT_LE(one.ops, factor * other.ops);
  EXPECT_LE(one.multiply_flops, factor * other.multiply_flops);
}

TEST(ManyTypes, OfRandomChildrenCostLittleMoreThanOneTypeForAll) {
  constexpr std::size_t arity = 12;
  OnHost s;
  const Parameter w = s.parameters.add("w", 2, 2, Initial::uniform(-1, 1));
  const VertexFunction function("any", {.arity = arity}, [&](Vertex& v) {
    const State state = v.state("s", 2);
    Expr sum = v.pull("x", 2);
    for (std::size_t k = 0; k < arity; ++k) sum = sum + matmul(v.gather(k, state), w);
    v.scatter(state, tanh(sum));
    v.loss(row_sum(square(sum)));
  });
  const auto graph = [](std::mt19937& random) {
    std::vector<Ints> children(512, Ints(arity, no_child));
    for (std::int32_t v = 64; v < 512; ++v) {  // 8 levels of 64
      for (std::int32_t& child : children[static_cast<std::size_t>(v)]) {
        if (random() % 2 == 0) child = v / 64 * 64 - 64 + static_cast<std::int32_t>(random() % 64);
      }
    }
    return graph_of(children, Floats(1024, 1));
  };
  Runner chosen(s.host, function, s.parameters);
  Runner one_type(s.host, function, s.parameters, {.optimisations = {.specialisation = false}});
  expect_within(cost_of_a_minibatch(chosen, function, graph), cost_of_a_minibatch(one_type, function, graph), 2);
}

TEST(ManyTypes, OfRandomIndicesCostLittleMoreThanOneTypeForAll) {
  ManyIndices s(16);
  const auto graph = [&](std::mt19937& random) { return s.graph(512, random); };
  Runner chosen(s.host, s.function, s.parameters);
  Runner one_type(s.host, s.function, s.parameters, {.own_types = 0});
  expect_within(cost_of_a_minibatch(chosen, s.function, graph), cost_of_a_minibatch(one_type, s.function, graph), 2);
  EXPECT_EQ(chosen.stats().planned_types, 33);
}

/// Its instructions under callgrind are the most that the types of a kind take to be planned.
TEST(ManyTypes, UpToTheBoundArePlannedAllOverAgainForEachNewOne) {
  constexpr std::int32_t bound = 32;
  ManyIndices s(16);
  Runner runner(s.host, s.function, s.parameters, {.own_types = bound});
  for (std::int32_t type = 0; type < bound; ++type) {
    GraphData data{.child_begin = {0, 1}, .children = {no_child}};
    for (int i = 0; i < 16; ++i) data.indices[s.name(i)] = {(type >> i & 1) != 0 || i > 4 ? 0 : -1};
    runner.differentiate(Graphs(s.function, {data}).pointers).loss();
  }
  EXPECT_EQ(runner.stats().plans, bound);
  EXPECT_EQ(runner.stats().planned_types, bound * (bound + 1) / 2);
}

TEST(ManyTypes, DoNotSeeTheRowsThatTheyLack) {
  ManyIndices s(2);
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  s.parameters.value(s.table).set({nan, nan, 1, 1, 1, 1});  // a row that nobody looks up
  GraphData data = leaves(3);
  data.indices = {{"i0", {-1, 1, -1}}, {"i1", {-1, -1, 2}}};
  const Minibatch minibatch = s.differentiated(s.function, {data}, {.own_types = 0});
  EXPECT_EQ(minibatch.output("sum").get(), (std::vector<float>{0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(dense(s.parameters, s.table), (std::vector<double>{0, 0, 2, 2, 2, 2}));
}

TEST(ManyTypes, NoneOfWhichHasAnIndexLeaveNoGradient) {
  ManyIndices s(1);
  GraphData data = leaves(2);
  data.indices = {{"i0", {-1, -1}}};
  EXPECT_EQ(s.differentiated(s.function, {data}, {.own_types = 0}).loss(), 0);
  EXPECT_TRUE(s.parameters.gradient(s.table).rows.empty());
}

}  // namespace
}  // namespace windrow::testing
