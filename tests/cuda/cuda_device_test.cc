// The conformance suite on CUDA devices; and kernels with a thread of the host for each thread of a team, so that
// ThreadSanitizer sees a missing barrier, against the same kernels in a loop.
#include "tests/cuda/support.h"
#include "tests/devices/conformance.h"
#include "tests/ops/cases.h"
#include "tests/sanitized.h"

namespace windrow::testing {
namespace {

using fake::Order;

template <Order order, unsigned seed = 1, cuda::Levels levels = cuda::Levels::launches, bool graphs = false>
DeviceUnderTest make(Engine& engine, std::size_t capacity) {
  if (!fake::in_use()) fake::reset({.order = order, .seed = seed});  // a test may have two engines
  const cuda::OpenDevice opened =
      cuda::open_device(engine, 0, {.memory_limit = capacity, .levels = levels, .graphs = graphs});
  return {opened.device, opened.copy_in};
}

std::vector<DeviceCase> cases() {
  std::vector<DeviceCase> all = {{"random", Policy::pool, 2, make<Order::random, 5>},
                                 {"lazy", Policy::pool, 2, make<Order::lazy>}};
  for (const Setup& setup : every_setup) {
    if (takes_part(setup)) all.push_back({"eager", setup.policy, setup.workers, make<Order::eager>});
  }
  return all;
}

std::vector<DeviceCase> cases_of_kernels() {
  return {{"random", Policy::pool, 2, make<Order::random, 5>}, {"eager", Policy::serial, 1, make<Order::eager>}};
}

std::vector<DeviceCase> few_cases() {
  const DeviceCase together = {"together", Policy::pool, 2, make<Order::random, 7, cuda::Levels::together>};
  if (sanitized) return {together};  // they take long
  return {together,
          {"groups", Policy::pool, 2, make<Order::random, 9, cuda::Levels::groups>},
          {"graphs", Policy::pool, 2, make<Order::random, 8, cuda::Levels::automatic, true>},
          {"random", Policy::pool, 2, make<Order::random, 5>},
          {"eager", Policy::pool, 2, make<Order::eager>},
          {"lazy", Policy::pool, 2, make<Order::lazy>}};
}

INSTANTIATE_TEST_SUITE_P(Cuda, OnDevice, ::testing::ValuesIn(cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, OnDeviceInFull, ::testing::ValuesIn(few_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, KernelsOnDevice, ::testing::ValuesIn(cases_of_kernels()), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, OnSmallDevice, ::testing::ValuesIn(cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, OnCheckedDevice, ::testing::ValuesIn(cases()), case_name);

std::vector<std::vector<float>> results(fake::Threads threads) {
  fake::reset({.threads = threads});
  Engine engine({.policy = Policy::serial});
  const Device device = cuda::open_device(engine, 0).device;
  std::vector<std::vector<float>> all;
  for (const Operator* op : op::all()) {
    std::mt19937 random(first_seed());
    const Application c = random_case(*op, thread_sanitized ? 10 : 40, random);
    Operands operands = Applied(device, c, Applied::Form::whole).made;
    operands.write = Write::add;
    const Type type = infer(*op, c.signature);
    const auto half = [&] { return filled(device, type.rows.number(), type.width, 0.5f); };
    while (operands.states.size() < op->states) operands.states.push_back(half());
    const Tensor out = half();
    apply(device, *op, operands, out);
    std::vector<float>& values = all.emplace_back(out.get());
    for (const Tensor& state : operands.states) {
      const std::vector<float> more = state.get();
      values.insert(values.end(), more.begin(), more.end());
    }
  }
  return all;
}

TEST(CudaKernels, GiveTheSameBitsWithRealThreads) {
  const auto expected = results(fake::Threads::loop), found = results(fake::Threads::real);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(found[i], expected[i]) << op::all()[i]->name.text() << ", seed " << first_seed();
  }
}

}  // namespace
}  // namespace windrow::testing
