// Groups within a process: maxima of NaN, calls far ahead of other members, and members that have ended.
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <thread>

#include "tests/comm/random_collectives.h"
#include "tests/engine/support.h"
#include "windrow/comm/local.h"

namespace windrow::testing {
namespace {

using Floats = std::vector<float>;

TEST(LocalGroup, AMaximumIsNaNWhereAMemberHasNaN) {
  Engine engine({.workers = 2});
  const LocalGroup group(host_devices(engine, 3));
  std::vector<std::function<void()>> checks;
  for (int rank = 0; rank < 3; ++rank) checks.push_back(push_maxima_of_nan(group[rank]));
  for (const auto& check : checks) check();
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
    try {
      member.exchange(std::vector<std::int64_t>{member.rank()});
      ADD_FAILURE() << "rank 2 has not called";
    } catch (const CommError& error) {
      EXPECT_STREQ(error.what(), "rank 2 has ended without calling exchange");
    }
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

}  // namespace
}  // namespace windrow::testing
