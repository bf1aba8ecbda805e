// Who holds a minibatch's memory, and until when.
#include <gtest/gtest.h>

#include <optional>

#include "tests/batching/cells.h"
#include "tests/batching/trainer.h"
#include "tests/engine/support.h"
#include "tests/memory/counting_allocator.h"
#include "windrow/memory/pool.h"

namespace windrow::testing {
namespace {

/// Vertices that look up rows of a table, whose gradients lie in the minibatch's memory.
class MinibatchMemory : public ::testing::Test {
 protected:
  MinibatchMemory() {
    data_.child_begin.assign(65, 0);
    for (std::int32_t v = 0; v < 64; ++v) data_.indices["i"].push_back(v % 3);
    graphs_.emplace(function_, std::vector{data_});
  }
  Minibatch differentiate() { return runner_.differentiate(graphs_->pointers); }
  /// Bytes, when all that was pushed is done.
  std::size_t in_use() {
    s_.engine.wait_all();
    return std::dynamic_pointer_cast<Pool>(s_.host.memory)->stats().in_use;
  }

  Trainer s_;
  const Parameter table_ = s_.parameters.add("table", 3, 64, Initial::constant(1));
  const VertexFunction function_{
      "lookup", {}, [this](Vertex& v) { v.loss(row_sum(tanh(embedding(table_, v.pull_index("i"))))); }};
  GraphData data_;
  std::optional<Graphs> graphs_;
  Runner runner_{s_.host, function_, s_.parameters, {.ahead = 2}};
};

TEST_F(MinibatchMemory, GoesWithTheLastHandleThoughTheRunnerHasNotSeenItsEnd) {
  const std::size_t none = in_use();
  {
    const Minibatch minibatch = differentiate();
    s_.parameters.forget_gradients();
    EXPECT_GT(in_use(), none + 64 * 64 * sizeof(float));
  }
  EXPECT_EQ(in_use(), none);
}

TEST_F(MinibatchMemory, IsHeldByGradientsOfRowsUntilTheyAreForgotten) {
  const std::size_t none = in_use();
  differentiate();
  EXPECT_GT(in_use(), none + 64 * 64 * sizeof(float));
  const std::vector<float> before = s_.parameters.value(table_).get();
  s_.parameters.sgd(0.1);
  s_.parameters.forget_gradients();
  EXPECT_EQ(in_use(), none);
  EXPECT_TRUE(s_.parameters.gradient(table_).rows.empty());
  const std::vector<float> after = s_.parameters.value(table_).get();
  EXPECT_NE(after, before);
  s_.parameters.sgd(0.1);
  EXPECT_EQ(s_.parameters.value(table_).get(), after) << "there is no gradient to descend along";
}

/// Vertices with values that live within a tile, on memory that is counted.
struct Tiled {
  Engine engine{{.policy = Policy::serial}};
  std::shared_ptr<CountingAllocator> memory;
  Device host = host_device(engine);
  std::optional<Parameters> parameters;
  std::optional<VertexFunction> function;
  std::optional<Graphs> graphs;
  std::optional<Runner> runner;

  explicit Tiled(std::size_t capacity = std::size_t{1} << 30) : memory(std::make_shared<CountingAllocator>(capacity)) {
    host.memory = memory;
    parameters.emplace(host, 1);
    const Parameter w = parameters->add("w", 1, 64, Initial::constant(1));
    function.emplace("tiled", VertexFunction::Shape{}, [&](Vertex& v) {
      const Expr x = matmul(v.pull("x", 1), w);
      v.push("y", row_sum(tanh(exp(x) + sigmoid(x))));
    });
    GraphData data;
    data.child_begin.assign(101, 0);
    data.values["x"].assign(100, 0.5f);
    graphs.emplace(*function, std::vector{data});
    runner.emplace(host, *function, *parameters);
  }
  /// Blocks of memory in use, when all that was pushed is done.
  int blocks() {
    engine.wait_all();
    return memory->allocations - memory->deallocations;
  }
};

TEST(Scratch, IsMemoryOfTheDeviceUntilItsMinibatchIsDone) {
  Tiled s;
  const Minibatch minibatch = s.runner->run(s.graphs->pointers);
  s.engine.wait_all();
  const std::size_t scratch = s.memory->most_held - s.memory->held;
  EXPECT_GE(scratch, 100 * 64 * sizeof(float)) << "a row of a value for each vertex";
  EXPECT_LE(scratch, 96 * 1024u) << "what a plan makes of a core's cache";

  Tiled enough(s.memory->most_held), less(s.memory->most_held - 1);
  EXPECT_EQ(enough.runner->run(enough.graphs->pointers).loss(), 0);
  const Minibatch failed = less.runner->run(less.graphs->pointers);
  const std::string said = error_of<OpError>([&] { failed.loss(); });
  EXPECT_NE(said.find("counting: full"), std::string::npos) << said;
}

TEST(Scratch, OfGradientsGoesBackToo) {
  Tiled s;
  const Tensor ones(s.host, 100, 1);
  ones.set(std::vector<float>(100, 1));
  const auto record = [&] { return s.runner->record(s.graphs->pointers, {}, {"y"}); };
  s.runner->backward(record(), {{"y", ones}});  // from here on the parameter has its gradient
  const Minibatch minibatch = record();
  const int blocks = s.blocks();
  const int taken = s.memory->allocations;
  s.runner->backward(minibatch, {{"y", ones}});
  EXPECT_EQ(s.blocks(), blocks);
  EXPECT_GT(s.memory->allocations, taken);
}

TEST(NoMemory, IsWhatAMinibatchOfNoColumnsNeeds) {
  Trainer s;
  const VertexFunction function("nothing", {.arity = 1}, [](Vertex& v) {
    const State state = v.state("z", 0);
    v.scatter(state, v.pull("x", 0));
    v.push("out", v.gather(0, state));
  });
  GraphData data;
  data.child_begin = {0, 0, 1};
  data.children = {0};
  data.values["x"] = {};
  const Graphs graphs(function, {data});
  for (const bool slots : {true, false}) {
    Runner runner(s.host, function, s.parameters, {.optimisations = {.slots = slots}});
    const Minibatch minibatch = runner.run(graphs.pointers);
    EXPECT_EQ(minibatch.loss(), 0);
    EXPECT_TRUE(minibatch.output("out").get().empty());
  }
}

}  // namespace
}  // namespace windrow::testing
