// Groups of processes: every process that mpirun has started runs all of these tests.
#include "windrow/comm/mpi.h"

#include <cmath>
#include <random>

#include "tests/comm/contract.h"
#include "tests/devices/simulated.h"
#include "tests/engine/support.h"
#include "tests/seed.h"
#include "windrow/comm/local.h"

namespace windrow::testing {
namespace {

using Floats = std::vector<float>;

MpiWorld& world() {
  static MpiWorld world({.patience = 60s, .window_bytes = 1000, .eager_bytes = 100});
  return world;
}

TEST(Mpi, ComputesWhatAPlainSimulationComputesWithEveryPolicy) {
  for (const auto& setup : every_setup) {
    Engine engine({.policy = setup.policy, .workers = setup.workers});
    const Communicator member = world().group(host_device(engine));
    for (unsigned seed = first_seed(); seed < first_seed() + 3; ++seed) push_random_collectives(member, seed, 60)();
  }
}

TEST(Mpi, CopiesTensorsOfADeviceToTheHostAndBack) {
  Engine engine({.workers = 2});
  const auto simulated = simulated_device(engine, {.seed = first_seed()});
  push_random_collectives(world().group(simulated.device), first_seed(), 60)();
}

TEST(Mpi, SumsHaveTheSameBitsAtAllMembersAndEachTime) {
  Engine engine({.workers = 2});
  const Communicator member = world().group(host_device(engine));
  for (const Index width : {20, 3000, 70000}) {
    for (const std::size_t part_bytes : {std::size_t{0}, std::size_t{4000}}) {
      for (const bool out_of_place : {false, true}) {
        std::vector<Floats> results;
        for (int time = 0; time < 3; ++time) {
          Floats values;
          for (Index i = 0; i < width; ++i)
            values.push_back(std::sin(static_cast<float>(i * (member.rank() + 1))) * 99);
          const Tensor x(member.device(), 1, width), to(member.device(), 1, width);
          x.set(std::move(values));
          if (out_of_place) member.all_reduce(x, to, Combine::mean, {.part_bytes = part_bytes});
          if (!out_of_place) member.all_reduce(x, Combine::mean, {.part_bytes = part_bytes});
          results.push_back((out_of_place ? to : x).get());
          EXPECT_EQ(results.back(), results.front());
        }
        const Floats& found = results.front();
        const auto bits = fingerprint({reinterpret_cast<const char*>(found.data()), found.size() * sizeof(float)});
        const auto all = member.exchange(std::vector{bits});
        EXPECT_EQ(all, std::vector<std::int64_t>(all.size(), bits)) << width << ", " << part_bytes;
      }
    }
  }
}

TEST(Mpi, KeepsTheContract) {
  Engine engine({.workers = 2});
  expect_contract(world().group(host_device(engine)));
}

TEST(Mpi, GroupsOfAProcessDoNotDisturbEachOther) {
  Engine engine({.workers = 2});
  const Communicator one = world().group(host_device(engine)), two = world().group(host_device(engine));
  const auto check_one = push_random_collectives(one, 1, 60);
  const auto check_two = push_random_collectives(two, 2, 60);
  check_two();
  check_one();
}

TEST(Mpi, RefusesMoreElementsThanMpiCountsAndSaysWhatHelps) {
  Engine engine({.workers = 1});
  const Communicator member = world().group(host_device(engine));
  const Tensor large(member.device(), 1 << 15, 1 << 16), blocks(member.device(), member.size() << 15, 1 << 16);
  const std::string text = "2147483648 elements at a time; expected at most 2147483647, as MPI counts";
  EXPECT_EQ(error_of<MisuseError>([&] { member.all_reduce(large); }),
            "all_reduce: " + text + ", or parts of so many (CollectiveOptions::part_bytes)");
  EXPECT_EQ(error_of<MisuseError>([&] { member.broadcast(std::span(&large, 1), 0); }),
            "broadcast: " + text + ", or parts of so many (CollectiveOptions::part_bytes)");
  EXPECT_THROW(member.all_gather(large, blocks), MisuseError);
  if (member.size() > 1) {
    EXPECT_EQ(error_of<MisuseError>([&] { member.send(large, member.rank() == 0 ? 1 : 0); }), "send: " + text);
  }
  const Tensor x = filled(member.device(), 1, 1, 1);
  member.all_reduce(x);  // the others count as not made
  EXPECT_EQ(x.get(), Floats(1, static_cast<float>(member.size())));
}

/// Members begin parts in one order, or MPI would add up parts of different calls.
TEST(Mpi, CallsWithPrioritiesAndPartsGiveTheirSumsWhateverBecomesReadyWhen) {
  constexpr int calls = 30, rounds = 2;
  for (const auto& setup : every_setup) {
    Engine engine({.policy = setup.policy, .workers = setup.workers});
    const Communicator member = world().group(host_device(engine));
    std::mt19937 same(first_seed()), own(first_seed() + 1 + static_cast<unsigned>(member.rank()));
    std::vector<Tensor> tensors;
    for (int call = 0; call < calls; ++call) {
      tensors.push_back(filled(member.device(), 1 + static_cast<Index>(same() % 20), 1 + same() % 100, 1));
    }
    for (int round = 0; round < rounds; ++round) {
      for (const Tensor& tensor : tensors) {
        const auto pause = std::chrono::microseconds(own() % 8 == 0 ? own() % 300 : 0);
        engine.push([pause] { std::this_thread::sleep_for(pause); }, {mutate(tensor.var())}, {.name = "ready"});
        const CollectiveOptions options{.priority = static_cast<int>(same() % 5),
                                        .part_bytes = same() % 10 == 0 ? ~std::size_t{3} : 4 * (same() % 300)};
        member.all_reduce(tensor, Combine::sum, options);
      }
    }
    const auto sum = static_cast<float>(std::pow(member.size(), rounds));
    for (const Tensor& tensor : tensors) {
      ASSERT_EQ(tensor.get(), Floats(static_cast<std::size_t>(tensor.rows() * tensor.width()), sum));
    }
  }
}

TEST(Mpi, CallsOfDifferentPriorityFailAtAllMembersByName) {
  if (world().size() < 2) GTEST_SKIP() << "one member";
  Engine engine({.workers = 2});
  const Communicator member = world().group(host_device(engine));
  const Tensor x = filled(member.device(), 1, 1, 1);
  member.all_reduce(x, Combine::sum, {.priority = member.rank() == 0 ? 3 : 4});
  expect_error_of(x, "rank 0 calls all_reduce (sum of float32 1 x 1, priority 3)");
  EXPECT_THROW(member.all_reduce(x, Combine::sum, {.part_bytes = 6}), MisuseError);
}

}  // namespace
}  // namespace windrow::testing
