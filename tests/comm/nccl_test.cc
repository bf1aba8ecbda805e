// Groups by NCCL, of devices of one process and of several. Start here; contract.h has the oracle.
#include "windrow/comm/nccl.h"

#include "tests/comm/contract.h"
#include "tests/comm/nccl_support.h"
#include "tests/engine/support.h"
#include "tests/seed.h"
#include "windrow/comm/local.h"

namespace windrow::testing {
namespace {

using fake::Order;
using Floats = std::vector<float>;

class NcclCollectives : public ::testing::TestWithParam<Order> {};
INSTANTIATE_TEST_SUITE_P(All, NcclCollectives, ::testing::Values(Order::eager, Order::random, Order::lazy));

TEST_P(NcclCollectives, ComputeWhatAPlainSimulationComputes) {
  unsigned seed = first_seed();
  for (const auto& setup : every_setup) {
    const int ranks = 1 + static_cast<int>(seed % 4);
    fake::reset({.devices = ranks, .memory = std::size_t{32} << 20, .order = GetParam(), .seed = seed});
    Engine engine({.policy = setup.policy, .workers = setup.workers});
    const NcclGroup group(cuda_devices(engine, ranks));
    std::vector<std::function<void()>> checks;
    for (int rank = 0; rank < ranks; ++rank) checks.push_back(push_random_collectives(group[rank], seed, 30));
    for (const auto& check : checks) check();
    ASSERT_TRUE(fake::reports().empty()) << "seed " << seed << ": " << fake::reports()[0];
    ++seed;
  }
}

/// Runs the body in so many processes, which threads play, each with an engine and a device of its own. The limit is
/// that of messages and exchange().
void run_processes(int count, LocalGroupOptions limit, const std::function<void(const Communicator&)>& body) {
  Engine host({.workers = 1});
  std::optional<LocalGroup> exchange(std::in_place, host_devices(host, count), limit),
      announcements(host_devices(host, count));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([rank, &body, first = (*exchange)[rank], second = (*announcements)[rank]]() mutable {
      Engine engine({.workers = 1});
      std::optional<Communicator> to_exchange(std::move(first)), to_announce(std::move(second));
      const Device device = cuda::open_device(engine, rank).device;
      const NcclGroup group(device, *to_exchange, *to_announce);
      to_exchange.reset();
      to_announce.reset();
      body(group[rank]);
    });
  }
  exchange.reset();
  announcements.reset();
  for (std::thread& thread : threads) thread.join();
}

TEST_P(NcclCollectives, OfProcessesComputeTheSameAndKeepTheContract) {
  for (const int ranks : {1, 2, 3}) {
    fake::reset({.devices = ranks, .memory = std::size_t{32} << 20, .order = GetParam()});
    run_processes(ranks, {}, [](const Communicator& member) {
      push_random_collectives(member, first_seed(), 60)();
      expect_contract(member);
    });
  }
}

TEST(NcclProcesses, BreakAtAllMembersWhenAMessageTakesTooLong) {
  fake::reset({.devices = 2});
  run_processes(2, {.patience = 200ms}, [](const Communicator& member) {
    const Tensor x = filled(member.device(), 2, 3, 1), y = filled(member.device(), 2, 3, 1);
    if (member.rank() == 0) {
      member.recv(x, 1);
      expect_error_of(x, "rank 1 has not called send (float32 2 x 3, to rank 0)");
    }
    member.all_reduce(y);  // at rank 1, before the group breaks
    expect_error_of(y, "rank 1 has not called send");
    EXPECT_THROW(member.exchange({}), CommError);
  });
}

TEST(NcclProcesses, MessagesEndWhenTheyBreak) {
  for (const bool aborts : {true, false}) {
    fake::reset({.devices = 2});
    run_processes(2, {}, [&](const Communicator& member) {
      const Tensor x = filled(member.device(), 2, 3, 1), y = filled(member.device(), 2, 3, 1);
      if (member.rank() == 0) member.recv(x, 1);
      member.exchange({});
      if (member.rank() == 1) {
        if (aborts) {
          member.abort("the test says so");
        } else {
          fake::inject_nccl(fake::NcclFault::late_error, 1, "ncclAllReduce");
        }
      }
      member.all_reduce(y);
      EXPECT_EQ(how_fails(y), aborts ? Fails::by_abort : Fails::here) << error_of(y);
      if (member.rank() == 0) {
        EXPECT_EQ(how_fails(x), aborts ? Fails::by_abort : Fails::here) << error_of(x);
      }
      const Tensor late = filled(member.device(), 2, 3, 1);
      member.recv(late, 1 - member.rank());
      EXPECT_NE(how_fails(late), Fails::no);
    });
    EXPECT_FALSE(fake::forget_nccl_faults());
  }
}

TEST(NcclProcesses, HearOfAMemberThatEnds) {
  fake::reset({.devices = 2});
  run_processes(2, {}, [](const Communicator& member) {
    if (member.rank() == 1) return;
    const Tensor x = filled(member.device(), 2, 4, 1);
    member.all_reduce(x);
    expect_error_of(x, "rank 1 has ended");
    const Tensor message(member.device(), 2, 4);
    member.recv(message, 1);
    expect_error_of(message, "rank 1 has ended");
    EXPECT_THROW(member.exchange({}), CommError);
  });
}

class Nccl : public ::testing::Test {
 protected:
  Nccl() { fake::reset({.devices = 3}); }
  Engine engine{{.workers = 2}};
};

TEST_F(Nccl, TensorsOfDevicesStayThere) {
  const NcclGroup group(cuda_devices(engine, 2));
  std::vector<Tensor> tensors;
  for (int rank = 0; rank < 2; ++rank) tensors.push_back(filled(group[rank].device(), 3, 8, 1));
  engine.wait_all();
  const auto copies = fake::counters().copies;
  for (int call = 0; call < 5; ++call) {
    for (int rank = 0; rank < 2; ++rank) group[rank].all_reduce(tensors[static_cast<std::size_t>(rank)]);
  }
  engine.wait_all();
  EXPECT_EQ(fake::counters().copies, copies);
  EXPECT_EQ(tensors[0].get(), Floats(24, 32));
}

/// NCCL loses NaN, as the fake does.
TEST_F(Nccl, KeepsTheContract) {
  for (const auto& setup : every_setup) {
    Engine own({.policy = setup.policy, .workers = setup.workers});
    at_all_members(NcclGroup(cuda_devices(own, 3)), expect_contract);
  }
}

TEST_F(Nccl, CombinesViewsWholeNumbersAndTensorsOfTheHost) {
  const NcclGroup group(cuda_devices(engine, 2));
  const Device host = host_device(engine);
  std::vector<Tensor> wide, of_host;
  std::vector<IntTensor> counts, all;
  for (int rank = 0; rank < 2; ++rank) {
    const Device& device = group[rank].device();
    wide.push_back(filled(device, 2, 5, 1));
    of_host.push_back(filled(host, 2, 64, static_cast<float>(rank)));
    counts.emplace_back(host, 1, 2);
    counts.back().set({rank, -rank});
    all.emplace_back(device, 2, 2);
    group[rank].all_reduce(wide.back().column_range(1, 4), Combine::mean);
    group[rank].all_reduce(wide.back().column_range(2, 3));
    group[rank].all_reduce(of_host.back().column_range(0, 63));
    group[rank].all_gather(counts.back(), all.back());
    group[rank].all_reduce(counts.back(), Combine::max);
  }
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(wide[rank].get(), (Floats{1, 1, 2, 1, 1, 1, 1, 2, 1, 1}));
    Floats expected(128, 1);
    expected[63] = expected[127] = static_cast<float>(rank);
    EXPECT_EQ(of_host[rank].get(), expected);
    EXPECT_EQ(counts[rank].get(), (std::vector<std::int32_t>{1, 0}));
    EXPECT_EQ(all[rank].get(), (std::vector<std::int32_t>{0, 0, 1, -1}));
  }
}

