// What members of a group by NCCL see when its calls, or its work, fail or do not end.

#include "tests/comm/contract.h"
#include "tests/comm/nccl_support.h"
#include "tests/engine/support.h"

namespace windrow::testing {
namespace {

using fake::NcclFault;
using Floats = std::vector<float>;

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

/// The same with a fault: again, where a slow machine lets the group break before that is met.
Outcome run_program(const NcclOptions& options, NcclFault fault, std::uint64_t call, const std::string& function) {
  for (int turn = 0;; ++turn) {
    fake::inject_nccl(fault, call, function);
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
        const Outcome outcome = run_program(patient, fault, call, function);
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
    const Outcome outcome = run_program(impatient, NcclFault::hang, 1, function);
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
  const Outcome outcome = run_program(options, NcclFault::lost, 1, "ncclAllReduce");
  for (const std::string& member : outcome.members) {
    EXPECT_NE(member.find("within 60 ms"), std::string::npos) << member;
    EXPECT_EQ(member.find("did not abort"), std::string::npos) << member;
  }
  EXPECT_EQ(fake::nccl_communicators(), 0);
}

TEST_F(NcclFailures, AnAbortThatIsStuckIsLeftAlone) {
  Outcome outcome;
  for (int turn = 0; turn < 20 && outcome.members.empty(); ++turn) {
    fake::inject_nccl(NcclFault::hang, 1, "ncclCommAbort");
    outcome = run_program(impatient, NcclFault::lost, 1, "ncclAllReduce");
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
      EXPECT_TRUE(run_program(options, fault, 1, function).good()) << function;
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
