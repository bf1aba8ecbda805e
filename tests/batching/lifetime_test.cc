// What computes may end in any order: what is left is an error that says so, and nothing that is gone is touched. Who
// holds a minibatch's memory, and until when.

#include "tests/batching/trainer.h"
#include "tests/memory/counting_allocator.h"
#include "windrow/engine/reduction.h"

namespace windrow::testing {
namespace {

constexpr const char* gone = "the engine is gone; expected one that outlives what computes with it";

/// One of each that computes, with ops under way.
struct All {
  All() {
    const Graphs graphs(function, many_trees(1, 3));
    minibatch = runner->differentiate(graphs.pointers);
    runner->differentiate(graphs.pointers);
    parameters->sgd(0.1, 0.1);
    loss = row_sum(square(embedding(parameters->find("words"), graph->index(1))));
    graph->backward(std::array{*loss});
    parameters->sgd(0.1);
    buffer.emplace(*engine, host->memory, 64);
    arena.emplace(*engine, host->memory, 1024);
    tensor.emplace(*host, 2, 2);
    tensor->set({1, 2, 3, 4});
    generator.emplace(*engine, 1);
    sum.emplace(*engine, 0);
    sum->add([](int& part) { ++part; });
    captured = engine->capture([&] { engine->push([] {}, {mutate(tensor->var())}); }, "captured");
  }

  std::optional<Engine> engine{std::in_place, EngineOptions{.policy = Policy::pool, .workers = 2}};
  std::optional<Device> host = host_device(*engine);
  std::optional<Parameters> parameters{std::in_place, *host, 3};
  TreeLstm cell{*parameters};
  VertexFunction function{"tree_lstm", {.arity = 2}, [this](Vertex& v) { cell(v); }};
  std::optional<Runner> runner{std::in_place, *host, function, *parameters};
  std::optional<LazyGraph> graph{std::in_place, *host, *parameters};
  std::optional<LazyExpr> loss;
  std::optional<Minibatch> minibatch;
  std::optional<Buffer> buffer;
  std::optional<Arena> arena;
  std::optional<Tensor> tensor;
  std::optional<Generator> generator;
  std::optional<Reduction<int>> sum;
  Graph captured;
};

const std::vector<std::pair<std::string, std::function<void(All&)>>> parts = {
    {"Engine", [](All& s) { s.engine.reset(); }},         {"Device", [](All& s) { s.host.reset(); }},
    {"Parameters", [](All& s) { s.parameters.reset(); }}, {"Runner", [](All& s) { s.runner.reset(); }},
    {"LazyGraph", [](All& s) { s.graph.reset(); }},       {"LazyExpr", [](All& s) { s.loss.reset(); }},
    {"Minibatch", [](All& s) { s.minibatch.reset(); }},   {"Buffer", [](All& s) { s.buffer.reset(); }},
    {"Arena", [](All& s) { s.arena.reset(); }},           {"Tensor", [](All& s) { s.tensor.reset(); }},
    {"Generator", [](All& s) { s.generator.reset(); }},   {"Reduction", [](All& s) { s.sum.reset(); }},
    {"Graph", [](All& s) { s.captured = {}; }},
};

class Ending : public ::testing::TestWithParam<std::size_t> {};

/// Each order of two, the others behind them.
TEST_P(Ending, BehindAnyOtherIsAllowed) {
  for (std::size_t first = 0; first < parts.size(); ++first) {
    All s;
    parts[first].second(s);
    parts[GetParam()].second(s);
    if (first > 0 && GetParam() > 0) s.engine->wait_all();
  }
}

INSTANTIATE_TEST_SUITE_P(All, Ending, ::testing::Range(std::size_t{0}, parts.size()),
                         [](const auto& of) { return "Of" + parts[of.param].first; });

TEST(AfterTheEngine, WhatNeedsItThrows) {
  All s;
  s.graph->clear();
  const LazyExpr other = row_sum(square(s.graph->input({1, 2})));
  const Graphs graphs(s.function, many_trees(1, 3));
  s.engine.reset();
  const std::vector<std::function<void()>> uses = {
      [&] { s.minibatch->loss(); },
      [&] { s.minibatch->output("logits"); },
      [&] { s.runner->run(graphs.pointers); },
      [&] { s.runner->differentiate(graphs.pointers); },
      [&] { s.parameters->sgd(0.1); },
      [&] { s.parameters->add("late", 1, 1, Initial::zeros()); },
      [&] { s.parameters->gradient(s.parameters->find("words")); },
      [&] { s.graph->clear(), s.graph->input({1}), s.graph->flush(); },
      [&] { s.buffer->engine(); },
      [&] { s.arena->cut(1); },
      [&] { s.tensor->get(); },
      [&] {
        s.tensor->set({1, 2, 3, 4});
      },
      [&] { Tensor(*s.host, 1, 1); },
      [&] { apply(*s.host, op::neg, {.in = {*s.tensor}}); },
      [&] { s.generator->uniform(*s.tensor, 0, 1); },
      [&] { s.sum->add([](int&) {}); },
      [&] { Parameters(*s.host, 1); },
  };
  for (std::size_t i = 0; i < uses.size(); ++i) {
    EXPECT_NE(error_of<MisuseError>(uses[i]).find(gone), std::string::npos) << i;
  }
  for (const auto& use :
       {std::function<void()>([&] { s.captured.launch(); }), std::function<void()>([&] { s.captured.append([] {}); }),
        std::function<void()>([&] { s.captured.dot(); })}) {
    EXPECT_EQ(error_of<MisuseError>(use), "graph 'captured': its engine is gone; expected one that is there");
  }
  EXPECT_EQ(s.minibatch->vertices() > 0, true);
  EXPECT_EQ(s.parameters->name(s.parameters->find("words")), "words");
}

TEST(AfterTheParameters, ARunnerAndALazyGraphGoOnWithTheirValues) {
  All s;
  const Graphs graphs(s.function, many_trees(1, 3));
  const double before = s.runner->run(graphs.pointers).loss();
  const Parameter words = s.parameters->find("words");
  s.graph->clear();
  const float value = row_sum(embedding(words, s.graph->index(1))).scalar();
  s.parameters.reset();
  EXPECT_EQ(s.runner->differentiate(graphs.pointers).loss(), before);
  EXPECT_EQ(row_sum(embedding(words, s.graph->index(1))).scalar(), value);
}

TEST(AfterTheRunner, AMinibatchTellsWhatItComputed) {
  All s;
  s.runner.reset();
  s.parameters.reset();
  EXPECT_GT(s.minibatch->loss(), 0);
}

TEST(AnEngineThatEndsInsideItsOwnOp, IsThereForWhatDrains) {
  auto engine = std::make_shared<Engine>(EngineOptions{.policy = Policy::pool, .workers = 1});
  const EngineRef ref(*engine);
  Buffer buffer(*engine, host_allocator(), 64);
  auto more = std::make_shared<std::atomic<int>>(0);
  Gate gate;
  engine->push([&gate] { gate.pass(); }, {mutate(buffer.var())});
  engine->push(
      [owner = engine, ref, more, bytes = buffer.bytes()]() mutable {
        owner.reset();  // the last one
        bytes.write();
        ref->push([more] { ++*more; }, {});
      },
      {mutate(buffer.var())});
  engine.reset();
  gate.open();
  while (!ref.drained()) std::this_thread::yield();
  EXPECT_EQ(more->load(), 1);
  EXPECT_EQ(ref.get(), nullptr);
  EXPECT_THROW(*ref, MisuseError);
}

/// Vertices with values that live within a tile, on memory that is counted.
struct Tiled {
  explicit Tiled(std::size_t capacity = std::size_t{1} << 30) : memory(std::make_shared<CountingAllocator>(capacity)) {}

