// Failures in replays: what they reach, and what they leave.
#include "tests/ops/mlp.h"

namespace windrow::testing {
namespace {

class StaticFailures : public InEveryOrder {};
WINDROW_EVERY_ORDER(StaticFailures);

TEST_P(StaticFailures, AreOverWhenTheProgramGoesOnWithOtherInputs) {
  const Tensor table(host, 3, 1, "table");
  table.set({10, 20, 30});
  Static look_up = recorded([&](const StaticInputs& call) -> std::vector<Tensor> {
    const Tensor rows = apply(host, op::gather_rows, {.in = {table}, .indices = call.indices});
    return {apply(host, op::softmax, {.in = {apply(host, op::softmax, {.in = {rows}})}})};
  });
  const IntTensor one(host, 1, 1, "one"), two(host, 2, 1, "two");
  one.set({1});
  two.set({1, 7});
  look_up({.indices = {one}});
  const Tensor failed = look_up({.indices = {two}})[0];
  expect_error<OpError>([&] { failed.get(); }, "7");
  EXPECT_EQ(look_up({.indices = {one}})[0].get(), std::vector<float>{1});
  // What the program holds stays as it is.
  expect_error<OpError>([&] { failed.get(); }, "7");
  engine.heal(failed.var());
  engine.wait_all();
  // So it is with an input that failed.
  two.fill([](const Matrix<std::int32_t>&) { throw std::runtime_error("no data"); }, {}, {.name = "load"});
  look_up({.indices = {two}});
  expect_error<OpError>([&] { failed.get(); }, "no data");
  two.set({1, 1});
  engine.heal(failed.var());
  look_up({.indices = {one}});
  engine.wait_all();
  EXPECT_EQ(look_up.stats().recorded, 2U);
}

/// Three numbers in a table, and an index that is there and one that is not.
struct LookUp {
  explicit LookUp(Engine& engine) : host(host_device(engine)) {
    table.set({10, 20, 30});
    good.set({1});
    bad.set({7});
  }
  std::vector<Tensor> operator()(const StaticInputs& call) const {
    return {apply(host, op::gather_rows, {.in = {table}, .indices = call.indices})};
  }

  Device host;
  Tensor table{host, 3, 1, "table"};
  IntTensor good{host, 1, 1}, bad{host, 1, 1};
};

TEST_P(StaticFailures, OfANestedStaticAreOverWhenTheProgramGoesOn) {
  const LookUp of_table(engine);
  Static inner(of_table.host, of_table);
  Static outer = recorded([&](const StaticInputs& call) -> std::vector<Tensor> {
    return {apply(of_table.host, op::square, {.in = {inner({.indices = call.indices})[0]}})};
  });
  outer({.indices = {of_table.bad}, .key = 2});
  expect_error<OpError>([&] { engine.wait_all(); }, "7");
  EXPECT_EQ(outer({.indices = {of_table.good}, .key = 1})[0].get(), std::vector<float>{400});
  EXPECT_EQ(outer({.indices = {of_table.good}, .key = 1})[0].get(), std::vector<float>{400});
  engine.wait_all();
}

/// A captured replay is the recording's own: other recordings may be dropped before the graph runs.
TEST_P(StaticFailures, OfOtherRecordingsArePartOfNoGraph) {
  const LookUp of_table(engine);
  Static look_up = recorded(of_table, {.most_recordings = 2});
  const Tensor result = look_up({.indices = {of_table.good}, .key = 1})[0];
  look_up({.indices = {of_table.bad}, .key = 2});
  expect_error<OpError>([&] { engine.wait_all(); }, "7");
  Graph graph = engine.capture([&] { look_up({.indices = {of_table.good}, .key = 1}); });
  look_up({.indices = {of_table.good}, .key = 1});
  engine.wait_all();  // healed by the call outside of the capture
  look_up({.indices = {of_table.good}, .key = 3});
  of_table.good.set({2});
  graph.launch();
  EXPECT_EQ(result.get(), std::vector<float>{30});
  engine.wait_all();
}

TEST_P(StaticFailures, SkipNoOpThatAlwaysRuns) {
  const auto counter = std::make_shared<Buffer>(engine, host_allocator(), 0, OpName("counter"));
  int loads = 0, cleanups = 0, failures = 0;
  Static step = recorded([&](const StaticInputs&) -> std::vector<Tensor> {
    const Tensor loaded(host, 1, 1, "loaded");
    const auto load = [&loads](const Matrix<float>& to) {
      if (++loads == 2) throw std::runtime_error("no data");
      *to.row(0) = static_cast<float>(loads);
    };
    loaded.fill(load, {}, {.name = "load"});
    const auto clean_up = [&](OpContext& context) {
      ++cleanups;
      if (context.failure()) ++failures;
    };
    push_replayable(engine, clean_up, {read(loaded.var()), mutate(counter->var())},
                    {.name = "clean up", .run_always = true}, {.all = {loaded.buffer(), counter}});
    return {apply(host, op::square, {.in = {loaded}})};
  });
  for (int i = 0; i < 3; ++i) step();
  EXPECT_EQ(step()[0].get(), std::vector<float>{16});
  engine.wait({overwrite(counter->var())});
  EXPECT_EQ(cleanups, 4);
  EXPECT_EQ(failures, 1);
  expect_error<OpError>([&] { engine.wait_all(); }, "no data");  // once
  engine.wait_all();
}

TEST_P(StaticFailures, ReachOnlyTheOpThatIsStopped) {
  const auto counter = std::make_shared<Buffer>(engine, host_allocator(), 0, OpName("counter"));
  const Tensor x(host, 1, 1, "x");
  x.set({3});
  std::stop_source stop;
  int runs = 0;
  Static step = recorded([&](const StaticInputs& call) -> std::vector<Tensor> {
    push_replayable(engine, [&runs] { ++runs; }, {mutate(counter->var())}, {.name = "count", .stop = stop.get_token()},
                    {.all = {counter}});
    return {apply(host, op::square, {.in = {apply(host, op::square, {.in = call.in})}})};
  });
  step({.in = {x}});
  EXPECT_EQ(step({.in = {x}})[0].get(), std::vector<float>{81});
  engine.wait(counter->var());
  stop.request_stop();
  x.set({1});
  EXPECT_EQ(step({.in = {x}})[0].get(), std::vector<float>{1});
  expect_error<OpError>([&] { engine.wait(counter->var()); }, "count");
  EXPECT_EQ(runs, 2);
}

}  // namespace
}  // namespace windrow::testing
