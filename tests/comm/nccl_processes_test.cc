// Groups by NCCL of real processes: every process that mpirun has started runs these tests, with a device of its own on
// the fake runtime. WINDROW_FAKE_NCCL_FOLDER names the folder in which the fake NCCL exchanges tensors.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "tests/comm/nccl_support.h"
#include "tests/engine/support.h"
#include "tests/seed.h"
#include "windrow/comm/mpi.h"

namespace windrow::testing {
namespace {

MpiWorld& nccl_world() {
  static MpiWorld world({.patience = 60s});
  return world;
}

/// Of groups that have ended at all processes.
void remove_files(const Communicator& all) {
  all.barrier();
  if (all.rank() != 0) return;
  for (const auto& file : std::filesystem::directory_iterator(std::getenv("WINDROW_FAKE_NCCL_FOLDER"))) {
    std::filesystem::remove(file);
  }
}

TEST(NcclProcesses, ComputeWhatAPlainSimulationComputes) {
  MpiWorld& world = nccl_world();
  fake::reset({.devices = world.size(), .memory = std::size_t{32} << 20});
  Engine engine({.workers = 2});
  const Device host = host_device(engine);
  const Communicator all = world.group(host);
  const Device device = cuda::open_device(engine, world.rank()).device;
  {
    const NcclGroup group(device, world.group(host), world.group(host));
    for (unsigned seed = first_seed(); seed < first_seed() + 3; ++seed) {
      push_random_collectives(group[world.rank()], seed, 60)();
    }
  }
  remove_files(all);
}

TEST(NcclProcesses, MoveBlocksFromEachToEach) {
  MpiWorld& world = nccl_world();
  fake::reset({.devices = world.size(), .memory = std::size_t{32} << 20});
  Engine engine({.workers = 2});
  const Device host = host_device(engine);
  const int size = world.size(), rank = world.rank();
  const Communicator all = world.group(host);
  std::optional<NcclGroup> group(std::in_place, cuda::open_device(engine, rank).device, world.group(host),
                                 world.group(host));
  const Tensor from((*group)[rank].device(), size, 3), to((*group)[rank].device(), size, 3);
  std::vector<float> sent, expected;
  for (int peer = 0; peer < size; ++peer) {
    for (int i = 0; i < 3; ++i) {
      sent.push_back(static_cast<float>(100 * rank + 10 * peer + i));
      expected.push_back(static_cast<float>(100 * peer + 10 * rank + i));
    }
  }
  from.set(sent);
  (*group)[rank].all_to_all(from, to);
  EXPECT_EQ(to.get(), expected);
  group.reset();
  remove_files(all);
}

}  // namespace
}  // namespace windrow::testing
