// What a minibatch on a CUDA device costs, in calls of the runtime.
#include <cuda_runtime_api.h>

#include <numeric>

#include "support.h"
#include "tests/batching/blocked_chain.h"
#include "tests/ops/mlp.h"
#include "windrow/batching/schedule.h"
#include "windrow/comm/local.h"
#include "windrow/models/trainer.h"
#include "windrow/models/workload.h"
#include "windrow/training/data_parallel.h"

namespace windrow::testing {
namespace {

struct Cost {
  std::uint64_t minibatches, levels;                       // levels of vertices with children
  std::uint64_t kernels, copies, waits, synchronisations;  // calls; products are kernels
  std::uint64_t allocations;                               // of the runtime, pinned ones too
};

/// Calls of four minibatches, of all samples each, so that no order of samples changes the number of levels. They are
/// counted in the third epoch: the first ones compile kernels. How many minibatches are in flight at a time, and so how
/// much memory they take, is up to the threads; so the cost is that of the first epoch from there that allocates
/// nothing, if one of twenty does. Kernels do nothing.
Cost cost_of(const std::string& model, std::size_t batch, Index hidden, cuda::Levels levels = cuda::Levels::launches) {
  // The fake memory is not paged, so ranges that are in use may leave no room for a large one.
  fake::reset({.memory = std::size_t{1} << 30, .kernels_run = false});
  Engine engine({.policy = Policy::pool, .workers = 2});
  const Device device = cuda::open_device(engine, 0, {.levels = levels}).device;
  Workload workload =
      make_workload(model, device, {.seed = 1, .samples = batch, .sizes = {{"hidden", hidden}, {"embedding", hidden}}});
  Trainer trainer(device, workload, {.minibatch = batch, .optimiser = {.rate = 0.05}});
  const auto epoch = [&]() -> Cost {
    const fake::Counters before = fake::counters();
    const std::int64_t trained = trainer.stats().minibatches;
    trainer.train(4 * batch);
    engine.wait_all();
    const fake::Counters after = fake::counters();
    return {
        .minibatches = static_cast<std::uint64_t>(trainer.stats().minibatches - trained),
        .levels = 0,
        .kernels = after.launches + after.products - before.launches - before.products,
        .copies = after.copies - before.copies,
        .waits = after.waits - before.waits,
        .synchronisations = after.synchronisations - before.synchronisations,
        .allocations = after.allocations + after.pinned_allocations - before.allocations - before.pinned_allocations};
  };
  epoch();
  epoch();
  Cost cost = epoch();
  for (int more = 0; more < 20 && cost.allocations > 0; ++more) cost = epoch();  // an allocation may synchronise
  for (const TypedGraph& graph : workload.network->typed_graphs(batch)) {
    const std::size_t levels = make_schedule(graph, SchedulePolicy::level).batches.size() - 1;  // without the leaves
    cost.levels += cost.minibatches * levels;
  }
  return cost;
}

using CudaMinibatch = OnFakeDevice;

const WorkloadOptions few_small_trees = {.seed = 1, .samples = 16, .sizes = {{"hidden", 8}, {"embedding", 8}}};

/// Per level: a fused kernel and two products, forward and backward.
TEST_F(CudaMinibatch, OfTreesTakesFewCalls) {
  const Cost cost = cost_of("tree-lstm", 64, 256);
  EXPECT_EQ(cost.minibatches, 4u);
  EXPECT_GT(cost.levels, 10 * cost.minibatches);
  // Beside the levels: eager and lazy steps, gradients of parameters, and the step of gradient descent.
  constexpr std::uint64_t others = 27;
  EXPECT_LE(cost.kernels, 6 * cost.levels + others * cost.minibatches);
  EXPECT_LE(cost.copies, 3 * cost.minibatches);  // the inputs, the losses, and the numbers of the step
  EXPECT_EQ(cost.waits, 0u);                     // there is one stream
  EXPECT_EQ(cost.synchronisations, 0u);
  EXPECT_EQ(cost.allocations, 0u);
}

/// However many levels there are.
TEST_F(CudaMinibatch, MayTakeOneKernelForAllLevelsOfAPass) {
  const Cost cost = cost_of("tree-lstm", 64, 24, cuda::Levels::together);
  EXPECT_GT(cost.levels, 10 * cost.minibatches);
  EXPECT_LE(cost.kernels, 29 * cost.minibatches);
  EXPECT_LE(cost.copies, 3 * cost.minibatches);
  EXPECT_EQ(cost.waits, 0u);
}

/// A step of all sentences of a parser is a minibatch of lazy expressions, whose inputs are values of earlier steps.
TEST_F(CudaMinibatch, OfLazyExpressionsTakesFewCalls) {
  const Device device =
      open({.memory = std::size_t{1} << 30, .kernels_run = false}, {.levels = cuda::Levels::launches});
  Workload workload = make_workload("parser", device, {.seed = 1, .samples = 16, .sizes = {{"hidden", 16}}});
  Trainer trainer(device, workload, {.minibatch = 16, .optimiser = {.rate = 0.05}});
  trainer.train();
  engine->wait_all();
  const fake::Counters before = fake::counters();
  const std::int64_t steps = trainer.stats().minibatches;
  trainer.train();
  engine->wait_all();
  const fake::Counters after = fake::counters();
  const std::uint64_t calls =
      after.launches + after.products + after.copies - before.launches - before.products - before.copies;
  EXPECT_GT(trainer.stats().minibatches - steps, 10);
  EXPECT_LE(calls, 60 * static_cast<std::uint64_t>(trainer.stats().minibatches - steps));
}

TEST_F(CudaMinibatch, MayGiveTheNarrowLevelsToTheKernel) {
  const auto calls = [](cuda::Levels levels) { return cost_of("tree-lstm", 128, 48, levels).kernels; };
  const std::uint64_t mixed = calls(cuda::Levels::automatic);
  EXPECT_LT(mixed, calls(cuda::Levels::launches) / 2);
  EXPECT_GT(mixed, calls(cuda::Levels::together) + 4);
}

TEST_F(CudaMinibatch, MakesGraphsOnceForMinibatchesOfOneShape) {
  const Device device = open({}, {.levels = cuda::Levels::launches, .graphs = true});
  Workload workload = make_workload("tree-lstm", device, few_small_trees);
  const auto learner = workload.network->learner({});
  std::vector<double> losses;
  const auto step = [&](std::initializer_list<std::size_t> samples) {
    const Learner::Loss loss = learner->differentiate(std::vector(samples));
    workload.parameters->sgd(0.001);
    losses.push_back(loss());
  };
  for (int i = 0; i < 5; ++i) step({0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_LT(losses.back(), losses.front());
  engine->wait_all();
  EXPECT_EQ(fake::counters().graphs, 10u);  // a pass each
  EXPECT_EQ(fake::counters().graphs_made, 2u);
  EXPECT_EQ(fake::counters().synchronisations, 0u);
  step({8});
  engine->wait_all();
  EXPECT_EQ(fake::counters().graphs_made, 4u);
}

/// A step is issued when the host has looked at the losses, while the device computes gradients.
TEST_F(CudaMinibatch, StepsDoNotWaitForTheBackwardPass) {
  const Device device = open({}, {.levels = cuda::Levels::launches});
  Workload workload = make_workload("tree-lstm", device, few_small_trees);
  const auto learner = workload.network->learner({});
  std::vector<std::size_t> samples(16);
  std::iota(samples.begin(), samples.end(), 0);
  const auto calls = [] { return fake::counters().launches + fake::counters().products; };
  std::uint64_t before = 0, whole = 0;  // calls of a minibatch and its step
  for (int i = 0; i < 2; ++i) {         // the first one may begin with calls that initialise
    before = calls();
    learner->differentiate(samples)();
    workload.parameters->sgd(0.1);
    engine->wait_all();
    whole = calls() - before;
  }
  fake::hold_at("back_level");
  before = calls();
  const Learner::Loss loss = learner->differentiate(samples);
  workload.parameters->sgd(0.1);
  comes_true([&] { return calls() >= before + whole; });
  EXPECT_EQ(calls(), before + whole);
  fake::hold_at("");
  EXPECT_GT(loss(), 0);
  engine->wait_all();
}

Device open_with_launches(Engine& engine) {
  return cuda::open_device(engine, 0, {.levels = cuda::Levels::launches}).device;
}

/// Also if the members call combine() when all of the backward pass has been issued.
TEST_F(CudaMinibatch, GradientsAreSummedWhileTheBackwardPassRuns) {
  fake::reset();
  BlockedChain zero({.workers = 2}, open_with_launches), one({.workers = 2}, open_with_launches);
  std::array<BlockedChain*, 2> chains = {&zero, &one};
  const LocalGroup group({zero.device, one.device});
  std::array<Awaited, 2> sums;
  fake::hold_at("back_level");
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      BlockedChain& chain = *chains[static_cast<std::size_t>(rank)];
      DataParallel parallel(group[rank], chain.parameters, {.bucket_bytes = 1});
      const Minibatch minibatch = chain.differentiate();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the thread of the device issues what it can
      const std::size_t samples = parallel.combine(3);
      chain.tell(chain.head, sums[static_cast<std::size_t>(rank)]);
      chain.parameters.sgd(0.1 / static_cast<double>(samples));
      EXPECT_NO_THROW(EXPECT_GT(minibatch.loss(), 0));
    });
  }
  for (const Awaited& sum : sums) EXPECT_TRUE(sum.came_within(std::chrono::seconds(20)));
  fake::hold_at("");
  for (std::thread& thread : threads) thread.join();
  for (const auto each : {&BlockedChain::w, &BlockedChain::u, &BlockedChain::head}) {
    EXPECT_EQ(zero.parameters.value(zero.*each).get(), one.parameters.value(one.*each).get());
  }
}

// Recordings of operators whose replays are CUDA graphs. A test of all devices compares them with fresh runs.

constexpr auto serial = StaticOptions::Order::serial;

/// A layer: its product, and a sum of columns, which takes a workspace.
struct Layer {
  explicit Layer(const Device& device, StaticOptions options = {.order = serial})
      : x(device, 300, 4, "x"), weight(filled(device, 4, 8, 0.5f)), step(device, body(device), options) {
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

using CudaRecording = OnFakeDevice;

TEST_F(CudaRecording, IssuesARunOfOperatorsByOneCall) {
  Layer layer(open());
  for (int step = 1; step <= 5; ++step) {
    layer.set(static_cast<float>(step));
    EXPECT_EQ(layer.step()[0].get(), expected(static_cast<float>(step)));
  }
  EXPECT_EQ(fake::counters().graphs, 4u);  // all but the first
  EXPECT_EQ(fake::counters().graphs_made, 1u);
}

TEST_F(CudaRecording, OfAPerceptronIsAFewGraphs) {
  const Device device = open();
  Mlp mlp(device);
  Static step(device, [&](const StaticInputs& batch) { return mlp.step(batch); }, {.order = serial});
  const Tensor images = filled(device, 16, 12, 0.5f);
  const IntTensor labels(device, 16, 1, "labels");
  labels.set(std::vector<std::int32_t>(16, 1));
  const auto run = [&](int times) {
    for (int i = 0; i < times; ++i) {
      step({.in = {images}, .indices = {labels}});
      engine->wait_all();  // otherwise steps that overlap may take more memory
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

TEST_F(CudaRecording, IsIssuedCallByCallIfToldSoOrWithoutMemoryForCaptures) {
  for (const bool told : {true, false}) {
    Layer layer(open({.memory = std::size_t{told ? 256u : 8u} << 20}), {.order = serial, .capture = !told});
    for (int step = 1; step <= 3; ++step) EXPECT_EQ(layer.step()[0].get(), expected(1));
    EXPECT_EQ(fake::counters().graphs, 0u);
  }
}

/// Whatever call of a replay fails: the one that captures, the one that makes the graph, and one that launches it.
TEST_F(CudaRecording, RecoversFromFailedCalls) {
  for (int replay = 0; replay < 3; ++replay) {
    int failed = 0;
    for (std::uint64_t call = 1; call < 12; ++call) {
      SCOPED_TRACE("replay " + std::to_string(replay) + ", call " + std::to_string(call));
      Layer layer(open());
      for (int i = 0; i <= replay; ++i) layer.step();
      engine->wait_all();
      fake::fail(call, cudaErrorInvalidValue, false);
      layer.step();
      try {
        engine->wait_all();
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
