// What is left out of the file of a trace, and how its numbers are written.
#include <set>

#include "tests/engine/read_trace.h"
#include "tests/engine/support.h"
#include "tests/grouping.h"

namespace windrow::testing {
namespace {

std::string saved_trace(Engine& engine) {
  const Folder folder;
  engine.trace().save(folder.file("run.json"));
  std::ifstream in(folder.file("run.json"));
  return std::string(std::istreambuf_iterator<char>(in), {});
}

/// Two ops that change a variable each, one after the other, and an op that reads both.
Arrows arrows_of(const TraceOptions& options) {
  Engine engine({.policy = Policy::serial});
  const Var a = engine.new_var("a"), b = engine.new_var("b");
  engine.trace().start(options);
  engine.push([] {}, {overwrite(a)}, {.name = "first"});
  engine.push([] {}, {overwrite(b)}, {.name = "second"});
  engine.push([] {}, {read(a), read(b)}, {.name = "sum"});
  return read_trace(engine).arrows;
}

TEST(TraceFile, ShowsTheArrowOfWhatAnOpWaitedForLastUnlessItShowsAll) {
  EXPECT_EQ(arrows_of({}), (Arrows{{"second", "sum"}}));
  EXPECT_EQ(arrows_of({.all_arrows = true}), (Arrows{{"first", "sum"}, {"second", "sum"}}));
}

TEST(TraceFile, MarksWhereItWasFull) {
  Engine engine({.policy = Policy::serial});
  const auto saved = [&] { return saved_trace(engine); };
  engine.trace().start({.max_ops_per_thread = 3});
  for (int i = 0; i < 3; ++i) engine.push([] {}, {}, {.name = "op"});
  EXPECT_EQ(saved().find("the trace was full"), std::string::npos);
  for (int i = 0; i < 7; ++i) engine.push([] {}, {}, {.name = "op"});
  EXPECT_NE(saved().find("\"the trace was full: 7 more ops are left out\""), std::string::npos) << saved();
}

TEST(TraceFile, AndGraphsAsTextDoNotDependOnTheLocale) {
  constexpr int ops = 1200;
  Engine engine({.policy = Policy::serial});
  const Var a = engine.new_var("a");
  const Graph graph = engine.capture([&] {
    for (int i = 0; i < ops; ++i) engine.push([] {}, {mutate(a)}, {.name = "n"});
  });
  const std::string dot = graph.dot();
  engine.trace().start();
  for (int i = 0; i < ops; ++i) engine.push([] {}, {mutate(a)}, {.name = "n"});
  engine.trace().stop();
  const std::string saved = saved_trace(engine), summary = to_string(engine.trace().summary());
  const Grouping grouping;
  EXPECT_EQ(graph.dot(), dot);
  EXPECT_NE(dot.find("op1199 ["), std::string::npos);
  EXPECT_EQ(saved_trace(engine), saved);
  EXPECT_EQ(to_string(engine.trace().summary()), summary);
}

}  // namespace
}  // namespace windrow::testing
