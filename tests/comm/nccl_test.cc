// Groups by NCCL, of devices of one process and of several. Start here; contract.h has the oracle.
#include "tests/cuda/fake/nccl.h"

#include "contract.h"
#include "tests/cuda/support.h"
#include "tests/engine/support.h"
#include "tests/seed.h"
#include "windrow/comm/local.h"
#include "windrow/comm/nccl.h"

namespace windrow::testing {
namespace {

/// Makes the library open the plug-in that is linked with the fake NCCL.
[[maybe_unused]] const bool uses_fake_nccl = ::setenv("WINDROW_NCCL_PLUGIN", WINDROW_FAKE_NCCL, 1) == 0;

std::vector<Device> cuda_devices(Engine& engine, int count) {
  std::vector<Device> devices;
  for (int number = 0; number < count; ++number) devices.push_back(cuda::open_device(engine, number).device);
  return devices;
}

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

// What members of a group by NCCL see when its calls, or its work, fail or do not end.

using fake::NcclFault;

constexpr NcclOptions patient{.patience = 20s, .answer = 20s}, impatient{.patience = 60ms, .answer = 20ms};

/// What a member of two sees of a program with calls of all kinds: "" if all values are right, otherwise the error.
struct Outcome {
  std::string made;  // why there is no group
  std::vector<std::string> members;
  bool good() const { return made.empty() && members[0].empty() && members[1].empty(); }
};

std::string checked(const Tensor& tensor, const Floats& expected) {
  const std::string error = error_of(tensor);
  if (error.empty()) {
    EXPECT_EQ(tensor.get(), expected);
  }
  return error;
}

Outcome run_program(const NcclOptions& options) {
  Engine engine({.workers = 2});
  const std::vector<Device> devices = cuda_devices(engine, 2);
  Outcome outcome{"", {"", ""}};
  try {
    const NcclGroup group(devices, options);
    std::vector<Tensor> x, large, small, to, message;
    for (int rank = 0; rank < 2; ++rank) {
      const Communicator& member = group[rank];
      x.push_back(filled(devices[static_cast<std::size_t>(rank)], 2, 3, 1));  // needs packing
      large.push_back(filled(member.device(), 2, 4, 1));
      small.emplace_back(member.device(), 1, 4);
      to.emplace_back(member.device(), 2, 4);
      message.push_back(filled(member.device(), 1, 4, static_cast<float>(rank)));
      member.all_reduce(x.back());
      member.broadcast(std::span(&x.back(), 1), 1);
      member.reduce(std::span(&x.back(), 1), 0);
      member.reduce_scatter(large.back(), small.back());
      member.all_gather(small.back(), large.back());
      member.all_to_all(large.back(), to.back());
      if (rank == 0) {
        member.send(message.back(), 1);
      } else {
        member.recv(message.back(), 0);
      }
    }
    for (std::size_t rank = 0; rank < 2; ++rank) {
      for (const std::string& error : {checked(x[rank], Floats(6, rank == 0 ? 4 : 2)), checked(to[rank], Floats(8, 2)),
                                       checked(message[rank], Floats(4, 0))}) {
        if (outcome.members[rank].empty()) outcome.members[rank] = error;
      }
    }
    fake::release_nccl();  // otherwise devices that free memory wait for the work
  } catch (const CommError& error) {
    outcome.made = error.what();
    fake::release_nccl();
  }
  return outcome;
}

struct Injected {
  NcclFault fault;
  std::uint64_t call;
  std::string function;
};

/// The same with faults: again, where a slow machine lets the group break before they are met.
Outcome run_program(const NcclOptions& options, const std::vector<Injected>& faults) {
  for (int turn = 0;; ++turn) {
    for (const Injected& injected : faults) fake::inject_nccl(injected.fault, injected.call, injected.function);
    Outcome outcome = run_program(options);
    if (!fake::forget_nccl_faults() || turn == 20) return outcome;
  }
}

const std::vector<std::string> while_calls_run = {
    "ncclGroupStart", "ncclCommInitRankConfig", "ncclGroupEnd",  "ncclCommGetAsyncError", "ncclAllReduce",
    "ncclReduce",     "ncclBroadcast",          "ncclAllGather", "ncclReduceScatter",     "ncclSend",
    "ncclRecv"};

class NcclFailures : public ::testing::Test {
 protected:
  NcclFailures() { fake::reset({.devices = 2, .memory = std::size_t{32} << 20}); }
  ~NcclFailures() override {
    fake::release_nccl();
    EXPECT_FALSE(fake::forget_nccl_faults()) << "a fault was not met";
  }
};

TEST_F(NcclFailures, OfEachCallReachAllMembersInTime) {
  for (const std::string& function : while_calls_run) {
    for (const std::uint64_t call : {1, 2, 3}) {
      for (const NcclFault fault : {NcclFault::error, NcclFault::late_error}) {
        const bool early = function == "ncclGroupStart" || function == "ncclCommInitRankConfig";
        if (call == 1 && early && fault == NcclFault::late_error) continue;  // no communicator exists
        // Each member calls these once.
        if (call == 3 && !function.starts_with("ncclGroup") && function != "ncclCommGetAsyncError") continue;
        const Outcome outcome = run_program(patient, {{fault, call, function}});
        const std::string what = function + ", call " + std::to_string(call);
        const bool late = fault == NcclFault::late_error;
        const std::string expected = late ? "remote process exited" : "unhandled system error";
        if (!outcome.made.empty()) {
          EXPECT_NE(outcome.made.find(expected), std::string::npos) << what << ": " << outcome.made;
          continue;
        }
        EXPECT_FALSE(outcome.good()) << what << (late ? ", later" : "");
        for (const std::string& member : outcome.members) {
          EXPECT_NE(member.find(expected), std::string::npos) << what << ": " << member;
        }
      }
    }
  }
}

TEST_F(NcclFailures, CallsThatDoNotReturnEndInTime) {
  for (const std::string& function : while_calls_run) {
    const Outcome outcome = run_program(impatient, {{NcclFault::hang, 1, function}});
    if (!outcome.made.empty()) {
      EXPECT_NE(outcome.made.find("has not connected the members within 60 ms"), std::string::npos) << outcome.made;
    } else {
      for (const std::string& member : outcome.members) {
        EXPECT_NE(member.find("within 60 ms"), std::string::npos) << function << ": " << member;
      }
    }
  }
}

TEST_F(NcclFailures, WorkThatDoesNotEndIsAborted) {
  const NcclOptions options{.patience = 60ms, .answer = 20s};
  const Outcome outcome = run_program(options, {{NcclFault::lost, 1, "ncclAllReduce"}});
  for (const std::string& member : outcome.members) {
    EXPECT_NE(member.find("within 60 ms"), std::string::npos) << member;
    EXPECT_EQ(member.find("did not abort"), std::string::npos) << member;
  }
  EXPECT_EQ(fake::nccl_communicators(), 0);
}

TEST_F(NcclFailures, AnAbortThatIsStuckIsLeftAlone) {
  Outcome outcome;
  for (int turn = 0; turn < 20 && outcome.members.empty(); ++turn) {
    outcome = run_program(impatient, {{NcclFault::hang, 1, "ncclCommAbort"}, {NcclFault::lost, 1, "ncclAllReduce"}});
    if (!outcome.made.empty()) outcome.members.clear();  // a slow machine
  }
  ASSERT_EQ(outcome.members.size(), 2u) << outcome.made;
  for (const std::string& member : outcome.members) {
    EXPECT_NE(member.find("NCCL did not abort within 20 ms"), std::string::npos) << member;
  }
}

TEST_F(NcclFailures, AtTheEndAreNoFailuresOfCalls) {
  for (const char* const function : {"ncclCommFinalize", "ncclCommDestroy"}) {
    for (const NcclFault fault : {NcclFault::error, NcclFault::hang, NcclFault::late_error}) {
      const NcclOptions options{.patience = 20s, .answer = 20ms};
      EXPECT_TRUE(run_program(options, {{fault, 1, function}}).good()) << function;
      fake::release_nccl();
    }
  }
}

TEST_F(NcclFailures, NamesTheMemberThatDoesNotCallInTime) {
  Engine engine({.workers = 2});
  expect_missing_member_to_be_named(NcclGroup(cuda_devices(engine, 2), {.patience = 300ms}));
}

TEST_F(NcclFailures, AnExchangeThatAMemberDoesNotCallBreaksTheGroup) {
  Engine engine({.workers = 2});
  const NcclGroup group(cuda_devices(engine, 2), {.patience = 100ms});
  EXPECT_THROW(group[0].exchange({}), CommError);
  const Tensor x = filled(group[1].device(), 1, 4, 1);
  group[1].all_reduce(x);
  expect_error_of(x, "rank 1 has not called exchange within 100 ms");
}

TEST_F(NcclFailures, ErrorsOfTheRuntimeGiveErrorsAndNoWrongValues) {
  int failed = 0;
  for (std::uint64_t call = 1; call <= 150; call += 3) {
    fake::fail(call, 999, false);
    try {
      if (!run_program(patient).good()) ++failed;  // which looks at the values
    } catch (const Error&) {
      ++failed;  // a device cannot be opened
    }
  }
  EXPECT_GT(failed, 10);
  fake::fail(0, 0, false);
}

}  // namespace
}  // namespace windrow::testing
