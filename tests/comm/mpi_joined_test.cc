// Groups of processes whose program has started MPI itself, and goes on calling it. Every process that mpirun has
// started runs this.
#include <gtest/gtest.h>
#include <mpi.h>

#include <optional>

#include "tests/engine/support.h"
#include "windrow/comm/mpi.h"

namespace windrow::testing {
namespace {

float sum_of(const Communicator& member, float own) {
  const Tensor x(member.device(), 1, 1);
  x.set({own});
  member.all_reduce(x);
  return x.get().front();
}

int own_sum(MPI_Comm comm, int own) {
  int sum = 0;
  MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, comm);
  return sum;
}

TEST(JoinedMpi, ServesAllProcessesBesideTheProgram) {
  Engine engine({.workers = 2});
  for (int time = 0; time < 2; ++time) {  // a program that has started MPI may make several, one after the other
    MpiWorld world({.patience = 60s});
    const Communicator all = world.group(host_device(engine));
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(sum_of(all, 2), 2.0f * static_cast<float>(all.size()));
      EXPECT_EQ(own_sum(MPI_COMM_WORLD, 3), 3 * all.size());
    }
  }
  int ended = 0;
  MPI_Finalized(&ended);
  EXPECT_EQ(ended, 0);
}

TEST(JoinedMpi, ServesTheProcessesOfACommunicator) {
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
  int rank_in_half = 0, size_of_half = 0;
  MPI_Comm_rank(half, &rank_in_half);
  MPI_Comm_size(half, &size_of_half);
  std::optional<MpiWorld> world(std::in_place, MpiOptions{.patience = 60s, .communicator = &half});
  MPI_Comm_free(&half);
  EXPECT_EQ(world->rank(), rank_in_half);
  EXPECT_EQ(world->size(), size_of_half);
  Engine engine({.workers = 1});
  EXPECT_EQ(sum_of(world->group(host_device(engine)), 1), static_cast<float>(size_of_half));
  world.reset();
  EXPECT_EQ(own_sum(MPI_COMM_WORLD, 1), size);
}

}  // namespace
}  // namespace windrow::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  if (provided < MPI_THREAD_MULTIPLE) return 77;  // skipped: this library has no such level
  const int failed = RUN_ALL_TESTS();
  MPI_Finalize();
  return failed;
}
