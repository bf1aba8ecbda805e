// What devices and minibatches ask of the host's memory, counted.
#include <gtest/gtest.h>

#include <array>

#include "tests/engine/faults.h"
#include "windrow/batching/runner.h"

namespace windrow::testing {
namespace {

using faults::asked;

void no_kernel(const KernelCall<float>&) {}

TEST(Devices, AreCopiedWithoutAnAllocation) {
  Engine engine;
  Device host = host_device(engine);
  const auto before = asked().calls;
  const Device copy = host;
  EXPECT_EQ(asked().calls, before);
  host.kernels.add(op::add, no_kernel);
  EXPECT_EQ(host.kernels.find(op::add), no_kernel);
  EXPECT_NE(copy.kernels.find(op::add), no_kernel) << "a copy is a value of its own";
  EXPECT_EQ(host.kernels.find(op::sub), copy.kernels.find(op::sub));
}

/// Of a graph of many vertices with this input.
std::int64_t bytes_stored_with(float input) {
  const VertexFunction function("inputs", {.arity = 1}, [](Vertex& v) {
    const State state = v.state("state", 1);
    const Expr x = v.gather(0, state) + v.pull("x", 1);
    v.scatter(state, x);
    v.push("x", x);
  });
  GraphData data;
  data.child_begin.assign(1001, 0);
  data.values["x"].assign(1000, input);
  InputGraph graph(function, data);
  InputGraph* const one = &graph;
  const auto before = asked().bytes;
  InputGraph::store_together({&one, 1});
  return asked().bytes - before;
}

TEST(InputGraphs, TakeHalfTheMemoryIfAllNumbersFit16Bits) {
  const std::int64_t narrow = bytes_stored_with(0), wide = bytes_stored_with(1.5f);
  EXPECT_GE(wide, 3 * 1000 * 4) << "the end of its children, its number, and the bits of the input";
  EXPECT_LT(narrow, 0.55 * static_cast<double>(wide));
}

/// Of that many kinds with a state each, of which the minibatch at hand has one.
std::int64_t bytes_of_a_minibatch(std::int32_t kinds) {
  Engine engine({.policy = Policy::serial});
  const Device host = host_device(engine);
  Parameters parameters(host, 1);
  std::vector<VertexFunction> functions;
  for (std::int32_t k = 0; k < kinds; ++k) {
    const std::string number = std::to_string(k);
    functions.emplace_back("kind" + number, VertexFunction::Shape{.arity = 1}, [&](Vertex& v) {
      const State state = v.state("state" + number, 1);
      const Expr x = v.gather(0, state) + v.pull("x", 1);
      v.scatter(state, tanh(x));
      v.push("x", x);
    });
  }
  const VertexFunction function("all", functions);
  Runner runner(host, function, parameters);
  GraphData all;
  for (std::int32_t k = 0; k < kinds; ++k) {
    for (const std::int32_t child : {no_child, 2 * k}) {
      all.children.push_back(child);
      all.child_begin.push_back(all.child_begin.back() + 1);
      all.kinds.push_back(k);
      all.values["x"].push_back(1);
    }
  }
  GraphData one{.child_begin = {0, 1, 2}, .children = {no_child, 0}, .kinds = {0, 0}};
  one.values["x"] = {1, 1};
  const InputGraph first(function, all), second(function, one);
  runner.run(std::array{&first}).loss();
  const auto before = asked().bytes;
  runner.run(std::array{&second}).loss();
  return asked().bytes - before;
}

TEST(Minibatches, TakeMemoryByTheTypesAndNotByTypesTimesStates) {
  const auto few = bytes_of_a_minibatch(20), more = bytes_of_a_minibatch(40), many = bytes_of_a_minibatch(80);
  EXPECT_LT(many - more, 5 * (more - few) / 2) << few << ", " << more << ", " << many;
}

}  // namespace
}  // namespace windrow::testing
