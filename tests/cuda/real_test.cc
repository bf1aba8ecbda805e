// The conformance suite on a real CUDA device, and random programs over its streams. Returns 77 if there is none.
#include <cstdio>

#include "tests/cuda/random_programs.h"
#include "tests/devices/conformance.h"
#include "tests/seed.h"

namespace windrow::testing {
namespace {

using cuda::Levels;

template <Levels levels, bool graphs = false>
DeviceUnderTest make(Engine& engine, std::size_t capacity) {
  const cuda::OpenDevice opened =
      cuda::open_device(engine, 0, {.memory_limit = capacity, .levels = levels, .graphs = graphs});
  return {opened.device, opened.copy_in};
}

std::vector<DeviceCase> cases() {
  std::vector<DeviceCase> all;
  for (const Policy policy : {Policy::serial, Policy::pool, Policy::per_device, Policy::chaos}) {
    all.push_back({"cuda", policy, 2, make<Levels::automatic>});
  }
  return all;
}
std::vector<DeviceCase> few_cases() {
  return {{"launches", Policy::pool, 2, make<Levels::launches>},
          {"together", Policy::pool, 2, make<Levels::together>},
          {"groups", Policy::pool, 2, make<Levels::groups>},
          {"graphs", Policy::pool, 2, make<Levels::automatic, true>}};
}

INSTANTIATE_TEST_SUITE_P(Real, OnDevice, ::testing::ValuesIn(cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Real, OnDeviceInFull, ::testing::ValuesIn(few_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Real, KernelsOnDevice, ::testing::ValuesIn(few_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Real, OnSmallDevice, ::testing::ValuesIn(cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Real, OnCheckedDevice, ::testing::ValuesIn(cases()), case_name);

TEST(RealCudaPrograms, GiveTheResultOfTheSerialOnes) {
  const std::uint64_t programs = 2000, first = first_seed();
  const int devices = std::min(2, static_cast<int>(cuda::list_devices().size()));
  for (const Policy policy : {Policy::serial, Policy::pool, Policy::per_device, Policy::chaos}) {
    Engine engine({.policy = policy, .workers = 2});
    RandomPrograms random(engine, devices);
    for (std::uint64_t i = 0; i < programs; ++i) {
      ASSERT_TRUE(random.run(first + i)) << "seed " << first + i << ", policy " << to_string(policy);
    }
  }
}

}  // namespace
}  // namespace windrow::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  try {
    for (const windrow::cuda::DeviceInfo& info : windrow::cuda::list_devices()) {
      std::printf("cuda:%d: %s\n", info.number, info.name.c_str());
    }
  } catch (const windrow::Error& e) {
    std::printf("skipped: %s\n", e.what());
    return 77;
  }
  return RUN_ALL_TESTS();
}
