// Engine::pushed_version: whether something was pushed that writes a variable.
#include <functional>
#include <vector>

#include "tests/engine/support.h"

namespace windrow::testing {
namespace {

class PushedVersion : public EveryPolicy {};
WINDROW_EVERY_POLICY(PushedVersion);

TEST_P(PushedVersion, ChangesWithEachPushThatWritesAndWithNoOther) {
  Engine engine(options());
  const Var var = engine.new_var("var"), other = engine.new_var("other");
  Gate gate;
  if (GetParam().policy != Policy::serial) engine.push([&] { gate.pass(); }, {mutate(other)});
  engine.push([] {}, {read(other), overwrite(var)});  // what follows is counted before this has run
  const Graph writes = engine.capture([&] { engine.push([] {}, {mutate(var)}); });
  const Graph reads = engine.capture([&] { engine.push([] {}, {read(var)}); });
  const auto push = [&](Access access) { return [&engine, access] { engine.push([] {}, {access}); }; };
  const std::vector<std::function<void()>> that_write = {push(mutate(var)),         push(overwrite(var)),
                                                         push(commute(var)),        push(commute(var)),
                                                         [&] { engine.heal(var); }, [&] { writes.launch(); }};
  const std::vector<std::function<void()>> that_do_not = {push(read(var)), push(mutate(other)), push(read(var)),
                                                          [&] { reads.launch(); }};
  for (const auto& write : that_write) {
    const std::uint64_t before = engine.pushed_version(var);
    write();
    for (const auto& step : that_do_not) {
      EXPECT_NE(engine.pushed_version(var), before);
      step();
    }
    const std::uint64_t after = engine.pushed_version(var);
    for (const auto& step : that_do_not) {
      step();
      EXPECT_EQ(engine.pushed_version(var), after);
    }
  }
  gate.open();
  engine.wait_all();
  const Var none;
  EXPECT_THROW(engine.pushed_version(none), MisuseError);
  engine.retire(var);
  EXPECT_THROW(engine.pushed_version(var), MisuseError);
}

}  // namespace
}  // namespace windrow::testing
