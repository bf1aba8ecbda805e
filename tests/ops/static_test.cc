// Recordings of operators: their replays against fresh runs, what a body may do, and the cache.
#include "windrow/ops/static.h"

#include "tests/memory/counting_allocator.h"
#include "tests/ops/host_tensors.h"
#include "tests/ops/mlp.h"
#include "tests/ops/random_operators.h"
#include "tests/sanitized.h"

namespace windrow::testing {
namespace {

using Results = std::vector<Tensor>;
using Order = StaticOptions::Order;

class StaticOnEveryPolicy : public InEveryOrder {};
WINDROW_EVERY_ORDER(StaticOnEveryPolicy);

Floats trained_fresh(const EngineOptions& options, int steps) {
  Engine engine(options);
  const Device host = host_device(engine);
  Mlp mlp(host);
  return trained(host, mlp, steps, [&](const StaticInputs& batch) { return mlp.step(batch); });
}

TEST_P(StaticOnEveryPolicy, GivesTheBitsOfAFreshRunForAThousandSteps) {
  constexpr int steps = sanitized ? 100 : 1000;
  static const Floats fresh = trained_fresh({.policy = Policy::serial}, steps);
  if (!sanitized) {
    EXPECT_LT(fresh[0] + fresh[1], 1);  // it has learned
  }
  Mlp mlp(host);
  Static step = recorded([&](const StaticInputs& batch) { return mlp.step(batch); });
  EXPECT_EQ(trained(host, mlp, steps, [&](const StaticInputs& batch) { return step(batch); }), fresh);
  EXPECT_EQ(step.stats().recorded, 1U);
  EXPECT_EQ(step.stats().replayed, steps - 1U);
  EXPECT_LT(step.stats().planned_bytes, step.stats().unshared_bytes);
}

TEST_P(StaticOnEveryPolicy, GivesTheBitsOfFreshRunsOfRandomOperators) {
  for (std::uint32_t seed = 1; seed <= (sanitized ? 5 : 25); ++seed) {
    SCOPED_TRACE(seed);
    Engine fresh_engine({.policy = Policy::serial});
    const Device fresh_host = host_device(fresh_engine);
    RandomOperators fresh(fresh_host, seed);
    const std::vector<Floats> expected =
        results_of(fresh_host, fresh, 8, [&](const StaticInputs& inputs) { return fresh.run(inputs); });
    RandomOperators program(host, seed);
    Static step = recorded([&](const StaticInputs& inputs) { return program.run(inputs); });
    EXPECT_EQ(results_of(host, program, 8, [&](const StaticInputs& inputs) { return step(inputs); }), expected);
  }
}

TEST_P(StaticOnEveryPolicy, RecoversFromAFailureInAReplay) {
  const Tensor table(host, 3, 1, "table");
  const Tensor one(host, 1, 1, "one");
  table.set({10, 20, 30});
  one.set({1});
  Static look_up = recorded([&](const StaticInputs& call) -> Results {
    Tensor rows = apply(host, op::gather_rows, {.in = {table}, .indices = call.indices});
    for (int i = 0; i < 4; ++i) rows = apply(host, op::matmul, {.in = {rows, one}});  // they share bytes
    return {apply(host, op::square, {.in = {rows}}), apply(host, op::neg, {.in = {table}})};
  });
  const IntTensor index(host, 2, 1, "index");
  index.set({2, 0});
  EXPECT_EQ(look_up({.indices = {index}})[0].get(), (Floats{900, 100}));
  for (int failures = 1; failures < 4; ++failures) {
    index.set({1, 7});
    for (int i = 0; i < failures; ++i) {
      const Tensor squares = look_up({.indices = {index}})[0];
      expect_error<OpError>([&] { squares.get(); }, "7");
    }
    index.set({1, 1});
    EXPECT_EQ(look_up({.indices = {index}})[0].get(), (Floats{400, 400}));
    EXPECT_EQ(look_up({.indices = {index}})[1].get(), (Floats{-10, -20, -30}));
  }
  EXPECT_EQ(look_up.stats().recorded, 1U);
  engine.wait_all();
}

TEST_P(StaticOnEveryPolicy, MayEndWhileItsReplaysRun) {
  std::optional<Tensor> y;
  {
    const Tensor x(host, 2, 2, "x");
    x.set({1, 2, 3, 4});
    Static twice(host, [&](const StaticInputs& call) -> Results {
      return {apply(host, op::add, {.in = {apply(host, op::neg, {.in = call.in}), call.in[0]}}),
              apply(host, op::add, {.in = {call.in[0], call.in[0]}})};
    });
    for (int i = 0; i < 20; ++i) y = twice({.in = {x}})[1];
  }
  EXPECT_EQ(y->get(), (Floats{2, 4, 6, 8}));
}

class StaticTest : public HostTensors {
 protected:
  /// Squares its first input.
  Static::Body square() {
    return [this](const StaticInputs& call) -> Results {
      ++bodies_;
      return {apply(host, op::square, {.in = {call.in[0]}})};
    };
  }

