// Lanes of a device besides its own one, and of several devices; and failures of devices: what they reach, and what
// they leave alone.
#include <cuda_runtime_api.h>

#include "tests/cuda/kernels.h"
#include "tests/cuda/support.h"

namespace windrow::testing {
namespace {

using cuda::open_device;
using Floats = std::vector<float>;

/// Adds up columns in an op of a lane. The kernel has a workspace.
void add_columns_on(LaneId lane, const Device& device, const Tensor& x, const Tensor& sum) {
  device.engine->push(
      [kernel = device.kernels.find(op::column_sum), memory = device.memory, x = x.view(),
       sum = sum.view()](OpContext& op) {
        const Matrix<const float> in[] = {x.read(op.lane())};
        kernel({.in = in, .out = sum.update(op.lane()), .op = &op::column_sum, .lane = op.lane()}, *memory);
      },
      {read(x.var()), mutate(sum.var())}, {.lane = lane});
}

using CudaWorkspaces = OnFakeDevice;
using CudaEvents = OnFakeDevice;

/// The checker of the fake runtime sees two kernels that use one workspace without an order.
TEST_F(CudaWorkspaces, AreOfTheLaneOnWhichTheKernelRuns) {
  for (unsigned run = 0; run < 6; ++run) {
    const Device device = open({.order = run % 2 == 0 ? fake::Order::random : fake::Order::lazy, .seed = run});
    const LaneId lanes[] = {device.lane, opened->copy_out, opened->copy_in, opened->collectives,
                            cuda::add_stream(device, {.name = "another"})};
    // Later kernels need larger workspaces.
    for (const Index rows : {1000, 100, 5000}) {
      const Tensor x = filled(device, rows, 8, 1), y = filled(device, rows, 8, 5);
      apply(device, op::column_sum, {.in = {y}}).get();  // the pool has a piece now
      std::vector<Tensor> sums, own;
      for (const LaneId lane : lanes) {
        sums.push_back(filled(device, 1, 8, 0));
        add_columns_on(lane, device, x, sums.back());
        own.push_back(apply(device, op::column_sum, {.in = {y}}));
        add_columns_on(lane, device, x, sums.back());
      }
      for (std::size_t i = 0; i < sums.size(); ++i) {
        EXPECT_EQ(sums[i].get(), Floats(8, static_cast<float>(rows))) << i;
        EXPECT_EQ(own[i].get(), Floats(8, 5 * static_cast<float>(rows))) << i;
      }
    }
  }
}

/// The calls that can fail and that a chain of small ops takes; copies and events do not count.
double calls_of_chain(Engine& engine, const Device& device) {
  constexpr int ops = 200;
  const Tensor x = filled(device, 1, 64, 1);
  engine.wait_all();
  fake::hold(true);
  const fake::Counters before = fake::counters();
  for (int i = 0; i < ops; ++i) apply(device, op::neg, {.in = {x}}, x);
  while (fake::counters().launches < before.launches + ops) std::this_thread::yield();
  const fake::Counters after = fake::counters();
  fake::hold(false);
  engine.wait_all();
  const auto others = [](const fake::Counters& counters) {
    return counters.calls - counters.queries - counters.records;
  };
  return static_cast<double>(others(after) - others(before)) / ops;
}

TEST(CudaDevices, TakeAsManyCallsAnOpWhicheverTheyAre) {
  fake::reset({.devices = 3});
  Engine engine({.policy = Policy::pool, .workers = 2});
  for (int number = 0; number < 3; ++number) {
    EXPECT_LT(calls_of_chain(engine, open_device(engine, number).device), 1.1) << number;
  }
}

int device_of_thread() {
  int device = -1;
  cudaGetDevice(&device);
  return device;
}

/// That of a thread which pushes, of an op which waits for others that may run on its thread, and of a worker.
TEST(CudaDevices, LeaveTheDeviceThatAThreadHasChosen) {
  for (const Policy policy : {Policy::pool, Policy::serial}) {
    fake::reset({.devices = 2});
    cudaSetDevice(0);
    Engine engine({.policy = policy, .workers = 1, .on_thread_start = [] { cudaSetDevice(0); }});
    const Device device = open_device(engine, 1).device;
    const Tensor x = filled(device, 1, 8, 2);
    const auto compute = [&] { EXPECT_EQ(apply(device, op::neg, {.in = {x}}).get(), Floats(8, -2)); };
    compute();
    EXPECT_EQ(device_of_thread(), 0);
    const Var done = engine.new_var("done");
    for (const bool computes : {false, true}) {
      int found = -1;
      engine.push(
          [&] {
            if (computes) compute();
            found = device_of_thread();
          },
          {mutate(done)});
      engine.wait(done);
      EXPECT_EQ(found, 0) << to_string(policy);
    }
    engine.retire(done);
  }
}

/// Each push runs inside the op before it. Errors of calls are found in the innermost ones.
TEST(CudaLanes, NestAsDeepAsOpsPushOps) {
  fake::reset({.devices = 2});
  cudaSetDevice(0);
  Engine engine({.policy = Policy::serial});
  const Device devices[] = {open_device(engine, 0).device, open_device(engine, 1).device};
  std::vector<Tensor> values;
  std::function<void(int)> descend = [&](int depth) {
    const Device& device = devices[depth % 2];
    values.push_back(filled(device, 1, 8, static_cast<float>(depth)));
    const Var here = engine.new_var("here");
    engine.push(
        [&, depth](OpContext&) {
          if (depth < 100) descend(depth + 1);
        },
        {mutate(here)}, {.lane = device.lane});
    values[static_cast<std::size_t>(depth)] = apply(device, op::neg, {.in = {values[static_cast<std::size_t>(depth)]}});
    engine.retire(here);
  };
  descend(0);
  for (int depth = 0; depth <= 100; ++depth) {
    EXPECT_EQ(values[static_cast<std::size_t>(depth)].get(), Floats(8, static_cast<float>(-depth))) << depth;
  }
  engine.wait_all();
  EXPECT_EQ(device_of_thread(), 0);
}

struct Failing {
  Policy policy;
  fake::Order order;
};
class CudaFailures : public ::testing::TestWithParam<Failing> {};

/// An op of one device uses a value of another one, whose work fails.
TEST_P(CudaFailures, ReachWhatUsesTheDevicesValuesAndNothingElse) {
  for (unsigned run = 0; run < 20; ++run) {
    fake::reset({.devices = 2, .order = GetParam().order, .seed = run});
    Engine engine({.policy = GetParam().policy, .workers = 2});
    const cuda::OpenDevice broken = open_device(engine, 0), good = open_device(engine, 1);
    const Tensor x = filled(broken.device, 1, 64, 3), y = filled(good.device, 1, 64, 5),
                 other = filled(good.device, 1, 8, 9);
    engine.wait_all();
    fake::fail_next_work(0);
    const Tensor made = apply(broken.device, op::tanh, {.in = {x}});
    engine.push(
        [from = made.view(), to = y.view()](OpContext& op) {
          launch_add(cuda::native_stream(op.lane()), to.update(op.lane()).data, from.read(op.lane()).data, 1);
        },
        {read(made.var()), mutate(y.var())}, {.lane = run % 2 == 0 ? good.device.lane : good.collectives});
    const Tensor later = apply(good.device, op::neg, {.in = {y}});
    expect_error<OpError>([&] { later.get(); }, "cuda:0: ");
    EXPECT_THROW(y.get(), OpError);
    EXPECT_EQ(other.get(), Floats(8, 9));
    EXPECT_EQ(apply(good.device, op::neg, {.in = {other}}).get(), Floats(8, -9));
    EXPECT_THROW(engine.wait_all(), OpError);
    EXPECT_EQ(cuda::list_devices().size(), 2u);
    expect_error<Error>([&] { open_device(engine, 0); }, "cuda:0: the device failed: ");
  }
}

std::string name_of(const ::testing::TestParamInfo<Failing>& info) {
  const char* const orders[] = {"eager", "random", "lazy"};
  return std::string(to_string(info.param.policy)) + "_" + orders[static_cast<int>(info.param.order)];
}
INSTANTIATE_TEST_SUITE_P(All, CudaFailures,
                         ::testing::Values(Failing{Policy::pool, fake::Order::eager},
                                           Failing{Policy::pool, fake::Order::random},
                                           Failing{Policy::pool, fake::Order::lazy},
                                           Failing{Policy::per_device, fake::Order::random},
                                           Failing{Policy::serial, fake::Order::random}),
                         name_of);

TEST(CudaMemory, IsCopiedByLanesOfItsDevice) {
  fake::reset({.devices = 2});
  Engine engine({.policy = Policy::pool, .workers = 2});
  const cuda::OpenDevice first = open_device(engine, 0), second = open_device(engine, 1);
  const Tensor x = filled(first.device, 1, 8, 3);
  const Var done = engine.new_var("done");
  engine.push(
      [from = x.view()](OpContext& op) {
        float values[8];
        from.download(op.lane(), values);
      },
      {read(x.var()), overwrite(done)}, {.lane = second.device.lane});
  expect_error<OpError>([&] { engine.wait(done); },
                        "download, in the memory of cuda:0, on lane 'cuda:1'; expected a lane of that device");
  engine.retire(done);
}

/// For example since memory is short. The work is done all the same.
TEST_F(CudaEvents, LoseNothingIfCallsAboutThemFail) {
  for (std::uint64_t call = 1; call < 30; ++call) {
    const Device device = open({.order = fake::Order::random, .seed = static_cast<unsigned>(call)});
    const Tensor x = filled(device, 1, 64, 3);
    engine->wait_all();
    fake::hold(true);
    const fake::Counters before = fake::counters();
    const Tensor y = apply(device, op::neg, {.in = {x}});
    while (fake::counters().launches == before.launches) std::this_thread::yield();
    fake::fail(call, cudaErrorMemoryAllocation, false);
    fake::hold(false);
    try {
      EXPECT_EQ(y.get(), Floats(64, -3)) << call;
    } catch (const OpError& e) {  // of the copy itself
      EXPECT_NE(std::string(e.what()).find("out of memory"), std::string::npos) << e.what();
    }
    fake::fail(0, cudaSuccess, false);
    EXPECT_EQ(y.get(), Floats(64, -3)) << call;
    EXPECT_EQ(apply(device, op::neg, {.in = {y}}).get(), Floats(64, 3)) << call;
    try {
      engine->wait_all();
    } catch (const OpError&) {
    }
  }
}

}  // namespace
}  // namespace windrow::testing
