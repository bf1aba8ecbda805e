// The conformance suite on CUDA devices.
#include "tests/cuda/support.h"
#include "tests/devices/conformance.h"
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
    if (setup.workers != 8) all.push_back({"eager", setup.policy, setup.workers, make<Order::eager>});
  }
  return all;
}

std::vector<DeviceCase> few_cases() {
  const DeviceCase together = {"together", Policy::pool, 2, make<Order::random, 7, cuda::Levels::together>};
  if (sanitized) return {together};  // they take long
  return {together,
          {"graphs", Policy::pool, 2, make<Order::random, 8, cuda::Levels::automatic, true>},
          {"random", Policy::pool, 2, make<Order::random, 5>},
          {"eager", Policy::pool, 2, make<Order::eager>},
          {"lazy", Policy::pool, 2, make<Order::lazy>}};
}

INSTANTIATE_TEST_SUITE_P(Cuda, OnDevice, ::testing::ValuesIn(cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, OnDeviceInFull, ::testing::ValuesIn(few_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, OnSmallDevice, ::testing::ValuesIn(cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, OnCheckedDevice, ::testing::ValuesIn(cases()), case_name);

}  // namespace
}  // namespace windrow::testing
