// Groups of processes on a fake of MPI: what is combined, and what is freed.
#include <gtest/gtest.h>

#include <barrier>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "tests/comm/fake_mpi.h"
#include "tests/comm/random_collectives.h"
#include "tests/seed.h"
#include "windrow/comm/mpi.h"
#include "windrow/engine/engine.h"

namespace windrow::testing {
namespace {

using namespace std::chrono_literals;

TEST(FakeMpiGroups, HaveNaNForTheMaximumWhereAMemberHasNaN) {
  ::setenv("WINDROW_MPI_PLUGIN", WINDROW_FAKE_MPI, 1);
  for (const std::size_t eager : {0, 64}) {
    const FakeMpiJob job(3, first_seed());
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        Engine engine({.workers = 1});
        MpiWorld world({.patience = 60s, .eager_bytes = eager});
        push_maxima_of_nan(world.group(host_device(engine)))();
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(job.mismatch(), "");
  }
}

// The fake notes calls of a group that was freed, and messages that are left in one.
TEST(FakeMpiGroups, WhoseMembersHaveAllEndedAreFreed) {
  ::setenv("WINDROW_MPI_PLUGIN", WINDROW_FAKE_MPI, 1);
  const FakeMpiJob job(3, first_seed());
  constexpr int groups_of_the_lasting_one = 8;  // of MPI
  std::vector<std::thread> threads;
  std::barrier all(3);
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      Engine engine({.workers = 1});
      MpiWorld world({.patience = 60s});
      const Device device = host_device(engine);
      const Communicator lasting = world.group(device);
      for (int round = 0; round < 12; ++round) {
        const Communicator member = world.group(device);
        std::function<void()> check = [] {};
        if (round % 2 == 0) check = push_random_collectives(member, first_seed() + static_cast<unsigned>(round), 20);
        if (round % 3 == 0) std::this_thread::sleep_for(2ms * world.rank());
        check();
      }
      {
        // Calls that are under way when their member ends.
        const Tensor x = filled(device, 1, 10, 1);
        const Communicator member = world.group(device);
        engine.push([] { std::this_thread::sleep_for(20ms); }, {mutate(x.var())});
        member.all_reduce(x);
      }
      for (int look = 0; job.kept_groups() > 3 * groups_of_the_lasting_one && look < 3000; ++look) {
        std::this_thread::sleep_for(10ms);
      }
      EXPECT_EQ(job.kept_groups(), 3 * groups_of_the_lasting_one);
      all.arrive_and_wait();
      lasting.exchange({});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(job.mismatch(), "");
  EXPECT_TRUE(job.finalized());
}

}  // namespace
}  // namespace windrow::testing
