// What devices and minibatches ask of the host's memory, counted.
#include <gtest/gtest.h>

#include <array>

#include "tests/engine/faults.h"
#include "windrow/batching/runner.h"

namespace windrow {
namespace {

using testing::faults::asked;

void no_kernel(const KernelCall<float>&) {}

TEST(Devices, AreCopiedWithoutAnAllocation) {
  Engine engine;
  Device host = host_device(engine);
  const auto before = asked().calls;
  const Device copy = host;
  EXPECT_EQ(asked().calls, before);
  host.kernels.add(op::add, no_kernel);
  EXPECT_EQ(host.kernels.find(op::add), no_kernel);
  EXPECT_NE(copy.kernels.find(op::add), no_kernel) << "a copy is a value of its own";
  EXPECT_EQ(host.kernels.find(op::sub), copy.kernels.find(op::sub));
}

}  // namespace
}  // namespace windrow
