// CUDA devices under an engine: the order of streams and the host, failures, and what calls an op costs.
#include <cuda_runtime_api.h>

#include <cmath>
#include <future>
#include <map>
#include <optional>

#include "tests/cuda/random_programs.h"
#include "tests/cuda/support.h"
#include "tests/sanitized.h"
#include "tests/seed.h"
#include "timeline.h"
#include "windrow/engine/trace.h"

namespace windrow::testing {
namespace {

using cuda::open_device;
using fake::Order;
using Floats = std::vector<float>;

class CudaPrograms : public ::testing::TestWithParam<Order> {};

TEST_P(CudaPrograms, GiveTheResultOfTheSerialOnes) {
  // The test fake_cuda.soak runs 8400 for each order and policy, 100,800 in all.
  const char* const given = std::getenv("WINDROW_TEST_PROGRAMS");
  const std::uint64_t programs = given != nullptr ? std::strtoull(given, nullptr, 10) : sanitized ? 150 : 300;
  const std::uint64_t first = first_seed();
  for (const Policy policy : {Policy::serial, Policy::pool, Policy::per_device, Policy::chaos}) {
    fake::reset({.devices = 2, .order = GetParam(), .seed = static_cast<unsigned>(first)});
    Engine engine({.policy = policy, .workers = 2});
    RandomPrograms random(engine, 2);
    for (std::uint64_t i = 0; i < programs; ++i) {
      ASSERT_TRUE(random.run(first + i)) << "seed " << first + i << ", policy " << to_string(policy);
      const std::vector<std::string> reports = fake::reports();
      ASSERT_TRUE(reports.empty()) << "seed " << first + i << ": " << reports[0];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaPrograms, ::testing::Values(Order::eager, Order::random, Order::lazy));

class Cuda : public ::testing::Test {
 protected:
  Cuda() { fake::reset({.devices = 2}); }
  Engine engine{{.policy = Policy::pool, .workers = 2}};
};

/// Returns when the device was given so many kernels since `before`, whether or not they have run.
void wait_for_launches(const fake::Counters& before, std::uint64_t count) {
  ASSERT_TRUE(comes_true([&] { return fake::counters().launches >= before.launches + count; }));
}

/// Waits until the calls of all ops of a lane have returned.
void wait_until_issued(Engine& engine, LaneId lane) {
  const auto issued = std::make_shared<std::promise<void>>();
  engine.push([issued](OpContext&) { issued->set_value(); }, {}, {.lane = lane});
  ASSERT_EQ(issued->get_future().wait_for(patience), std::future_status::ready);
}

TEST_F(Cuda, AChainOnOneStreamNeedsNoEvents) {
  const cuda::OpenDevice opened = open_device(engine, 0);
  Tensor x = filled(opened.device, 1, 64, 1);
  engine.wait_all();
  fake::hold(true);
  const fake::Counters before = fake::counters();
  const Tensor one = x;
  for (int i = 0; i < 200; ++i) x = apply(opened.device, op::add, {.in = {x, one}});
  wait_for_launches(before, 200);
  const fake::Counters after = fake::counters();
  fake::hold(false);
  EXPECT_EQ(after.launches - before.launches, 200u);
  EXPECT_EQ(after.waits, before.waits);
  EXPECT_LE(after.records - before.records, 8u);
  EXPECT_EQ(after.synchronisations, before.synchronisations);
  EXPECT_EQ(x.get(), Floats(64, 201));
}

TEST_F(Cuda, NoThreadOfTheEngineWaitsForADevice) {
  const cuda::OpenDevice opened = open_device(engine, 0);
  const LaneId other = cuda::add_stream(opened.device, {.name = "other"});
  const fake::Counters before = fake::counters();
  fake::hold(true);
  const Tensor x = filled(opened.device, 1, 64, 1), z = filled(opened.device, 1, 64, 1);
  engine.push(
      [from = x.view(), to = z.view()](OpContext& op) {
        launch_add(cuda::native_stream(op.lane()), to.update(op.lane()).data, from.read(op.lane()).data, 1);
      },
      {read(x.var()), mutate(z.var())}, {.lane = other});
  const Tensor negative = apply(opened.device, op::neg, {.in = {z}});
  wait_for_launches(before, 2);
  EXPECT_GE(fake::counters().waits, before.waits + 2);  // of each stream for the other
  fake::hold(false);
  EXPECT_EQ(negative.get()[0], -2);
  EXPECT_EQ(fake::counters().synchronisations, before.synchronisations);
}

TEST_F(Cuda, ValuesAreCopiedWhileLaterWorkRuns) {
  const cuda::OpenDevice opened = open_device(engine, 0);
  const Tensor x = filled(opened.device, 1, 64, 1);
  const Tensor two = apply(opened.device, op::add, {.in = {x, x}});
  fake::hold_at("tanh");
  const Tensor later = apply(opened.device, op::tanh, {.in = {two}});
  wait_until_issued(engine, opened.device.lane);
  EXPECT_EQ(two.get(), Floats(64, 2));
  EXPECT_EQ(two.column_range(3, 5).get(), Floats(2, 2));
  fake::hold_at("");
  EXPECT_EQ(later.get(), Floats(64, std::tanh(2.0f)));
}

TEST_F(Cuda, ADeviceHasStreamsForItsOpsForCopiesAndForCollectives) {
  const fake::Counters before = fake::counters();
  const cuda::OpenDevice opened = open_device(engine, 0);
  EXPECT_EQ(fake::counters().streams - before.streams, 4u);
  EXPECT_EQ(opened.device.copy_out, opened.copy_out);
  std::vector<std::string> names;
  for (const LaneId lane : {opened.device.lane, opened.copy_out, opened.copy_in, opened.collectives}) {
    names.emplace_back(engine.lane(lane)->name());
  }
  EXPECT_EQ(names, (std::vector<std::string>{"cuda:0", "cuda:0 copies out", "cuda:0 copies in", "cuda:0 collectives"}));
}

/// Streams for copies have no handle of cuBLAS until they need one.
TEST_F(Cuda, AnyStreamMultiplies) {
  const cuda::OpenDevice opened = open_device(engine, 0);
  const Tensor x = filled(opened.device, 1, 8, 1), product = filled(opened.device, 1, 1, 1);
  engine.push(
      [kernel = opened.device.kernels.find(op::matmul_nt), x = x.view(), to = product.view()](OpContext& op) {
        const Matrix<const float> in[] = {x.read(op.lane()), x.read(op.lane())};
        kernel({.in = in, .out = to.update(op.lane()), .op = &op::matmul_nt, .lane = op.lane()});
      },
      {read(x.var()), mutate(product.var())}, {.lane = opened.copy_in});
  EXPECT_EQ(product.get(), Floats(1, 8));
}

/// What else a failure reaches is tested in lanes_test.cc.
TEST_F(Cuda, AFailingDeviceNamesWhatWasInFlight) {
  const Device device = open_device(engine, 0).device;
  const Tensor x = filled(device, 1, 64, 1);
  engine.wait_all();
  fake::hold(true);
  fake::fail_next_work(0);
  const fake::Counters before = fake::counters();
  const Tensor square = apply(device, op::square, {.in = {x}});
  const Tensor sum = apply(device, op::add, {.in = {square, x}});
  wait_for_launches(before, 2);
  wait_until_issued(engine, device.lane);  // a call that still runs would return the error
  fake::hold(false);
  expect_error<OpError>(
      [&] { sum.get(); },
      "cuda:0: the device failed: an illegal memory access was encountered (cudaErrorIllegalAddress); "
      "in flight on cuda:0: square, add");
  EXPECT_THROW(x.get(), OpError);
  error_of<OpError>([&] { engine.wait_all(); });
  EXPECT_EQ(filled(host_device(engine), 1, 2, 1).get(), Floats(2, 1));
}

TEST_F(Cuda, NamesTheExactOpIfEachWaits) {
  const cuda::OpenDevice opened = open_device(engine, 0, {.sync = true});
  const Tensor x = filled(opened.device, 1, 64, 1);
  const Tensor square = apply(opened.device, op::square, {.in = {x}});
  engine.wait_all();
  fake::fail_next_work(0);
  const Tensor sum = apply(opened.device, op::add, {.in = {square, x}});
  apply(opened.device, op::neg, {.in = {sum}});
  const std::string text = error_of<OpError>([&] { sum.get(); });
  EXPECT_NE(text.find("op 'add' ("), std::string::npos) << text;
  EXPECT_NE(text.find("an illegal memory access was encountered"), std::string::npos) << text;
  EXPECT_EQ(text.find("neg"), std::string::npos) << text;
  error_of<OpError>([&] { engine.wait_all(); });
}

TEST_F(Cuda, AFailedCallFailsItsOpAlone) {
  const cuda::OpenDevice opened = open_device(engine, 0);
  const Tensor x = filled(opened.device, 1, 64, 1);
  engine.wait_all();
  engine.push([](OpContext&) { fake::fail(1, cudaErrorInvalidConfiguration, false); }, {mutate(x.var())},
              {.lane = opened.device.lane});
  const Tensor y = apply(opened.device, op::neg, {.in = {x}});
  EXPECT_THROW(y.get(), OpError);
  error_of<OpError>([&] { engine.wait_all(); });
  EXPECT_EQ(apply(opened.device, op::neg, {.in = {x}}).get(), Floats(64, -1));
}

std::map<std::string, std::uint64_t> device_work(const TraceSummary& summary) {
  std::map<std::string, std::uint64_t> counts;
  for (const auto& row : summary.device_work) counts[row.name] = row.count;
  return counts;
}

/// With policy serial, an op's function may push another op, whose section lies inside.
TEST(CudaSections, ErrorsBelongToTheOpThatMadeThem) {
  fake::reset();
  Engine engine({.policy = Policy::serial});
  const Device device = open_device(engine, 0).device;
  const Tensor x = filled(device, 1, 16, 1), y = filled(device, 1, 16, 1);
  const Var outer = engine.new_var("outer");
  engine.push(
      [&](OpContext&) {
        fake::fail(1, cudaErrorInvalidConfiguration, false);
        cudaFree(nullptr);  // fails, and leaves its error to the section
        apply(device, op::neg, {.in = {x}}, y);
      },
      {mutate(outer)}, {.name = "outer", .lane = device.lane});
  EXPECT_EQ(y.get()[0], -1);
  EXPECT_THROW(engine.wait(outer), OpError);
  error_of<OpError>([&] { engine.wait_all(); });
}

/// A query of an event that is not reached sets the thread's last error, too.
TEST(CudaSections, KeepErrorsWhileTheyWait) {
  fake::reset({.order = Order::lazy});
  Engine engine({.policy = Policy::pool, .workers = 1});
  const Device device = open_device(engine, 0, {.sync = true}).device;
  const Tensor x = filled(device, 1, 64, 1);
  engine.wait_all();
  engine.push(
      [view = x.view()](OpContext& op) {
        float* const cell = view.update(op.lane()).data;
        launch_add(cuda::native_stream(op.lane()), cell, cell, 1);
        fake::fail(1, cudaErrorInvalidConfiguration, false);
        cudaFree(nullptr);  // its result is not looked at
      },
      {mutate(x.var())}, {.name = "careless", .lane = device.lane});
  expect_error<OpError>([&] { engine.wait(x.var()); }, "'careless'");
  error_of<OpError>([&] { engine.wait_all(); });
}

TEST_F(Cuda, ProductsAreRoundedAsAsked) {
  const auto product = [&](cuda::Precision precision, float factor) {
    const Device device = open_device(engine, 0, {.precision = precision}).device;
    Tensor x(device, 1, 1), y(device, 1, 1);
    x.set({factor});
    y.set({1});
    return apply(device, op::matmul, {.in = {x, y}}).get()[0];
  };
  const float nine = 1 + std::ldexp(1.0f, -9), twelve = 1 + std::ldexp(1.0f, -12);  // that many bits of mantissa
  EXPECT_EQ(product(cuda::Precision::float32, twelve), twelve);
  EXPECT_EQ(product(cuda::Precision::tf32, twelve), 1);
  EXPECT_EQ(product(cuda::Precision::tf32, nine), nine);
  EXPECT_EQ(product(cuda::Precision::bf16, nine), 1);
}

TEST_F(Cuda, TracesTellWhenADeviceDidItsWork) {
  const Device device = open_device(engine, 0).device;
  const Tensor x = filled(device, 1, 16, 1);
  engine.wait_all();
  for (const std::uint64_t times : {3, 600}) {  // more than what is kept open
    engine.trace().start();
    for (std::uint64_t i = 0; i < times; ++i) apply(device, op::tanh, {.in = {x}});
    engine.wait_all();
    const TraceSummary summary = engine.trace().summary();
    engine.trace().stop();
    EXPECT_EQ(device_work(summary), (std::map<std::string, std::uint64_t>{{"tanh", times}}));
    for (const auto& track : summary.tracks) EXPECT_LE(track.utilisation, 1.0) << track.name;
    for (const auto& row : summary.device_work) EXPECT_GT(row.total.count(), 0);
  }
  apply(device, op::tanh, {.in = {x}});
  engine.wait_all();
  EXPECT_EQ(device_work(engine.trace().summary()), (std::map<std::string, std::uint64_t>{{"tanh", 600}}));
}

/// Only the trace suffers.
TEST(CudaTimeline, GivesUpWhereACallFails) {
  fake::reset();
  const cuda::Plugin& plugin = cuda::plugin();
  cuda::Queue* queue = nullptr;
  const cuda::QueueOptions options;
  ASSERT_EQ(plugin.make_queue(0, &options, &queue), cuda::success);
  std::size_t complete = 0;
  for (std::uint64_t call = 1; call < 20; ++call) {
    cuda::Timeline timeline(plugin, 0);
    fake::fail(call, cudaErrorInvalidResourceHandle, false);
    timeline.start(10);
    timeline.begin(queue, "work");
    timeline.end(queue);
    complete += timeline.read().size();
    fake::fail(0, 0, false);
    EXPECT_EQ(plugin.take_error(), cuda::success) << call;
  }
  EXPECT_GT(complete, 0u);
  EXPECT_LT(complete, 19u);
  plugin.end_queue(queue);
}

TEST(CudaDevices, AreListed) {
  fake::reset({.devices = 2, .memory = std::size_t{1} << 20});
  const std::vector<cuda::DeviceInfo> all = cuda::list_devices();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].number, 1);
  EXPECT_EQ(all[1].name, "fake CUDA device");
  EXPECT_EQ(all[1].architecture, "9.0");
  EXPECT_EQ(all[1].memory, std::size_t{1} << 20);
}

/// A thread that leaves a device does not go to one that nobody uses.
TEST(CudaDevices, HaveNoContextUnlessTheyAreUsed) {
  fake::reset({.devices = 2});
  std::thread([] {
    Engine engine({.policy = Policy::pool, .workers = 2});
    const Device device = open_device(engine, 1).device;
    EXPECT_EQ(apply(device, op::neg, {.in = {filled(device, 1, 8, 1)}}).get(), Floats(8, -1));
  }).join();
  EXPECT_TRUE(fake::has_context(1));
  EXPECT_FALSE(fake::has_context(0));
}

TEST(CudaDevices, ThatCannotBeUsedAreRefusedInOneLine) {
  Engine engine({.policy = Policy::pool, .workers = 1});
  const auto refusal = [&](int number) { return error_of<Error>([&] { open_device(engine, number); }); };
  fake::reset({.devices = 2});
  EXPECT_EQ(refusal(2), "device cuda:2: expected cuda:0 to cuda:1");
  EXPECT_EQ(refusal(-1), "device cuda:-1: expected cuda:0 to cuda:1");
  fake::reset({.devices = 1});
  EXPECT_EQ(refusal(1), "device cuda:1: expected cuda:0, the only one");
  fake::reset({.devices = 0});
  EXPECT_EQ(refusal(0), "CUDA cannot be used: the driver finds no device; expected at least one");
  fake::reset({.driver_version = 12020});
  EXPECT_EQ(refusal(0), "CUDA cannot be used: the driver is for CUDA 12.2; expected one for CUDA 13.0 or later");
  fake::reset({.driver_version = 0});
  EXPECT_EQ(refusal(0), "CUDA cannot be used: no NVIDIA driver was found; expected one for CUDA 13.0 or later");
  fake::reset({.major = 7});
  EXPECT_EQ(refusal(0), "cuda:0: has architecture 7.0; expected 8.0 or later");
  fake::reset({.devices = 2});
  for (const int number : {0, 1}) {
    fake::fail(2, cudaErrorDevicesUnavailable, false);
    EXPECT_EQ(refusal(number), "cuda:" + std::to_string(number) +
                                   ": the device is busy: another program has it for itself; expected a device that "
                                   "is free");
  }
}

}  // namespace
}  // namespace windrow::testing
