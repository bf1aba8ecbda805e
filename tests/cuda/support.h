// What the tests of CUDA devices share.
#pragma once

#include <cstdlib>

#include "tests/cuda/fake/fake.h"
#include "tests/engine/support.h"
#include "tests/filled.h"
#include "windrow/cuda/device.h"
#include "windrow/ops/apply.h"

namespace windrow::testing {

/// Makes the library open the plug-in that is linked with the fake runtime.
inline const bool uses_fake_plugin = ::setenv("WINDROW_CUDA_PLUGIN", WINDROW_FAKE_PLUGIN, 1) == 0;
/// Compiled kernels are kept in the build folder.
inline const bool keeps_code = ::setenv("WINDROW_CUDA_CACHE", WINDROW_FAKE_CACHE, 1) == 0;

/// Fails each test after which the fake runtime has something to report.
class ReportsAreFailures final : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo&) override {
    for (const std::string& report : fake::reports()) ADD_FAILURE() << report;
    fake::reset();
  }
};
inline const bool reports_are_failures =
    (::testing::UnitTest::GetInstance()->listeners().Append(new ReportsAreFailures), true);

/// Tests of a device of the fake runtime, which open() begins.
class OnFakeDevice : public ::testing::Test {
 protected:
  /// A fake runtime of its own, a new engine, and its first device.
  const Device& open(const fake::Options& runtime = {}, const cuda::DeviceOptions& options = {}) {
    opened.reset();
    engine.reset();
    fake::reset(runtime);
    engine.emplace(EngineOptions{.policy = Policy::pool, .workers = 2});
    return opened.emplace(cuda::open_device(*engine, 0, options)).device;
  }

  std::optional<Engine> engine;
  std::optional<cuda::OpenDevice> opened;
};

}  // namespace windrow::testing