  Engine engine{{.policy = Policy::serial}};
  std::shared_ptr<CountingAllocator> memory;
  Device host = host_device(engine);
  Parameters parameters{(host.memory = memory, host), 1};
  Parameter w = parameters.add("w", 1, 64, Initial::constant(1));
  VertexFunction function{"tiled", {}, [this](Vertex& v) {
                            const Expr x = matmul(v.pull("x", 1), w);
                            v.push("y", row_sum(tanh(exp(x) + sigmoid(x))));
                          }};
  Graphs graphs{function, {leaves(100, Floats(100, 0.5f))}};
  Runner runner{host, function, parameters};

  /// Blocks of memory in use, when all that was pushed is done.
  int blocks() {
    engine.wait_all();
    return memory->allocations - memory->deallocations;
  }
};

TEST(Scratch, IsMemoryOfTheDeviceUntilItsMinibatchIsDone) {
  Tiled s;
  const Minibatch minibatch = s.runner.run(s.graphs.pointers);
  s.engine.wait_all();
  const std::size_t scratch = s.memory->most_held - s.memory->held;
  EXPECT_GE(scratch, 100 * 64 * sizeof(float)) << "a row of a value for each vertex";
  EXPECT_LE(scratch, 96 * 1024u) << "what a plan makes of a core's cache";

  Tiled enough(s.memory->most_held), less(s.memory->most_held - 1);
  EXPECT_EQ(enough.runner.run(enough.graphs.pointers).loss(), 0);
  const Minibatch failed = less.runner.run(less.graphs.pointers);
  expect_error<OpError>([&] { failed.loss(); }, "counting: full");
}

TEST(Scratch, OfGradientsGoesBackToo) {
  Tiled s;
  const Tensor ones(s.host, 100, 1);
  ones.set(Floats(100, 1));
  const auto record = [&] { return s.runner.record(s.graphs.pointers, {}, {"y"}); };
  s.runner.backward(record(), {{"y", ones}});  // from here on the parameter has its gradient
  const Minibatch minibatch = record();
  const int blocks = s.blocks();
  const int taken = s.memory->allocations;
  s.runner.backward(minibatch, {{"y", ones}});
  EXPECT_EQ(s.blocks(), blocks);
  EXPECT_GT(s.memory->allocations, taken);
}

TEST(NoMemory, IsWhatAMinibatchOfNoColumnsNeeds) {
  OnHost s;
  const VertexFunction function("nothing", {.arity = 1}, [](Vertex& v) {
    const State state = v.state("z", 0);
    v.scatter(state, v.pull("x", 0));
    v.push("out", v.gather(0, state));
  });
  GraphData data = chain_of(2);
  data.values["x"] = {};
  for (const bool slots : {true, false}) {
    const Minibatch minibatch = s.computed(function, {data}, {.optimisations = {.slots = slots}});
    EXPECT_EQ(minibatch.loss(), 0);
    EXPECT_TRUE(minibatch.output("out").get().empty());
  }
}

}  // namespace
}  // namespace windrow::testing
