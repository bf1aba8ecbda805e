// Naps, with a clock of our own.
#include "engine/src/wait/naps.h"

#include <gtest/gtest.h>

namespace windrow::testing {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

/// A wait while `to_do` things are done, each in `one`.
struct Waited {
  nanoseconds slept{0};
  int naps = 0;
};
Waited wait_for(std::int64_t to_do, nanoseconds one) {
  Naps naps;
  Waited waited;
  for (std::int64_t left = to_do; left > 0; left = to_do - waited.slept / one) {
    waited.slept += naps.next(static_cast<std::uint64_t>(left), Naps::Clock::time_point(waited.slept));
    ++waited.naps;
  }
  return waited;
}

TEST(Naps, EndAboutWhenAllIsDone) {
  for (const std::int64_t to_do : {10, 300, 4096, 100000}) {
    for (const nanoseconds one : {50ns, 120ns, 1000ns, 30000ns}) {
      const Waited waited = wait_for(to_do, one);
      EXPECT_LE(waited.slept, (to_do + 1) * one + Naps::shortest) << to_do << " of " << one.count() << " ns";
    }
  }
}

TEST(Naps, AreFew) {
  EXPECT_LE(wait_for(4096, 120ns).naps, 8);
  EXPECT_LE(wait_for(100000, 120ns).naps, 20);
}

TEST(Naps, BecomeLongWhileNothingIsDone) {
  Naps naps;
  Naps::Clock::time_point now;
  nanoseconds before{0};
  for (int i = 0; i < 20; ++i) {
    const nanoseconds nap = naps.next(100, now);
    EXPECT_GE(nap, before);
    EXPECT_GE(nap, Naps::shortest);
    EXPECT_LE(nap, Naps::longest);
    before = nap;
    now += nap;
  }
  EXPECT_EQ(before, Naps::longest);
}

TEST(Naps, AreShortAgainWhenThingsAreDoneQuickly) {
  Naps naps;
  Naps::Clock::time_point now;
  for (int i = 0; i < 20; ++i) now += naps.next(100, now);
  EXPECT_EQ(naps.next(1, now), Naps::shortest);
}

TEST(Naps, BearWhatGrows) {
  Naps naps;
  Naps::Clock::time_point now;
  for (std::uint64_t to_do = 1; to_do < 1000; to_do *= 2) {
    const nanoseconds nap = naps.next(to_do, now);
    EXPECT_GE(nap, Naps::shortest);
    now += nap;
  }
}

}  // namespace
}  // namespace windrow::testing