  int bodies_ = 0;
};

TEST_F(StaticTest, RecordsOnceForEachShapeAndKey) {
  Static step(host, square());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(step({.in = {filled(1, 2, 3)}})[0].get(), (Floats{9, 9}));
    EXPECT_EQ(step({.in = {filled(2, 1, 3)}})[0].get(), (Floats{9, 9}));
    EXPECT_EQ(step({.in = {filled(1, 1, 2)}})[0].get(), (Floats{4}));
    EXPECT_EQ(step({.in = {filled(1, 1, 2)}, .key = 1})[0].get(), (Floats{4}));
    EXPECT_EQ(step({.in = {filled(1, 1, 2)}, .indices = {ints(1, 1, {0})}})[0].get(), (Floats{4}));
  }
  EXPECT_EQ(bodies_, 5);
  const StaticStats stats = step.stats();
  EXPECT_EQ(stats.recorded, 5U);
  EXPECT_EQ(stats.replayed, 10U);
  EXPECT_EQ(stats.kept, 5U);
  EXPECT_EQ(stats.dropped, 0U);
}

TEST_F(StaticTest, DropsTheRecordingThatWasUsedLeastRecently) {
  Static step(host, square(), {.most_recordings = 2});
  const auto call = [&](Index rows) { return step({.in = {filled(rows, 1, 2)}})[0].get().size(); };
  call(1);
  call(2);
  call(1);
  call(3);  // drops that of 2 rows
  EXPECT_EQ(bodies_, 3);
  EXPECT_EQ(call(1), 1U);
  EXPECT_EQ(bodies_, 3);
  EXPECT_EQ(call(2), 2U);
  EXPECT_EQ(bodies_, 4);
  EXPECT_EQ(step.stats().dropped, 2U);
  EXPECT_EQ(step.stats().kept, 2U);
}

TEST_F(StaticTest, TakesViewsAsInputs) {
  Static step(host, square());
  const Tensor wide = tensor(2, 3, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(step({.in = {wide.column_range(1, 3)}})[0].get(), (Floats{4, 9, 25, 36}));
  EXPECT_EQ(step({.in = {wide.column_range(0, 2)}})[0].get(), (Floats{1, 4, 16, 25}));
  EXPECT_EQ(step({.in = {filled(2, 64, 3)}})[0].get(), Floats(128, 9)) << "with gaps between the rows";
}

TEST_F(StaticTest, RefusesWhatItCannotReplay) {
  const Var var = engine.new_var("var");
  const Tensor x = filled(1, 1, 1);
  const auto error = [&](const std::function<void()>& body) {
    Static step(host, [&](const StaticInputs&) -> Results {
      body();
      return {};
    });
    return error_of<MisuseError>([&] { step(); });
  };
  const auto names = [](const std::string& text, const char* what) {
    return text.find(what) != std::string::npos && text.find("replayable") != std::string::npos;
  };
  EXPECT_TRUE(names(error([&] { engine.push([] {}, {mutate(var)}, {.name = "count"}); }), "count"));
  EXPECT_TRUE(names(error([&] { engine.push_async([](OnComplete) {}, {mutate(var)}, {.name = "send"}); }), "send"));
  EXPECT_TRUE(names(error([&] { engine.heal(var); }), "heal"));
  EXPECT_TRUE(names(error([&] { x.get(); }), "get"));
  EXPECT_TRUE(names(error([&] { engine.wait(var); }), "wait"));
  EXPECT_TRUE(names(error([&] { engine.capture([] {}); }), "capture"));
  const Graph graph = engine.capture([&] { engine.push([] {}, {mutate(var)}); }, "graph");
  EXPECT_TRUE(names(error([&] { graph.launch(); }), "graph"));
  const DeclaredOp declared = engine.declare([] {}, {mutate(var)}, {.name = "declared"});
  EXPECT_TRUE(names(error([&] { engine.push(declared); }), "declared"));
  EXPECT_TRUE(names(error([&] { refuse_in_recording("this"); }), "this"));
  EXPECT_NO_THROW(refuse_in_recording("this"));
  engine.push([] {}, {mutate(var)});  // and everything is possible again
  engine.wait_all();
}

TEST_F(StaticTest, RefusesTensorsThatReplaysWouldNotFind) {
  std::optional<Tensor> carried = filled(1, 1, 1);
  Static handle(host, [&](const StaticInputs&) -> Results {
    carried = apply(host, op::neg, {.in = {*carried}});
    return {};
  });
  expect_error<MisuseError>([&] { handle(); }, "nobody holds");
  Static unwritten(
      host, [&](const StaticInputs&) -> Results { return {apply(host, op::neg, {.in = {Tensor(host, 1, 1)}})}; });
  expect_error<MisuseError>([&] { unwritten(); }, "'neg'");
}

TEST_F(StaticTest, KeepsNothingOfABodyThatThrows) {
  const Tensor state = filled(1, 1, 2);
  bool throws = true;
  Static step(host, [&](const StaticInputs&) -> Results {
    apply(host, op::neg, {.in = {filled(1, 1, 5)}, .write = Write::add}, state);
    if (throws) throw std::runtime_error("not today");
    return {state};
  });
  engine.wait_all();
  const std::uint64_t version = engine.version(state.var());
  EXPECT_EQ(error_of<std::runtime_error>([&] { step(); }), "not today");
  engine.wait_all();
  EXPECT_EQ(engine.version(state.var()), version);
  EXPECT_EQ(step.stats().kept, 0U);
  throws = false;
  EXPECT_EQ(step()[0].get(), (Floats{-3}));
  EXPECT_EQ(step()[0].get(), (Floats{-8}));
}

TEST_F(StaticTest, BecomesAPartOfAnother) {
  Static inner(host, square());
  Static outer(host, [&](const StaticInputs& call) -> Results {
    return {apply(host, op::neg, {.in = {inner({.in = {inner(call)[0]}})[0]}})};
  });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(outer({.in = {filled(1, 1, 3)}})[0].get(), (Floats{-81}));
  EXPECT_EQ(bodies_, 2);
  EXPECT_EQ(inner.stats().recorded, 0U);
  EXPECT_EQ(inner({.in = {filled(1, 1, 3)}})[0].get(), (Floats{9}));
}

/// A deprecated call, for as long as it is there.
TEST_F(StaticTest, AnalysesAgainWhenOpsAreAppended) {
  Static step(host, square());
  step({.in = {filled(1, 1, 3)}});
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  step.append(square());
#pragma GCC diagnostic pop
  for (float x = 1; x < 4; ++x) EXPECT_EQ(step({.in = {filled(1, 1, x)}})[1].get(), (Floats{x * x}));
  EXPECT_EQ(step.stats().ops, 2U);
  EXPECT_EQ(step.stats().dropped, 1U);
}

TEST_F(StaticTest, PlansPlacesForTensorsThatNobodyHolds) {
  Static chain(host, [&](const StaticInputs& call) -> Results {
    Tensor x = call.in[0];
    for (int i = 0; i < 10; ++i) x = apply(host, op::softmax, {.in = {x}});
    for (int i = 0; i < 10; ++i) x = apply(host, op::tanh, {.in = {x}});
    return {apply(host, op::neg, {.in = {x}})};
  });
  chain({.in = {filled(4, 16, 1)}});
  EXPECT_EQ(chain.stats().unshared_bytes, 20 * 4 * 16 * sizeof(float));
  EXPECT_EQ(chain.stats().planned_bytes, 2 * 4 * 16 * sizeof(float));  // one, where it is computed in place
}

TEST_F(StaticTest, ReturnsAllMemory) {
  const auto memory = std::make_shared<CountingAllocator>();
  host.memory = memory;
  {
    Static step(host, square(), {.order = Order::serial});
    for (Index rows = 1; rows < 20; ++rows) step({.in = {filled(rows, 3, 1)}});
    Static twice(host, [&](const StaticInputs& call) -> Results {
      return {apply(host, op::neg, {.in = {apply(host, op::neg, {.in = call.in})}})};
    });
    for (int i = 0; i < 3; ++i) EXPECT_EQ(twice({.in = {filled(1, 1, 3)}})[0].get(), (Floats{3}));
  }
  engine.wait_all();
  EXPECT_EQ(memory->held, 0U);
}

TEST_F(StaticTest, PushesOnceWhatIsUnrecorded) {
  std::optional<Tensor> state;
  Static count(host, [&](const StaticInputs& call) -> Results {
    if (!state) {
      const Unrecorded once;
      state = filled(1, 1, 100);
    }
    apply(host, op::add, {.in = {call.in[0], call.in[0]}, .write = Write::add}, *state);
    return {*state};
  });
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(count({.in = {filled(1, 1, 1)}})[0].get(), (Floats{100 + 2 * static_cast<float>(i)}));
  }
}

TEST_F(StaticTest, RefusesWrongArguments) {
  expect_error<MisuseError>([&] { Static(host, nullptr); }, "body");
  expect_error<MisuseError>([&] { Static(host, square(), {.most_recordings = 0}); }, "most_recordings");
  Engine other;
  const Device elsewhere = host_device(other);
  Static step(host, [&](const StaticInputs&) -> Results {
    return {apply(elsewhere, op::neg, {.in = {Tensor(elsewhere, 1, 1)}})};
  });
  expect_error<MisuseError>([&] { step(); }, "another engine");
}

TEST_F(StaticTest, ThrowsAfterItsEngineHasEnded) {
  std::optional<Engine> ends(std::in_place);
  std::optional<Static> step;
  step.emplace(host_device(*ends), [](const StaticInputs&) -> Results { return {}; });
  (*step)();
  ends.reset();
  EXPECT_NE(error_of<MisuseError>([&] { (*step)(); }), "");
  step.reset();
}

/// A body may return its inputs, and the program may pass them on: as a delay line does.
TEST_P(StaticOnEveryPolicy, TakesWhatItReturnedAsAnyInput) {
  Static step = recorded([&](const StaticInputs& call) -> Results {
    return {apply(host, op::sub, {.in = {call.in[0], call.in[1]}}), call.in[0], call.in[1]};
  });
  const Tensor x(host, 1, 1);
  Tensor before(host, 1, 1);
  before.set({0});
  for (int i = 1; i <= 4; ++i) {
    x.set({static_cast<float>(i * i)});
    const Results results = step({.in = {x, before}});
    EXPECT_EQ(results[0].get(), Floats{static_cast<float>(2 * i - 1)});
    before = results[1];
  }
  const Results last = step({.in = {before, x}});  // x = 16, as before
  x.set({7});
  const Results made = step({.in = {x, last[1]}});
  const Results swapped = step({.in = {made[2], made[1]}});
  EXPECT_EQ(swapped[0].get(), Floats{9});
  EXPECT_EQ(step({.in = {swapped[1], swapped[2]}})[0].get(), Floats{9});
}

TEST_F(StaticTest, AccessesOnlyWhatItDeclares) {
  Engine checks({.check = true});
  const Device checked = host_device(checks);
  Mlp mlp(checked);
  Static step(checked, [&](const StaticInputs& batch) { return mlp.step(batch); });
  const Batches batches(checked);
  for (int i = 0; i < 3; ++i) step(batches.next(i));
  EXPECT_NO_THROW(checks.wait_all());
}

}  // namespace
}  // namespace windrow::testing
