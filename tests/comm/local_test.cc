// Groups within a process. Start here; contract.h has the oracle.
#include "windrow/comm/local.h"

#include <cmath>
#include <cstdlib>
#include <regex>

#include "contract.h"
#include "part_queue.h"
#include "tests/devices/simulated.h"
#include "tests/engine/support.h"
#include "tests/seed.h"
#include "windrow/comm/nccl.h"
#include "windrow/comm/simulated.h"
#include "windrow/ops/static.h"

namespace windrow::testing {
namespace {

using Floats = std::vector<float>;

class LocalCollectives : public ::testing::TestWithParam<Setup> {};
INSTANTIATE_TEST_SUITE_P(All, LocalCollectives, ::testing::ValuesIn(every_setup), setup_name);

TEST_P(LocalCollectives, ComputeWhatAPlainSimulationComputes) {
  for (unsigned seed = first_seed(); seed < first_seed() + 3; ++seed) {
    for (const int ranks : {1, 2, 3, 5}) {
      Engine engine({.policy = GetParam().policy, .workers = GetParam().workers});
      const LocalGroup group(host_devices(engine, ranks));
      std::vector<std::function<void()>> checks;
      for (int rank = 0; rank < ranks; ++rank) checks.push_back(push_random_collectives(group[rank], seed, 60));
      for (const auto& check : checks) check();
    }
  }
}

TEST_P(LocalCollectives, KeepTheContract) {
  for (const int ranks : {1, 2, 3}) {
    Engine engine({.policy = GetParam().policy, .workers = GetParam().workers});
    at_all_members(LocalGroup(host_devices(engine, ranks)), expect_contract);
  }
}

TEST(LocalGroup, CombinesTensorsOfOtherEnginesAndDevices) {
  for (unsigned seed = first_seed(); seed < first_seed() + 3; ++seed) {
    Engine first({.workers = 2}), second({.workers = 2});
    const auto one = simulated_device(first, {.seed = seed});
    const auto two = simulated_device(second, {.name = "sim:1", .number = 2});
    const LocalGroup group({host_device(first), one.device, two.device, host_device(second)});
    std::vector<std::function<void()>> checks;
    for (int rank = 0; rank < group.size(); ++rank) checks.push_back(push_random_collectives(group[rank], seed, 60));
    for (const auto& check : checks) check();
  }
}

TEST(LocalGroup, AddsInTheSameOrderWhateverTheTiming) {
  constexpr int ranks = 5;
  std::vector<Floats> results;
  for (const auto& setup : every_setup) {
    Engine engine({.policy = setup.policy, .workers = setup.workers});
    const LocalGroup group(host_devices(engine, ranks));
    std::vector<Tensor> tensors;
    for (int rank = 0; rank < ranks; ++rank) {
      Floats values;
      for (int i = 0; i < 3000; ++i) values.push_back(std::sin(static_cast<float>(i * (rank + 1))) * 100.0f);
      tensors.emplace_back(group[rank].device(), 30, 100);
      tensors.back().set(std::move(values));
      group[rank].all_reduce(tensors.back(), Combine::mean);
    }
    for (const Tensor& tensor : tensors) results.push_back(tensor.get());
  }
  for (const Floats& result : results) EXPECT_EQ(result, results.front());
}

TEST(LocalGroup, RefusesCallsThatWouldBeRepeatedAndGoesOn) {
  Engine engine({.workers = 2});
  const LocalGroup group(host_devices(engine, 2), {.patience = 5s});
  const Tensor x = filled(group[0].device(), 1, 1, 1), y = filled(group[1].device(), 1, 1, 2);
  const auto refused = [&](const std::function<void()>& call) {
    Static recorded(group[0].device(), [&](const StaticInputs&) -> std::vector<Tensor> {
      call();
      return {};
    });
    for (const std::string& error :
         {error_of<MisuseError>([&] { engine.capture(call); }), error_of<MisuseError>([&] { recorded(); })}) {
      EXPECT_NE(error.find("in a capture or in the body of a Static"), std::string::npos) << error;
    }
  };
  refused([&] { group[0].all_reduce(x); });
  refused([&] { group[0].send(x, 1); });
  refused([&] { group[0].exchange({}); });
  refused([&] { group[0].barrier(); });
  group[0].all_reduce(x);
  group[1].all_reduce(y);
  EXPECT_EQ(x.get(), Floats{3});
  group[0].send(x, 1);
  group[1].recv(y, 0);
  EXPECT_EQ(y.get(), Floats{3});
}

TEST(LocalGroup, NamesTheHalfOfAMessageThatIsMissing) {
  Engine engine({.workers = 2});
  for (const bool sends : {true, false}) {
    const LocalGroup group(host_devices(engine, 2), {.patience = 50ms});
    const Tensor x = filled(group[1].device(), 1, 4, 1);
    sends ? group[1].send(x, 0, {.name = "hello"}) : group[1].recv(x, 0, {.name = "hello"});
    const std::string half =
        sends ? "recv 'hello' (float32 1 x 4, from rank 1)" : "send 'hello' (float32 1 x 4, to rank 1)";
    expect_error<Error>([&] { engine.wait_all(); }, "rank 0 has not called " + half);
    engine.heal(x.var());
  }
}

TEST(LocalGroup, NamesTheMemberThatDoesNotCallInTime) {
  Engine engine({.workers = 2});
  expect_missing_member_to_be_named(LocalGroup(host_devices(engine, 2), {.patience = 50ms}));
  const LocalGroup other(host_devices(engine, 2), {.patience = 50ms});
  EXPECT_EQ(error_of<CommError>([&] { other[1].exchange({}); }),
            "rank 0 has not called exchange within 50 ms after the first member; the group is broken");
}

TEST(LocalGroup, ACallThatWaitsTellsForWhom) {
  Engine engine({.workers = 2});
  const LocalGroup group(host_devices(engine, 4), {.tell_after = 1ms});
  std::vector<Tensor> all;
  for (int rank = 0; rank < 4; ++rank) all.push_back(filled(group[rank].device(), 3, 4, 1));
  for (const int rank : {1, 2})
    group[rank].all_reduce(all[static_cast<std::size_t>(rank)], Combine::sum, {.name = "w"});
  const std::regex line(
      R"(.*windrow: ranks 1, 2 wait \d+ m?s in all_reduce 'w' \(sum of float32 3 x 4\), call 0, for ranks 0, 3)");
  for (int time = 0; time < 2; ++time) {
    const std::string told = next_line_on_stderr("ranks 1, 2 wait");
    EXPECT_TRUE(std::regex_match(told, line)) << told;
  }
  for (const int rank : {0, 3})
    group[rank].all_reduce(all[static_cast<std::size_t>(rank)], Combine::sum, {.name = "w"});
  for (const Tensor& tensor : all) EXPECT_EQ(tensor.get(), Floats(12, 4));
  EXPECT_THROW(LocalGroup(host_devices(engine, 1), {.tell_after = 0s}), MisuseError);
}

TEST(LocalGroup, MayWaitForEver) {
  Engine engine({.workers = 2});
  const LocalGroup group(host_devices(engine, 2), {.patience = std::chrono::nanoseconds::max()});
  const Tensor x = filled(group[0].device(), 1, 1, 1), y = filled(group[1].device(), 1, 1, 2);
  group[0].all_reduce(x);
  std::thread other([&] { group[0].exchange({}); });
  std::this_thread::sleep_for(30ms);  // the timer and the exchange have looked at the limit
  group[1].exchange({});
  other.join();
  group[1].all_reduce(y);
  EXPECT_EQ(x.get(), Floats{3});
}

TEST(LocalGroup, NothingHangsIfAMemberEndsOrAborts) {
  Engine engine({.workers = 2});
  expect_ends_to_be_heard([&] { return LocalGroup(host_devices(engine, 2)); });
}

TEST(LocalGroup, ACallThatIsRefusedCountsAsNotMade) {
  Engine ended({.workers = 1}), engine({.workers = 1});
  std::optional<LocalGroup> group(std::in_place, std::vector{host_device(ended), host_device(engine)},
                                  LocalGroupOptions{.patience = std::chrono::hours(1)});
  const Communicator other = (*group)[1];
  {
    const Communicator refused = (*group)[0];
    group.reset();
    const Tensor x = filled(host_device(ended), 1, 1, 1);
    ended.shutdown();
    EXPECT_THROW(refused.all_reduce(x), MisuseError);
  }
  const Tensor y = filled(host_device(engine), 1, 1, 1);
  other.all_reduce(y);
  expect_error_of(y, "rank 0 has ended without this call");
}

TEST(LocalGroup, ManyCallsFailInTheirOrder) {
  Engine engine({.workers = 1});
  const LocalGroup group(host_devices(engine, 2));
  std::vector<Tensor> all;
  for (int call = 0; call < 10; ++call) {
    all.push_back(filled(group[0].device(), 1, 1, 1));
    group[0].all_reduce(all.back());
  }
  const Var last = engine.new_var();
  engine.push([] {}, {mutate(last)});
  engine.wait(last);  // on one thread behind the calls, which the group has now
  group[1].abort("the test says so");
  const std::string error = testing::error_of<OpError>([&] { engine.wait_all(); });
  std::size_t before = 0;
  for (int call = 0; call < 10; ++call) {
    const std::size_t at = error.find("call " + std::to_string(call));
    ASSERT_NE(at, std::string::npos) << error;
    EXPECT_GE(at, before) << error;
    before = at;
  }
}

/// How often an engine says at its end that nobody waited for a failure.
std::size_t told_at_the_end(std::optional<Engine>& engine) {
  const std::string told = stderr_of([&] { engine.reset(); });
  std::size_t count = 0;
  for (std::size_t at = told.find("nobody waited"); at != told.npos; at = told.find("nobody waited", at + 1)) ++count;
  return count;
}

TEST(LocalGroup, AFailureIsToldOnceHoweverManyCallsFail) {
  {
    std::optional<Engine> engine(EngineOptions{.workers = 2});
    const LocalGroup group(host_devices(*engine, 2));
    std::vector<Tensor> all;
    for (int call = 0; call < 3; ++call) {
      for (int rank = 0; rank < 2; ++rank) {
        all.push_back(filled(group[rank].device(), 1, 1, 1));
        if (rank == 0 || call > 0) group[rank].all_reduce(all.back());
      }
      if (call == 0) group[1].abort("the test says so");
    }
    all.clear();
    EXPECT_EQ(told_at_the_end(engine), 1u);
  }
  std::optional<Engine> engine(EngineOptions{.workers = 2});
  const LocalGroup group(host_devices(*engine, 2));
  std::vector<Tensor> all;
  for (int rank = 0; rank < 2; ++rank) {
    for (int i = 0; i < 2; ++i) all.push_back(filled(group[rank].device(), 1, 1, 1));
  }
  engine->push([]() { throw std::runtime_error("no loss"); }, {mutate(all[2].var()), mutate(all[3].var())});
  for (int step = 0; step < 3; ++step) {
    for (const std::size_t i : {0, 1}) {
      group[0].all_reduce(all[i]);
      group[1].all_reduce(all[2 + i]);
    }
  }
  expect_error_of(all[0], "the operand of rank 1 failed: op");
  expect_error_of(all[0], "no loss");
  all.clear();
  EXPECT_EQ(told_at_the_end(engine), 0u);
}

TEST(SimulatedGroup, AnErrorNestsTheFailureOfTheOperand) {
  VirtualClock clock;
  const SimulatedGroup group(clock, 2, {});
  const Tensor x(group[0].device(), 1, 1), y(group[1].device(), 1, 1);
  clock.engine().push([]() { throw std::runtime_error("no loss"); }, {overwrite(x.var())});
  group[0].all_reduce(x);
  group[1].all_reduce(y);
  EXPECT_THROW(clock.run(), OpError);
  const FailurePtr failure = expect_root<Error>([&] { clock.engine().wait(y.var()); });
  EXPECT_EQ(error_of<std::runtime_error>([&] { std::rethrow_exception(failure->origin()); }), "no loss");
}

TEST(LocalGroup, AThreadThatCallsForAllMembersIsNotHeldBackUntilTheOthersAreCalled) {
  Engine engine({.workers = 2, .max_pending_ops = 64, .push_patience = std::chrono::hours(1)});
  const LocalGroup group(host_devices(engine, 2));
  constexpr int calls = 500;
  std::vector<Tensor> tensors;
  for (int rank = 0; rank < 2; ++rank) {
    tensors.push_back(filled(group[rank].device(), 1, 1, static_cast<float>(rank)));
    for (int call = 0; call < calls; ++call) group[rank].all_reduce(tensors.back(), Combine::max);
  }
  EXPECT_EQ(tensors[0].get(), Floats{1});
}

TEST(LocalGroup, ExchangeWithoutAMemberThatHasEndedFailsAndOtherCallsGoOn) {
  Engine engine({.workers = 2});
  std::optional<LocalGroup> group(host_devices(engine, 3));
  std::vector<std::optional<Communicator>> members;
  for (int rank = 0; rank < 3; ++rank) members.emplace_back((*group)[rank]);
  group.reset();
  const auto fails = [](const Communicator& member) {
    EXPECT_EQ(error_of<CommError>([&] { member.exchange(std::vector<std::int64_t>{member.rank()}); }),
              "exchange: rank 2 has ended without this call");
  };
  const auto message = [&] {
    const Tensor x = filled(members[0]->device(), 2, 2, 7), y = filled(members[1]->device(), 2, 2, 0);
    members[0]->send(x, 1);
    members[1]->recv(y, 0);
    EXPECT_EQ(y.get(), Floats(4, 7));
  };
  {
    std::thread waits([&] { fails(*members[0]); });
    std::this_thread::sleep_for(20ms);
    members[2].reset();
    waits.join();
  }
  for (int round = 0; round < 3; ++round) {
    message();
    std::thread other([&] { fails(*members[0]); });
    fails(*members[1]);
    other.join();
  }
  EXPECT_THROW(members[0]->barrier(), CommError);
  message();
}

TEST(LocalGroup, RefusesMisuseAtTheCall) {
  Engine engine({.workers = 2}), elsewhere({.workers = 1});
  EXPECT_THROW(LocalGroup({}), MisuseError);
  EXPECT_THROW(LocalGroup(host_devices(engine, 2), {.patience = 0s}), MisuseError);
  EXPECT_THROW(host_devices(engine, 0), MisuseError);
  const LocalGroup group(host_devices(engine, 2));
  EXPECT_THROW(group[2], MisuseError);
  const Communicator& member = group[0];
  const Tensor x = filled(member.device(), 3, 2, 1), y = filled(member.device(), 4, 2, 1);
  EXPECT_THROW(member.broadcast(std::span(&x, 1), 2), MisuseError);
  EXPECT_THROW(member.send(x, 0), MisuseError);
  EXPECT_THROW(member.reduce_scatter(x, x), MisuseError);
  EXPECT_THROW(member.all_gather(x, y), MisuseError);
  EXPECT_THROW(member.all_gather(y.row_range(0, 2), y), MisuseError);
  EXPECT_THROW(member.all_reduce(std::vector<Tensor>{x, x.row_range(0, 1)}), MisuseError);
  EXPECT_THROW(member.all_reduce(filled(host_device(elsewhere), 1, 1, 1)), MisuseError);
  // None of these counts as a call.
  const Tensor z = filled(group[1].device(), 3, 2, 1);
  member.all_reduce(x);
  group[1].all_reduce(z);
  EXPECT_EQ(x.get(), Floats(6, 2));
}

// The order in which parts of calls move.

using comm::PartQueue;

std::vector<std::uint64_t> order_of(PartQueue& queue) {
  std::vector<std::uint64_t> order;
  while (const auto part = queue.next()) {
    order.push_back(part->call);
    queue.ended(part->bytes);
  }
  return order;
}

TEST(PartQueue, MovesTheHighestPriorityFirstAndEqualOnesInTheOrderOfCalls) {
  PartQueue queue(100);
  queue.add({.call = 4, .priority = 1, .bytes = 10});
  queue.add({.call = 3, .priority = 0, .bytes = 10});
  queue.add({.call = 1, .priority = 0, .bytes = 10});
  queue.add({.call = 9, .priority = 7, .bytes = 0});
  queue.add({.call = 2, .priority = -5, .bytes = 10});
  EXPECT_EQ(order_of(queue), (std::vector<std::uint64_t>{9, 4, 1, 3, 2}));
}

TEST(PartQueue, ACallOfHigherPriorityWaitsForAPartOnly) {
  PartQueue queue(4);
  queue.add({.call = 0, .priority = 1, .bytes = 10, .part_bytes = 4});
  EXPECT_EQ(queue.next()->call, 0u);
  queue.add({.call = 1, .priority = 2, .bytes = 8, .part_bytes = 4});
  EXPECT_FALSE(queue.next());
  queue.ended(4);
  EXPECT_EQ(order_of(queue), (std::vector<std::uint64_t>{1, 1, 0, 0}));
}

// Groups by NCCL where there is no plug-in for it.

const bool has_no_plug_in = ::setenv("WINDROW_NCCL_PLUGIN", "/nowhere/windrow_nccl.so", 1) == 0;

TEST(NcclGroup, SaysInOneLineThatThereIsNoPlugIn) {
  ASSERT_TRUE(has_no_plug_in);
  const std::string why = NcclGroup::unavailable();
  EXPECT_TRUE(why.starts_with("NCCL cannot be used: ")) << why;
  EXPECT_NE(why.find("/nowhere/windrow_nccl.so"), std::string::npos) << why;
  EXPECT_EQ(why.find('\n'), std::string::npos) << why;
  Engine engine({.workers = 1});
  EXPECT_THROW(NcclGroup({host_device(engine)}), MisuseError);
}

}  // namespace
}  // namespace windrow::testing
