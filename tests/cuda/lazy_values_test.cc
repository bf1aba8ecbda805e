// Values of lazy expressions on a CUDA device.
#include <cstdint>
#include <vector>

#include "tests/cuda/support.h"
#include "windrow/batching/lazy.h"

namespace windrow::testing {
namespace {

using Floats = std::vector<float>;

struct Scorer {
  Scorer(const Device& device, Index width)
      : parameters(device, 1),
        words(parameters.add("words", 64, 16, Initial::normal(0, 1))),
        weights(parameters.add("weights", 16, width, Initial::glorot(16, width))) {}

  std::vector<LazyExpr> scores(LazyGraph& graph, int count) const {
    std::vector<LazyExpr> all;
    for (int i = 0; i < count; ++i) all.push_back(matmul(tanh(embedding(words, graph.index(i % 64))), weights));
    return all;
  }

  Parameters parameters;
  const Parameter words, weights;
};

std::vector<Floats> values_of(const std::vector<LazyExpr>& expressions) {
  std::vector<Floats> all;
  for (const LazyExpr& one : expressions) all.push_back(one.value());
  return all;
}

void expect_near(const std::vector<Floats>& found, const std::vector<Floats>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].size(), expected[i].size()) << i;
    for (std::size_t k = 0; k < found[i].size(); ++k) EXPECT_NEAR(found[i][k], expected[i][k], 1e-5f) << i << ' ' << k;
  }
}

/// The copies to the host that take all values of one flush.
std::uint64_t copies_of_values(int count, Index width) {
  fake::reset();
  Engine engine({.policy = Policy::pool, .workers = 2});
  const Device host = host_device(engine), device = cuda::open_device(engine, 0).device;
  Scorer on_host(host, width), on_device(device, width);
  LazyGraph expected_graph(host, on_host.parameters), graph(device, on_device.parameters);
  const std::vector<Floats> expected = values_of(on_host.scores(expected_graph, count));
  const std::vector<LazyExpr> scores = on_device.scores(graph, count);
  graph.flush();
  engine.wait_all();
  const std::uint64_t before = fake::counters().copies;
  expect_near(values_of(scores), expected);
  expect_near(values_of(scores), expected);
  return fake::counters().copies - before;
}

TEST(CudaLazyValues, OfOneFlushTakeOneCopy) {
  EXPECT_EQ(copies_of_values(64, 33), 1u);
  EXPECT_EQ(copies_of_values(1, 5), 1u);
}

/// So a program that looks at one value of many does not copy all of them.
TEST(CudaLazyValues, OfALargeFlushTakeACopyForEachBlock) {
  constexpr Index width = 512;  // 128 rows a block
  EXPECT_EQ(copies_of_values(1000, width), 8u);
}

TEST(CudaLazyValues, AreThoseOfTheFlushThatComputedThem) {
  fake::reset({.order = fake::Order::random, .seed = 4});
  Engine engine({.policy = Policy::pool, .workers = 2});
  const Device host = host_device(engine), device = cuda::open_device(engine, 0).device;
  Scorer on_host(host, 7), on_device(device, 7);
  LazyGraph expected_graph(host, on_host.parameters), graph(device, on_device.parameters);
  for (int minibatch = 0; minibatch < 3; ++minibatch) {
    std::vector<LazyExpr> losses, expected_losses;
    for (int flush = 0; flush < 3; ++flush) {
      const std::vector<LazyExpr> scores = on_device.scores(graph, 20), expected = on_host.scores(expected_graph, 20);
      expect_near(values_of(scores), values_of(expected));
      losses.push_back(softmax_cross_entropy(scores[3], graph.index(flush)));
      expected_losses.push_back(softmax_cross_entropy(expected[3], expected_graph.index(flush)));
    }
    graph.backward(losses);
    expected_graph.backward(expected_losses);
    expect_near(values_of(losses), values_of(expected_losses));
    on_device.parameters.sgd(0.5);
    on_host.parameters.sgd(0.5);
    graph.clear();
    expected_graph.clear();
  }
}

}  // namespace
}  // namespace windrow::testing