TEST_F(Nccl, NothingHangsIfAMemberEndsOrAborts) {
  expect_ends_to_be_heard([&] { return NcclGroup(cuda_devices(engine, 2)); });
}

TEST_F(Nccl, RefusesMisuseAtTheCall) {
  EXPECT_EQ(NcclGroup::unavailable(), "");
  EXPECT_THROW(NcclGroup({}), MisuseError);
  EXPECT_THROW(NcclGroup({host_device(engine)}), MisuseError);
  const std::vector<Device> devices = cuda_devices(engine, 2);
  EXPECT_THROW(NcclGroup({devices[0], cuda::open_device(engine, 0).device}), MisuseError);
  const NcclGroup group(devices);
  EXPECT_THROW(group[2], MisuseError);
  EXPECT_THROW(group[0].all_reduce(filled(devices[1], 1, 4, 1)), MisuseError);
  EXPECT_THROW(group[0].all_reduce(filled(cuda::open_device(engine, 0).device, 1, 4, 1)), MisuseError);
  // None of these counts as a call.
  const Tensor x = filled(devices[0], 1, 4, 1), y = filled(devices[1], 1, 4, 1);
  group[0].all_reduce(x);
  group[1].all_reduce(y);
  EXPECT_EQ(x.get(), Floats(4, 2));
}

}  // namespace
}  // namespace windrow::testing
