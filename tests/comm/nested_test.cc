// Groups of groups. The processes are groups of threads here; tests/programs/members_test.cc has real ones.
#include <cmath>

#include "tests/comm/contract.h"
#include "tests/engine/support.h"
#include "windrow/comm/local.h"
#include "windrow/comm/mpi.h"

namespace windrow::testing {
namespace {

constexpr int nested_processes = 2, nested_each = 2;

/// As many groups of as many members, which are made at the same time, as in processes.
class NestedGroups {
 public:
  explicit NestedGroups(const EngineOptions& options)
      : engine(options), outer_(host_devices(engine, nested_processes)) {
    for (int process = 0; process < nested_processes; ++process) {
      threads_.emplace_back([this, process] {
        const LocalGroup inner(host_devices(engine, nested_each));
        std::vector<Communicator> members;
        for (int number = 0; number < nested_each; ++number) members.push_back(inner[number]);
        groups_[process] = std::make_unique<NestedGroup>(members, outer_[process]);
      });
    }
    join();
  }
  /// Calls body(member) for each member, in a thread of its own.
  void at_all(const std::function<void(const Communicator&)>& body) {
    for (const auto& group : groups_) {
      for (int number = 0; number < nested_each; ++number) {
        threads_.emplace_back([&body, member = (*group)[number]] { body(member); });
      }
    }
    join();
  }
  const NestedGroup& operator[](int process) const { return *groups_[process]; }

  Engine engine;

 private:
  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  const LocalGroup outer_;
  std::unique_ptr<NestedGroup> groups_[nested_processes];
  std::vector<std::thread> threads_;
};

std::vector<float> numbers_of(int rank) {
  std::vector<float> values;
  for (int i = 0; i < 600; ++i) values.push_back(std::sin(static_cast<float>(i * (rank + 1))) * 100.0f);
  return values;
}

class NestedCollectives : public ::testing::TestWithParam<Setup> {};
INSTANTIATE_TEST_SUITE_P(All, NestedCollectives, ::testing::ValuesIn(every_setup), setup_name);

TEST_P(NestedCollectives, HaveTheBitsOfOneGroupOfAllDevices) {
  constexpr int all = nested_processes * nested_each;
  for (const Combine combine : {Combine::sum, Combine::mean, Combine::max}) {
    Engine engine({.policy = GetParam().policy, .workers = GetParam().workers});
    const LocalGroup plain(host_devices(engine, all));
    std::vector<Tensor> tensors;
    for (int rank = 0; rank < all; ++rank) {
      tensors.emplace_back(plain[rank].device(), 6, 100);
      tensors.back().set(numbers_of(rank));
      plain[rank].all_reduce(tensors.back(), combine);
    }
    const std::vector<float> expected = tensors.front().get();
    NestedGroups nested({.policy = GetParam().policy, .workers = GetParam().workers});
    nested.at_all([&](const Communicator& member) {
      EXPECT_EQ(member.size(), all);
      const Tensor tensor(member.device(), 6, 100);
      tensor.set(numbers_of(member.rank()));
      member.all_reduce(tensor, combine);
      EXPECT_EQ(tensor.get(), expected) << "rank " << member.rank();
      const IntTensor count(member.device(), 1, 1);
      count.set({member.rank()});
      if (combine != Combine::mean) {
        member.all_reduce(count, combine);
        EXPECT_EQ(count.get().front(), combine == Combine::sum ? 6 : 3);
      }
      tensor.set(numbers_of(member.rank()));
      member.broadcast(std::span(&tensor, 1), nested_each);
      EXPECT_EQ(tensor.get(), numbers_of(nested_each));
    });
  }
}

TEST(NestedGroup, MeasuresCallsAndKeepsTheContract) {
  NestedGroups nested({.workers = 2});
  nested.at_all([&](const Communicator& member) {
    member.time_calls();
    const Tensor tensor = filled(member.device(), 1, 1, 1);
    member.all_reduce(tensor);
    EXPECT_EQ(tensor.get().front(), 4);
    member.barrier();
    EXPECT_GT(member.time_in_calls().count(), 0);
    expect_contract(member);
  });
}

TEST(NestedGroup, ExchangesOfUnequalCountsFailAtAllMembersAndLeaveLaterOnes) {
  NestedGroups groups({.workers = 2});
  const std::vector<std::int64_t> counts[] = {{1, 2, 1, 1}, {1, 0, 0, 0}, {3, 3, 2, 2}, {0, 0, 1, 1}, {1, 2, 3, 4}};
  for (const auto& unequal : counts) {
    groups.at_all([&](const Communicator& member) {
      const auto rank = static_cast<std::size_t>(member.rank());
      const std::vector<std::int64_t> own(static_cast<std::size_t>(unequal[rank]), 7);
      EXPECT_THROW(member.exchange(own), CommError) << "rank " << rank;
      EXPECT_EQ(member.exchange(std::vector<std::int64_t>{member.rank()}), (std::vector<std::int64_t>{0, 1, 2, 3}));
    });
  }
}

TEST(NestedGroup, AnAbortReachesAllMembersOfAllProcesses) {
  NestedGroups nested({.workers = 2});
  nested.at_all([&](const Communicator& member) {
    if (member.rank() == 3) return member.abort("rank 3 has had enough");
    const Tensor tensor = filled(member.device(), 1, 2, 1);
    member.all_reduce(tensor);
    expect_error_of(tensor, "rank 3 has had enough");
    EXPECT_THROW(member.exchange(std::vector<std::int64_t>{1}), AbortError);
  });
}

TEST(NestedGroup, RefusesWhatItDoesNotHave) {
  NestedGroups nested({.workers = 1});
  const Communicator& member = nested[0][1];
  const Tensor tensor = filled(member.device(), 4, 2, 1), all = filled(member.device(), 16, 2, 1);
  EXPECT_THROW(member.broadcast(std::span(&tensor, 1), 1), MisuseError);
  for (const Communicator* const each : {&nested[0][0], &member}) {
    EXPECT_THROW(each->broadcast(std::span(&tensor, 1), each->size()), MisuseError);
  }
  EXPECT_THROW(member.reduce(std::span(&tensor, 1), 0), MisuseError);
  EXPECT_THROW(member.all_gather(tensor, all), MisuseError);
  EXPECT_THROW(member.reduce_scatter(all, tensor), MisuseError);
  EXPECT_THROW(member.all_to_all(all, all), MisuseError);
  EXPECT_THROW(member.send(tensor, 0), MisuseError);
  EXPECT_THROW(nested[0][nested_each], MisuseError);
  Engine engine({.workers = 1});
  const LocalGroup outer(host_devices(engine, 2)), two(host_devices(engine, 2)), one(host_devices(engine, 1));
  std::thread other([&] { EXPECT_THROW(NestedGroup({two[0], two[1]}, outer[0]), CommError); });
  EXPECT_THROW(NestedGroup({one[0]}, outer[1]), CommError);
  other.join();
  const LocalGroup another(host_devices(engine, 2));
  for (const std::vector<Communicator>& part :
       {std::vector{two[0]}, std::vector{two[1], two[0]}, std::vector{two[0], another[1]}}) {
    std::thread process([&] { EXPECT_THROW(NestedGroup({one[0]}, outer[1]), CommError); });
    EXPECT_THROW(NestedGroup(part, outer[0]), MisuseError);
    process.join();
  }
}

}  // namespace
}  // namespace windrow::testing
