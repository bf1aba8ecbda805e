// Recordings of operators whose replays are CUDA graphs. A test of all devices compares them with fresh runs.
#include <cuda_runtime_api.h>

#include "tests/cuda/support.h"
#include "tests/ops/mlp.h"

namespace windrow::testing {
namespace {

constexpr auto serial = StaticOptions::Order::serial;

/// A layer: its product, and a sum of columns, which takes a workspace.
struct Layer {
  explicit Layer(const Device& device, StaticOptions options = {.order = serial})
      : x(device, 300, 4, "x"), weight(device, 4, 8, "weight"), step(device, body(device), options) {
    weight.set(std::vector<float>(32, 0.5f));
    set(1);
  }
  void set(float value) const { x.set(std::vector<float>(1200, value)); }

  Static::Body body(const Device& device) const {
    return [device, x = x, weight = weight](const StaticInputs&) -> std::vector<Tensor> {
      const Tensor y = apply(device, op::relu, {.in = {apply(device, op::matmul, {.in = {x, weight}})}});
      return {apply(device, op::column_sum, {.in = {y}})};
    };
  }

  const Tensor x, weight;
  Static step;
};

std::vector<float> expected(float value) { return std::vector<float>(8, 600 * value); }

TEST(CudaRecording, IssuesARunOfOperatorsByOneCall) {
  fake::reset();
  Engine engine({.policy = Policy::pool, .workers = 2});
  Layer layer(cuda::open_device(engine, 0).device);
  for (int step = 1; step <= 5; ++step) {
    layer.set(static_cast<float>(step));
    EXPECT_EQ(layer.step()[0].get(), expected(static_cast<float>(step)));
  }
  EXPECT_EQ(fake::counters().graphs, 4u);  // all but the first
  EXPECT_EQ(fake::counters().graphs_made, 1u);
}

TEST(CudaRecording, OfAPerceptronIsAFewGraphs) {
  fake::reset();
  Engine engine({.policy = Policy::pool, .workers = 2});
  const Device device = cuda::open_device(engine, 0).device;
  Mlp mlp(device);
  Static step(device, [&](const StaticInputs& batch) { return mlp.step(batch); }, {.order = serial});
  const Tensor images(device, 16, 12, "images");
  images.set(std::vector<float>(192, 0.5f));
  const IntTensor labels(device, 16, 1, "labels");
  labels.set(std::vector<std::int32_t>(16, 1));
  const auto run = [&](int times) {
    for (int i = 0; i < times; ++i) {
      step({.in = {images}, .indices = {labels}});
      engine.wait_all();  // otherwise steps that overlap may take more memory
    }
  };
  run(2);
  const fake::Counters before = fake::counters();
  run(10);
  const fake::Counters after = fake::counters();
  // The draws of two layers, and the fill of the gradient of the losses, divide the step into four runs.
  EXPECT_EQ(after.graphs - before.graphs, 40u);
  EXPECT_EQ(after.graphs_made, before.graphs_made);
  EXPECT_EQ(after.allocations, before.allocations);
}

TEST(CudaRecording, IsIssuedCallByCallIfToldSoOrWithoutMemoryForCaptures) {
  for (const bool told : {true, false}) {
    fake::reset({.memory = std::size_t{told ? 256u : 8u} << 20});
    Engine engine({.policy = Policy::pool, .workers = 2});
    Layer layer(cuda::open_device(engine, 0).device, {.order = serial, .capture = !told});
    for (int step = 1; step <= 3; ++step) EXPECT_EQ(layer.step()[0].get(), expected(1));
    EXPECT_EQ(fake::counters().graphs, 0u);
  }
}

/// Whatever call of a replay fails: the one that captures, the one that makes the graph, and one that launches it.
TEST(CudaRecording, RecoversFromFailedCalls) {
  for (int replay = 0; replay < 3; ++replay) {
    int failed = 0;
    for (std::uint64_t call = 1; call < 12; ++call) {
      SCOPED_TRACE("replay " + std::to_string(replay) + ", call " + std::to_string(call));
      fake::reset();
      Engine engine({.policy = Policy::pool, .workers = 2});
      Layer layer(cuda::open_device(engine, 0).device);
      for (int i = 0; i <= replay; ++i) layer.step();
      engine.wait_all();
      fake::fail(call, cudaErrorInvalidValue, false);
      layer.step();
      try {
        engine.wait_all();
      } catch (const OpError&) {
        ++failed;
      }
      fake::fail(0, cudaSuccess, false);
      for (int i = 0; i < 2; ++i) {
        layer.set(2);
        EXPECT_EQ(layer.step()[0].get(), expected(2));
      }
    }
    EXPECT_GT(failed, 0);
  }
}

}  // namespace
}  // namespace windrow::testing
