// What bodies of a Static may not do, and what does not become a part of them. Failures in replays: what they reach,
// and what they leave.
#include "tests/ops/host_tensors.h"
#include "tests/ops/mlp.h"
#include "windrow/ops/apply.h"

namespace windrow::testing {
namespace {

class StaticMisuse : public HostTensors {
 protected:
  StaticMisuse() : HostTensors({.policy = Policy::serial}) {}
  Tensor number(float value) const { return filled(1, 1, value); }
  Static::Body negate() const {
    return [this](const StaticInputs& call) -> std::vector<Tensor> { return {apply(host, op::neg, {.in = call.in})}; };
  }
};

TEST_F(StaticMisuse, FindsAHandleThatOnlyAnotherRecordingHolds) {
  std::optional<Tensor> carried;
  Static sum(host, [&](const StaticInputs& call) -> std::vector<Tensor> {
    if (!carried) carried = number(0);
    carried = apply(host, op::add, {.in = {*carried, call.in[0]}});
    return {*carried};
  });
  const Tensor x = number(1);
  sum({.in = {x}});
  expect_error<MisuseError>([&] { sum({.in = {x}, .key = 1}); }, "nobody holds");
  // A tensor that recordings share and the program holds is no such handle.
  const Tensor total = number(0);
  Static in_place(host, [&](const StaticInputs& call) -> std::vector<Tensor> {
    apply(host, op::neg, {.in = call.in, .write = Write::add}, total);
    return {total};
  });
  for (std::uint64_t key = 0; key < 3; ++key) in_place({.in = {x}, .key = key});
  EXPECT_EQ(total.get(), Floats{-3});
}

TEST_F(StaticMisuse, KeepsNothingOfAnInnerBodyThatThrewAndWasCaught) {
  const Tensor sum = number(0), x = number(1);
  const auto add_to_sum = [&](const Tensor& what) {
    apply(host, op::stop_gradient, {.in = {what}, .write = Write::add}, sum);
  };
  Static inner(host, [&](const StaticInputs& call) -> std::vector<Tensor> {
    add_to_sum(call.in[0]);
    throw std::runtime_error("no");
  });
  Static closed(host,
                [&](const StaticInputs& call) -> std::vector<Tensor> {
                  add_to_sum(call.in[0]);
                  return {};
                },
                {.reads = std::vector<Tensor>()});
  Static outer(host, [&](const StaticInputs& call) -> std::vector<Tensor> {
    const Tensor before = apply(host, op::neg, {.in = call.in});
    EXPECT_THROW(inner(call), std::runtime_error);
    EXPECT_THROW(closed(call), MisuseError);
    return {apply(host, op::square, {.in = {before}})};
  });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(outer({.in = {x}})[0].get(), Floats{1});
  EXPECT_EQ(sum.get(), Floats{0});
}

TEST_F(StaticMisuse, FindsAPartOfATensorThatReplaysWouldNotClear) {
  Static partly(host, [&](const StaticInputs& call) -> std::vector<Tensor> {
    const auto buffer = std::make_shared<Buffer>(engine, host_allocator(), 2 * sizeof(float), OpName("two"));
    const Tensor two(buffer, 2, 1);
    apply(host, op::neg, {.in = call.in}, two.row_range(0, 1));
    return {apply(host, op::square, {.in = {two}})};
  });
  const Tensor x = number(1);
  expect_error<MisuseError>([&] { partly({.in = {x}}); }, "a part of");
}

/// Here are also calls that look wrong, but are not.
TEST_F(StaticMisuse, TakesAnotherViewOfItsOwnInput) {
  Static step(host, [&](const StaticInputs& call) -> std::vector<Tensor> {
    return {apply(host, op::neg, {.in = {call.in[0]}}), call.in[0]};
  });
  const Tensor x = drawn(4, 64);  // whose rows are not dense in memory
  const Tensor own = step({.in = {x}})[1];
  const Tensor dense(own.buffer(), 4, 64, 0);
  Floats expected = dense.get();
  for (float& one : expected) one = -one;
  EXPECT_EQ(step({.in = {dense}})[0].get(), expected);
}

TEST_F(StaticMisuse, DropsRecordingsWhereMemoryIsLimited) {
  host = host_device(engine, 1000000);
  Static step(host, [&](const StaticInputs& call) -> std::vector<Tensor> {
    const Tensor twice = apply(host, op::add, {.in = {call.in[0], call.in[0]}});
    return {apply(host, op::column_sum, {.in = {apply(host, op::square, {.in = {twice}})}})};
  });
  for (int pass = 0; pass < 2; ++pass) {
    for (const Index rows : {100, 200, 300, 400}) {
      EXPECT_EQ(step({.in = {filled(rows, 100, 1)}})[0].get().at(0), static_cast<float>(4 * rows)) << rows;
    }
  }
  EXPECT_GT(step.stats().dropped, 0U);
}

TEST_F(StaticMisuse, RecordsNoOpThatItsThreadRunsMeanwhile) {
  const Tensor x = number(3), y = number(0);
  int bodies = 0;
  Static inner(host, negate());
  Static step(host, [&](const StaticInputs& call) -> std::vector<Tensor> {
    if (++bodies == 1) {
      engine.retire(engine.new_var("ends"), [&] {  // with policy serial, it runs at once
        apply(host, op::square, {.in = {x}}, y);
        apply(host, op::neg, {.in = inner({.in = {x}}), .write = Write::add}, y);
      });
    }
    return {apply(host, op::neg, {.in = call.in})};
  });
  EXPECT_EQ(step({.in = {x}})[0].get(), Floats{-3});
  EXPECT_EQ(step.stats().ops, 1U);
  EXPECT_EQ(inner.stats().recorded, 1U);
  x.set({1});
  EXPECT_EQ(step({.in = {x}})[0].get(), Floats{-1});
  EXPECT_EQ(y.get(), Floats{12});
}

TEST_F(StaticMisuse, ThrowsWhereABodyUsesItsOwnStatic) {
  const Tensor x = number(3);
  std::optional<Static> step;
  std::function<void(const StaticInputs&)> own_use;
  step.emplace(host, [&](const StaticInputs& call) -> std::vector<Tensor> {
    own_use(call);
    return {apply(host, op::neg, {.in = call.in})};
  });
  const auto expect_refused = [&](Static& called, std::function<void(const StaticInputs&)> use) {
    own_use = std::move(use);
    expect_error<MisuseError>([&] { called({.in = {x}}); }, "own body");
  };
  const auto call = [&](const StaticInputs& inputs) { (*step)(inputs); };
  Static outer(host, [&](const StaticInputs& inputs) -> std::vector<Tensor> { return (*step)(inputs); });
  expect_refused(*step, call);
  expect_refused(*step, [&](const StaticInputs& inputs) {
    const Unrecorded once;
    call(inputs);
  });
  expect_refused(outer, call);
  own_use = [](const StaticInputs&) {};
  EXPECT_EQ((*step)({.in = {x}})[0].get(), Floats{-3});
  EXPECT_EQ(outer({.in = {x}}).size(), 1U);
}

TEST_F(StaticMisuse, RefusesOpsThatNoPushAccepts) {
  Engine other;
  const Var var = engine.new_var("var"), foreign = other.new_var("foreign"), retired = engine.new_var("retired");
  engine.retire(retired);
  const auto error = [&](OpFunction function, const Var& of, LaneId lane = host_lane) {
    bool in_body = false;
    Static step(host, [&](const StaticInputs&) -> std::vector<Tensor> {
      in_body = true;
      push_replayable(engine, std::move(function), {mutate(of)}, {.name = "count", .lane = lane}, {});
      in_body = false;
      return {};
    });
    const std::string text = error_of<MisuseError>([&] { step(); });
    EXPECT_TRUE(in_body) << "thrown behind the push";
    EXPECT_NE(text.find("'count'"), std::string::npos) << text;
    return text;
  };
  const auto names = [](const std::string& text, const char* what) { return text.find(what) != std::string::npos; };
  EXPECT_TRUE(names(error(nullptr, var), "function"));
  EXPECT_TRUE(names(error([] {}, {}), "empty"));
  EXPECT_TRUE(names(error([] {}, foreign), "another engine"));
  EXPECT_TRUE(names(error([] {}, retired), "retired"));
  EXPECT_TRUE(names(error([] {}, var, other.add_lane(HostLane{.name = "io"})), "lane"));
}

TEST_F(StaticMisuse, IsRecordedBeforeACapture) {
  Static step(host, negate());
  const Tensor x = number(3);
  expect_error<MisuseError>([&] { engine.capture([&] { step({.in = {x}}); }); }, "first call for these inputs");
  const Tensor y = step({.in = {x}})[0];
  const Graph graph = engine.capture([&] { step({.in = {x}}); });
  x.set({4});
  graph.launch();
  EXPECT_EQ(y.get(), Floats{-4});
}

class StaticFailures : public InEveryOrder {};
WINDROW_EVERY_ORDER(StaticFailures);

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

TEST_P(StaticFailures, AreOverWhenTheProgramGoesOnWithOtherInputs) {
  const LookUp of_table(engine);
  Static look_up = recorded([&](const StaticInputs& call) -> std::vector<Tensor> {
    const Tensor rows = of_table(call)[0];
    return {apply(host, op::softmax, {.in = {apply(host, op::softmax, {.in = {rows}})}})};
  });
  const IntTensor &one = of_table.good, two(host, 2, 1, "two");
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
