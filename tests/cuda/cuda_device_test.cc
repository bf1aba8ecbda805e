// The conformance suite on CUDA devices.
#include "tests/cuda/support.h"
#include "tests/devices/conformance.h"
#include "tests/sanitized.h"

namespace windrow::testing {
namespace {

DeviceUnderTest make(Engine& engine, std::size_t capacity, const fake::Options& options,
                     cuda::Levels levels = cuda::Levels::launches, bool graphs = false) {
  if (!fake::in_use()) fake::reset(options);  // a test may have two engines
  const cuda::OpenDevice opened =
      cuda::open_device(engine, 0, {.memory_limit = capacity, .levels = levels, .graphs = graphs});
  return {opened.device, opened.copy_in};
}
DeviceUnderTest make_eager(Engine& engine, std::size_t capacity) { return make(engine, capacity, {}); }
DeviceUnderTest make_random(Engine& engine, std::size_t capacity) {
  return make(engine, capacity, {.order = fake::Order::random, .seed = 5});
}
DeviceUnderTest make_lazy(Engine& engine, std::size_t capacity) {
  return make(engine, capacity, {.order = fake::Order::lazy});
}

DeviceUnderTest make_together(Engine& engine, std::size_t capacity) {
  return make(engine, capacity, {.order = fake::Order::random, .seed = 7}, cuda::Levels::together);
}

DeviceUnderTest make_graphs(Engine& engine, std::size_t capacity) {
  return make(engine, capacity, {.order = fake::Order::random, .seed = 8}, cuda::Levels::automatic, true);
}

std::vector<DeviceCase> cases() {
  std::vector<DeviceCase> all;
  for (const Setup& setup : every_setup) {
    if (setup.workers != 8) all.push_back({"eager", setup.policy, setup.workers, make_eager});
  }
  all.push_back({"random", Policy::pool, 2, make_random});
  all.push_back({"lazy", Policy::pool, 2, make_lazy});
  return all;
}

std::vector<DeviceCase> few_cases() {
  std::vector<DeviceCase> all = {{"together", Policy::pool, 2, make_together}};
  if (sanitized) return all;  // they take long
  all.push_back({"graphs", Policy::pool, 2, make_graphs});
  all.push_back({"random", Policy::pool, 2, make_random});
  all.push_back({"eager", Policy::pool, 2, make_eager});
  all.push_back({"lazy", Policy::pool, 2, make_lazy});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Cuda, OnDevice, ::testing::ValuesIn(cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, OnDeviceInFull, ::testing::ValuesIn(few_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, OnSmallDevice, ::testing::ValuesIn(cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, OnCheckedDevice, ::testing::ValuesIn(cases()), case_name);

}  // namespace
}  // namespace windrow::testing
