// Lazy graphs where memory runs out: a call that throws leaves behind what was there.
#include <gtest/gtest.h>

#include <new>

#include "tests/engine/faults.h"
#include "tests/sanitized.h"
#include "windrow/batching/lazy.h"

namespace windrow::testing {
namespace {

/// Not every allocation fails where a sanitizer watches.
constexpr std::uint64_t stride = sanitized ? 5 : 1;

struct Model {
  Engine engine{{.workers = 1}};
  Device host = host_device(engine);
  Parameters parameters{host, 1};
  Parameter twice = parameters.add("twice", 1, 1, Initial::constant(2));
  Parameter words = parameters.add("words", 2, 1, Initial::constant(3));

  /// Doubles often; or adds a word as often.
  void double_often(LazyGraph& graph, std::vector<LazyExpr>& values) const {
    values.push_back(graph.input({1}));
    for (int i = 0; i < 6; ++i) values.push_back(matmul(values.back() + embedding(words, graph.index(0)), twice));
  }
  void add_often(LazyGraph& graph, std::vector<LazyExpr>& values) const {
    values.push_back(graph.input({1}));
    for (int i = 0; i < 6; ++i) values.push_back(embedding(words, graph.index(1)) + values.back());
  }
};

/// The model's values, as far as they were written.
void check(const std::vector<LazyExpr>& values, float factor) {
  float expected = 1;
  for (const LazyExpr& value : values) {
    ASSERT_EQ(value.scalar(), expected);
    expected = (expected + 3) * factor;
  }
}

TEST(LazyFaults, LeaveAGraphThatGoesOn) {
  Model model;
  bool struck = true;
  for (std::uint64_t at = 1; struck; at += stride) {
    SCOPED_TRACE(at);
    LazyGraph graph(model.host, model.parameters);
    std::vector<LazyExpr> first, second;
    first.reserve(10);
    {
      const faults::Armed armed({.at = at, .where = faults::Where::this_thread});
      try {
        model.double_often(graph, first);
        graph.flush();
      } catch (const std::bad_alloc&) {
      }
      struck = faults::struck();
    }
    model.add_often(graph, second);
    check(second, 1);
    check(first, 2);
    if (HasFatalFailure()) return;
  }
}

/// Half-way through gradients nothing goes on but a new minibatch.
TEST(LazyFaults, LeaveAGraphThatCanBeCleared) {
  Model model;
  const auto differentiate = [&](LazyGraph& graph) {
    std::vector<LazyExpr> values;
    values.reserve(10);
    model.double_often(graph, values);
    values[3].value();
    graph.backward(std::span(values).last(1));
  };
  bool struck = true;
  for (std::uint64_t at = 1; struck; at += stride) {
    SCOPED_TRACE(at);
    LazyGraph graph(model.host, model.parameters);
    {
      const faults::Armed armed({.at = at, .where = faults::Where::this_thread});
      try {
        differentiate(graph);
      } catch (const std::bad_alloc&) {
      }
      struck = faults::struck();
    }
    graph.clear();
    differentiate(graph);
    // Of x -> w (x + 3), six times from 1 on, by w, which is 2.
    EXPECT_EQ(model.parameters.gradient(model.twice).all->get(), std::vector<float>{1155});
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace windrow::testing
