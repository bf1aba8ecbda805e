// Engine::pushed_version: whether something was pushed that writes a variable.
#include <functional>
#include <vector>

#include "tests/engine/support.h"

namespace windrow::testing {
namespace {

class PushedVersion : public EngineOnEveryPolicy {};
WINDROW_EVERY_POLICY(PushedVersion);

TEST_P(PushedVersion, ChangesWithEachPushThatWritesAndWithNoOther) {
  Gate gate;
  if (GetParam().policy != Policy::serial) engine.push([&] { gate.pass(); }, {mutate(b)});
  engine.push([] {}, {read(b), overwrite(a)});  // what follows is counted before this has run
  const Graph writes = engine.capture([&] { engine.push([] {}, {mutate(a)}); });
  const Graph reads = engine.capture([&] { engine.push([] {}, {read(a)}); });
  const auto push = [&](Access access) { return [this, access] { engine.push([] {}, {access}); }; };
  const std::vector<std::function<void()>> that_write = {push(mutate(a)),         push(overwrite(a)),
                                                         push(commute(a)),        push(commute(a)),
                                                         [&] { engine.heal(a); }, [&] { writes.launch(); }};
  const std::vector<std::function<void()>> that_do_not = {push(read(a)), push(mutate(b)), push(read(a)),
                                                          [&] { reads.launch(); }};
  for (const auto& write : that_write) {
    const std::uint64_t before = engine.pushed_version(a);
    write();
    for (const auto& step : that_do_not) {
      EXPECT_NE(engine.pushed_version(a), before);
      step();
    }
    const std::uint64_t after = engine.pushed_version(a);
    for (const auto& step : that_do_not) {
      step();
      EXPECT_EQ(engine.pushed_version(a), after);
    }
  }
  gate.open();
  engine.wait_all();
  const Var none;
  EXPECT_THROW(engine.pushed_version(none), MisuseError);
  engine.retire(a);
  EXPECT_THROW(engine.pushed_version(a), MisuseError);
}

}  // namespace
}  // namespace windrow::testing
