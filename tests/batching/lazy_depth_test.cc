// Functions of parameters alone of the most operations, on a small stack.
#include <gtest/gtest.h>
#include <pthread.h>

#include <cmath>
#include <functional>

#include "tests/sanitized.h"
#include "windrow/batching/lazy.h"

namespace windrow::testing {
namespace {

/// Runs it on a thread with a stack of so many bytes.
void on_small_stack(std::size_t bytes, std::function<void()> body) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, bytes), 0);
  pthread_t thread{};
  const auto run = [](void* of) -> void* {
    (*static_cast<std::function<void()>*>(of))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &body), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST(LazyDepth, OfWeightsOfTheMostOperationsTakesLittleStack) {
  if (sanitized) GTEST_SKIP() << "frames are larger under sanitizers";
  Engine engine({.workers = 2});
  const Device host = host_device(engine);
  Parameters parameters(host, 1);
  const Parameter w = parameters.add("w", 1, 1, Initial::constant(0.5F));
  float chain = 0, tree = 0;
  on_small_stack(std::size_t{300} << 10, [&] {
    LazyGraph graph(host, parameters);
    LazyWeight deep = w, wide = w;
    for (int i = 0; i < LazyWeight::most_operations; ++i) deep = tanh(deep);
    for (int i = 0; i < 8; ++i) wide = wide + wide;  // 255 operations
    chain = (graph.zeros(1) + deep).value()[0];
    tree = (graph.zeros(1) + wide).value()[0];
  });
  float expected = 0.5F;
  for (int i = 0; i < LazyWeight::most_operations; ++i) expected = std::tanh(expected);
  EXPECT_NEAR(chain, expected, 1e-4);
  EXPECT_EQ(tree, 128);
}

}  // namespace
}  // namespace windrow::testing
