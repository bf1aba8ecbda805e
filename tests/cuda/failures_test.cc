// Failures of CUDA devices: what they reach, and what they leave alone.
#include <cuda_runtime_api.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/cuda/kernels.h"
#include "tests/cuda/support.h"
#include "tests/engine/support.h"
#include "windrow/ops/apply.h"

namespace windrow::testing {
namespace {

using cuda::open_device;
using Floats = std::vector<float>;

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
    EXPECT_NE(error_of<OpError>([&] { later.get(); }).find("cuda:0: "), std::string::npos);
    EXPECT_THROW(y.get(), OpError);
    EXPECT_EQ(other.get(), Floats(8, 9));
    EXPECT_EQ(apply(good.device, op::neg, {.in = {other}}).get(), Floats(8, -9));
    EXPECT_THROW(engine.wait_all(), OpError);
    EXPECT_EQ(cuda::list_devices().size(), 2u);
    EXPECT_NE(error_of<Error>([&] { open_device(engine, 0); }).find("cuda:0: the device failed: "), std::string::npos);
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
  EXPECT_NE(error_of<OpError>([&] {
              engine.wait(done);
            }).find("download, in the memory of cuda:0, on lane 'cuda:1'; expected a lane of that device"),
            std::string::npos);
  engine.retire(done);
}

/// For example since memory is short. The work is done all the same.
TEST(CudaEvents, LoseNothingIfCallsAboutThemFail) {
  for (std::uint64_t call = 1; call < 30; ++call) {
    fake::reset({.order = fake::Order::random, .seed = static_cast<unsigned>(call)});
    Engine engine({.policy = Policy::pool, .workers = 2});
    const Device device = open_device(engine, 0).device;
    const Tensor x = filled(device, 1, 64, 3);
    engine.wait_all();
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
      engine.wait_all();
    } catch (const OpError&) {
    }
  }
}

}  // namespace
}  // namespace windrow::testing
