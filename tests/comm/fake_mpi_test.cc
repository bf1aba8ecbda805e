// Groups of processes on a fake of MPI whose functions fail in turn. WINDROW_TEST_SEED sets the seed,
// WINDROW_TEST_FAULTS the number of faults that are tried.
#include "tests/comm/fake_mpi.h"

#include <barrier>
#include <cstdlib>
#include <latch>
#include <random>
#include <regex>

#include "tests/comm/contract.h"
#include "tests/engine/support.h"
#include "tests/seed.h"
#include "windrow/comm/internal/member.h"
#include "windrow/comm/mpi.h"

namespace windrow::testing {
namespace {

using namespace std::chrono_literals;
using How = MpiFault::How;

[[maybe_unused]] const bool uses_fake_mpi = ::setenv("WINDROW_MPI_PLUGIN", WINDROW_FAKE_MPI, 1) == 0;

/// What each rank tells at its end, in any order; empty if nothing has failed.
using Told = std::vector<std::string>;
using OptionsOf = std::function<MpiOptions(int thread)>;

/// Runs `body` for each rank and each of its groups, in threads of their own, and tells what they throw, a line each.
Told run_ranks(int ranks, const OptionsOf& options, const std::function<void(const Communicator&)>& body,
               int groups = 1) {
  Told told(static_cast<std::size_t>(ranks));
  on_threads(ranks, [&](int i) {
    std::vector<std::string> lines(static_cast<std::size_t>(groups) + 1);
    const auto tell = [](std::string& line, const std::function<void()>& act) {
      try {
        act();
      } catch (const Error& error) {
        line = std::string(error.what()) + '\n';
      }
    };
    tell(lines.back(), [&] {
      Engine engine({.workers = 1});
      MpiWorld world(options(i));
      std::vector<Communicator> members;
      for (int k = 0; k < groups; ++k) members.push_back(world.group(host_device(engine)));
      on_threads(groups, [&](int number) {
        const auto k = static_cast<std::size_t>(number);
        tell(lines[k], [&] { body(members[k]); });
      });
    });
    for (const std::string& line : lines) told[static_cast<std::size_t>(i)] += line;
  });
  return told;
}
Told run_ranks(int ranks, const MpiOptions& options, const std::function<void(const Communicator&)>& body,
               int groups = 1) {
  return run_ranks(ranks, OptionsOf([&](int) { return options; }), body, groups);
}

/// The same with one rank that calls `body`; the others stay until it has ended.
Told run_one_of_three(int rank, const MpiOptions& options, const std::function<void(const Communicator&)>& body) {
  std::latch ended(1);
  return run_ranks(3, options, [&](const Communicator& member) {
    if (member.rank() != rank) return ended.wait();
    const std::shared_ptr<void> end(nullptr, [&](void*) { ended.count_down(); });
    body(member);
  });
}

TEST(FakeMpi, KeepsTheContractInAnyOrderOfItsRequests) {
  for (unsigned seed = first_seed(); seed < first_seed() + 4; ++seed) {
    SCOPED_TRACE("WINDROW_TEST_SEED=" + std::to_string(seed));
    const FakeMpiJob job(1 + static_cast<int>(seed % 4), seed);
    const Told told = run_ranks(1 + static_cast<int>(seed % 4), {.patience = 60s, .eager_bytes = seed % 2 * 64},
                                [&](const Communicator& member) {
                                  push_random_collectives(member, seed, 80)();
                                  expect_contract(member);
                                });
    for (const std::string& text : told) EXPECT_EQ(text, "");
    EXPECT_EQ(job.mismatch(), "");
    EXPECT_TRUE(job.finalized());
  }
}

/// Each function of MPI at another rank, and each way to fail that it has.
std::vector<MpiFault> all_faults() {
  std::vector<MpiFault> all;
  int rank = 0;
  for (const char* function : {"init", "finalize", "rank", "duplicate", "release", "all_reduce", "reduce", "broadcast",
                               "all_gather", "reduce_scatter", "all_to_all", "send", "recv", "test", "cancel"}) {
    const std::string name = function;
    const bool has_request = name != "init" && name != "finalize" && name != "rank" && name != "duplicate" &&
                             name != "release" && name != "cancel";
    for (const How how : {How::error, How::error_at_test, How::never_ends, How::never_returns}) {
      if (!has_request && (how == How::error_at_test || how == How::never_ends)) continue;
      for (const int number : {0, 3, 20}) {
        if (number > 0 && (name == "init" || name == "finalize" || name == "rank" || name == "cancel")) continue;
        if (number > 5 && !has_request) continue;
        all.push_back({name, rank = (rank + 1) % 3, number, how});
      }
    }
  }
  return all;
}

// Nothing hangs, nobody is told a wrong result, and where the fault matters, all members are told of an error. A call
// that does not return meets a group that another fault has broken, and calls of both groups that are under way.
TEST(FakeMpi, EachFaultEndsInTimeWithAnErrorAtAllMembers) {
  std::vector<MpiFault> faults = all_faults();
  std::mt19937 random(first_seed());
  std::shuffle(faults.begin(), faults.end(), random);
  const char* const given = std::getenv("WINDROW_TEST_FAULTS");
  faults.resize(std::min(faults.size(), given == nullptr ? std::size_t{25} : std::strtoul(given, nullptr, 10)));
  int happened = 0;
  for (const MpiFault& fault : faults) {
    SCOPED_TRACE(to_string(fault));
    SCOPED_TRACE("WINDROW_TEST_SEED=" + std::to_string(first_seed()));
    std::vector<MpiFault> all = {fault};
    if (fault.how == How::never_returns) all.push_back({"reduce", fault.rank, 0, How::error});
    const FakeMpiJob job(3, first_seed(), all);
    const auto program = [&](const Communicator& member) {
      const auto check = push_random_collectives(member, first_seed(), 30);
      for (int i = 0; i < 15; ++i) member.exchange({});
      check();
      for (int i = 0; i < 15; ++i) member.exchange({});  // so that no fault is in the last call of a function
    };
    const std::size_t eager = fault.number % 2 == 0 ? 0 : 64;
    const Told told = run_ranks(3, {.patience = 160ms, .answer = 80ms, .eager_bytes = eager}, program, 2);
    happened += job.happened() > 0 ? 1 : 0;
    EXPECT_EQ(job.mismatch(), "");
    if (job.happened() == 0 || fault.function == "finalize" || fault.function == "cancel") continue;
    // Nobody needs some messages: the last ones of a member, the one that never comes, the end of a broadcast at its
    // root, and the release of a group, which all have left. Then the faulty member alone may be told, or on a busy
    // machine one that is late.
    const bool may_not_matter = (fault.function == "broadcast" && fault.how == How::never_ends) ||
                                fault.function == "send" || fault.function == "recv" || fault.function == "test" ||
                                fault.function == "release";
    const auto faulty = static_cast<std::size_t>(fault.rank);
    const bool others_told = !told[(faulty + 1) % 3].empty() || !told[(faulty + 2) % 3].empty();
    if (may_not_matter && (told[faulty].empty() || !others_told)) continue;
    for (std::size_t rank = 0; rank < told.size(); ++rank) EXPECT_NE(told[rank], "") << "rank " << rank;
  }
  EXPECT_GT(happened, static_cast<int>(faults.size()) / 2);
}

TEST(FakeMpi, CallsBehindOneThatDoesNotReturnEnd) {
  const FakeMpiJob job(2, first_seed(), {{"send", 0, 0, How::never_returns}});
  const Told told = run_ranks(2, {.patience = 100ms, .answer = 50ms}, [&](const Communicator& member) {
    for (int i = 0; i < 300; ++i) {
      member.all_reduce(filled(member.device(), 1, 1, 1));
      if (i == 100 && member.rank() == 0) member.abort("which tells the other member");
    }
    member.exchange({});
  });
  const std::string all = told[0] + told[1];
  EXPECT_NE(all.find("exchange: rank 0: MPI_Isend has not returned for 100 ms"), std::string::npos) << all;
  EXPECT_NE(all.find("rank 0 did not answer"), std::string::npos) << all;
}

TEST(FakeMpi, NamesTheMembersThatLackACallInTime) {
  struct Missing {
    std::function<void(const Communicator&)> call;  // of rank 0
    const char* text;
  };
  const Missing all[] = {
      {[](const Communicator& member) { member.exchange({}); },
       "rank 0 has waited 200 ms for exchange of 0 numbers, call 1; it is missing at rank 1 (last: call 0), "
       "rank 2 (last: call 0); the group is broken\n"},
      {[](const Communicator& member) {
         const Tensor x = filled(member.device(), 2, 2, 1);
         member.recv(x, 1);
         x.get();
       },
       "rank 0 has waited 200 ms for recv (float32 2 x 2, from rank 1), call 0; it is missing at rank 1 (no such "
       "call yet); the group is broken\n"}};
  for (const Missing& missing : all) {
    const FakeMpiJob job(3, first_seed());
    const Told told = run_one_of_three(0, {.patience = 200ms, .answer = 20s}, missing.call);
    EXPECT_NE((told[0] + told[1] + told[2]).find(missing.text), std::string::npos) << told[0] << told[1] << told[2];
  }
}

TEST(FakeMpi, OneOfTheMembersThatWaitTellsForWhom) {
  const FakeMpiJob job(3, first_seed());
  const Told told = run_ranks(3, {.patience = 60s, .tell_after = 1ms, .answer = 20s}, [&](const Communicator& member) {
    const Tensor x = filled(member.device(), 1, 1, 1);
    if (member.rank() == 0) {
      const std::string line = next_line_on_stderr(", for rank 0 ");  // rank 2 may be late
      EXPECT_TRUE(std::regex_match(
          line, std::regex(R"(.*windrow: rank 1 waits \d+ m?s in all_reduce 'w' \(sum of float32 1 x 1\), call 0, )"
                           R"(for rank 0 \(no such call yet\))")))
          << line;
    }
    member.all_reduce(x, Combine::sum, {.name = "w"});
    EXPECT_EQ(x.get(), std::vector<float>{3});
  });
  EXPECT_EQ(told, Told(3));
  EXPECT_THROW(MpiWorld({.tell_after = 0s}), MisuseError);
}

TEST(FakeMpi, ACallOfMpiThatDoesNotReturnIsToldOf) {
  const FakeMpiJob job(1, first_seed(), {{"duplicate", 0, 0, How::never_returns}});
  const std::string text = stderr_of([] { run_ranks(1, {.patience = 1s, .tell_after = 2ms}, [](const auto&) {}); });
  EXPECT_NE(text.find(" in MPI_Comm_dup, for other processes"), text.npos) << text;
}

TEST(FakeMpi, AMemberThatWaitsForAMessageTellsWhatOthersDoNotSee) {
  const FakeMpiJob job(3, first_seed());
  Fails fails = Fails::no;
  run_one_of_three(2, {.patience = 200ms, .answer = 20s}, [&](const Communicator& member) {
    const Tensor x = filled(member.device(), 1, 1, 1);
    member.recv(x, 1);
    fails = how_fails(x);
  });
  EXPECT_EQ(fails, Fails::here);
}

TEST(FakeMpi, AnErrorNestsWhatItNames) {
  const FakeMpiJob job(2, first_seed());
  std::string nested[2];
  run_ranks(2, {.patience = 20s}, [&](const Communicator& member) {
    const Tensor x = filled(member.device(), 1, 1, 1);
    member.device().engine->push(
        [rank = member.rank()] { throw std::runtime_error("no loss at rank " + std::to_string(rank)); },
        {mutate(x.var())});
    member.all_reduce(x);
    try {
      x.get();
    } catch (const OpError& error) {
      try {
        error.rethrow_root();
      } catch (const CommError& failed) {
        try {
          std::rethrow_if_nested(failed);
        } catch (const std::exception& cause) {
          nested[member.rank()] = cause.what();
        }
      }
    }
  });
  for (const std::string& text : nested) EXPECT_NE(text.find("no loss at rank 0"), text.npos) << text;
}

TEST(FakeMpi, EndsAfterCallsWhoseOperandsAreNotReady) {
  const FakeMpiJob job(2, first_seed());
  on_threads(2, [](int i) {
    Engine engine({.workers = 2});
    const Device device = host_device(engine);
    const Tensor x = filled(device, 2, 2, 1);
    engine.push([i] { std::this_thread::sleep_for(i * 50ms); }, {mutate(x.var())});
    {
      MpiWorld world({.patience = 60s});
      world.group(device).all_reduce(x);
    }
    EXPECT_EQ(x.get(), std::vector<float>(4, 2));
  });
  EXPECT_TRUE(job.finalized());
}

TEST(FakeMpi, MembersWhoseEagerBytesDifferHaveNoGroup) {
  const FakeMpiJob job(3, first_seed());
  const auto options = [](int thread) { return MpiOptions{.eager_bytes = thread == 2 ? std::size_t{0} : 4096}; };
  const Told told = run_ranks(3, OptionsOf(options), [](const Communicator&) { FAIL(); });
  std::smatch match;
  const std::regex line(
      "MpiWorld: rank 0 has eager_bytes = (0|4096), but rank [12] has (0|4096); expected one number "
      "at all members\n");
  ASSERT_TRUE(std::regex_match(told[0], match, line)) << told[0];
  EXPECT_NE(match[1], match[2]);
  EXPECT_EQ(told, Told(3, told[0]));
  EXPECT_TRUE(job.finalized());
}

TEST(FakeMpi, AGroupThatIsBuiltOnAnotherHearsThatItBreaks) {
  for (const bool aborts : {true, false}) {
    const FakeMpiJob job(2, first_seed());
    std::atomic<int> heard = 0;
    std::latch together(2);  // an exchange that ends at one rank may still be under way at the other
    const Told told = run_ranks(2, {.patience = aborts ? 20s : 300ms, .answer = 20s}, [&](const Communicator& member) {
      member.member()->on_break([&](const comm::Breakage& why) {
        EXPECT_EQ(why.reported_by == comm::ReportedBy::aborter, aborts);
        EXPECT_NE(why.why.find(aborts ? "rank 1 has called abort()" : "rank 0 has waited 300 ms"), why.why.npos);
        ++heard;
        heard.notify_all();
      });
      member.exchange({});
      together.arrive_and_wait();
      if (aborts && member.rank() == 1) member.abort("");
      if (!aborts && member.rank() == 0) {
        const Tensor x(member.device(), 1, 1);
        member.recv(x, 1);
        EXPECT_NE(error_of(x), "");
        EXPECT_GT(heard, 0) << "before the call fails";
      }
      for (int now = heard; now < 2; now = heard) heard.wait(now);
      member.member()->on_break([&](const comm::Breakage&) { ++heard; });  // at once
    });
    EXPECT_EQ(heard, 4);
    EXPECT_EQ(told, Told(2));
  }
}

TEST(FakeMpi, AFailedCallIsNamedAtAllMembers) {
  const FakeMpiJob job(2, first_seed(), {{"broadcast", 1, 0, How::error_at_test}});
  const Told told = run_ranks(2, {.patience = 60s, .eager_bytes = 0}, [&](const Communicator& member) {
    const Tensor x = filled(member.device(), 2, 2, 1);
    member.broadcast(std::span(&x, 1), 0);
    member.all_reduce(x);
    x.get();
  });
  for (const std::string& text : told) {
    EXPECT_NE(text.find("failed at rank 1: an injected error"), std::string::npos) << text;
  }
}

TEST(FakeMpi, MayWaitForEver) {
  constexpr auto ever = std::chrono::nanoseconds::max();
  const FakeMpiJob job(2, first_seed());
  const Told told = run_ranks(2, {.patience = ever, .answer = ever}, [](const Communicator& member) {
    if (member.rank() == 1) std::this_thread::sleep_for(30ms);
    member.exchange({});
  });
  EXPECT_EQ(told, Told(2));
  EXPECT_TRUE(job.finalized());
  EXPECT_THROW(MpiWorld({.patience = 0s}), MisuseError);
  EXPECT_THROW(MpiWorld({.answer = -1s}), MisuseError);
}

// The fake notes calls of a group that was freed, and messages that are left in one.
TEST(FakeMpi, GroupsWhoseMembersHaveAllEndedAreFreed) {
  const FakeMpiJob job(3, first_seed());
  constexpr int groups_of_the_lasting_one = 10;  // of MPI
  std::barrier all(3);
  on_threads(3, [&](int) {
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
    comes_true([&] { return job.kept_groups() <= 3 * groups_of_the_lasting_one; });
    EXPECT_EQ(job.kept_groups(), 3 * groups_of_the_lasting_one);
    all.arrive_and_wait();
    lasting.exchange({});
  });
  EXPECT_EQ(job.mismatch(), "");
  EXPECT_TRUE(job.finalized());
}

}  // namespace
}  // namespace windrow::testing
