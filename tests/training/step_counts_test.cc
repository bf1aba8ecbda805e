// Which steps the bias correction of adam counts: those of each parameter, and of each row of a table. Steps of tables.
// Optimisers in the body of a Static: replayed steps count on, and follow the schedule.
#include "tests/batching/tied_cell.h"
#include "tests/training/files.h"
#include "tests/training/members.h"
#include "windrow/ops/static.h"
#include "windrow/training/optimiser.h"

namespace windrow::testing {
namespace {

constexpr Index table_rows = 5, table_width = 3;
constexpr double rate = 0.01;

/// The rows of a table that a step changes, by gradients that seem to belong to a whole step or to lookups.
struct ChangedRows {
  bool dense;
  std::vector<std::int32_t> rows;
  Floats gradient;  // row by row
};

ChangedRows draw_change(std::mt19937& random) {
  ChangedRows made{.dense = random() % 3 == 0, .rows = {}, .gradient = {}};
  const std::uint32_t looked_up = random();
  for (std::int32_t r = 0; r < table_rows; ++r) {
    if (made.dense || (looked_up >> r & 1) != 0) made.rows.push_back(r);
  }
  for (std::size_t i = 0; i < made.rows.size() * table_width; ++i) {
    made.gradient.push_back(static_cast<float>(random() % 2001) / 1000 - 1);
  }
  return made;
}

/// Adam in double precision, with a number of steps for each row.
struct OracleTable {
  std::vector<Element> elements = std::vector<Element>(table_rows * table_width, Element("adam"));

  void step(const ChangedRows& change) {
    for (std::size_t i = 0; i < change.gradient.size(); ++i) {
      const std::size_t at = static_cast<std::size_t>(change.rows[i / table_width]) * table_width + i % table_width;
      elements[at].step(static_cast<double>(change.gradient[i]));
    }
  }
};

struct Trained : OnHost {
  explicit Trained(NonFinite non_finite = NonFinite::fail) : OnHost({.workers = 2}, 1, {.non_finite = non_finite}) {}

  void give(const ChangedRows& change, bool finite = true) {
    parameters.begin_minibatch();
    Floats gradient = change.gradient;
    if (!finite) gradient.at(0) = std::numeric_limits<float>::infinity();
    const Tensor g = tensor(gradient, table_width);
    change.dense ? parameters.set_gradient(table, g) : parameters.set_gradient(table, change.rows, g);
  }
  void step(const ChangedRows& change, bool finite = true) {
    give(change, finite);
    optimiser.step(1);
  }
  Floats values() const { return parameters.value(table).get(); }

  Parameter table = parameters.add("table", table_rows, table_width, Initial::zeros()),
            other = parameters.add("other", 1, 2, Initial::zeros());
  Optimiser optimiser{parameters, Method::adam(), {.rate = rate}};
};

void expect_oracle(const Floats& values, const OracleTable& expected) {
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected.elements[i].value(), 2e-6) << i;
}

TEST(StepCounts, AreThoseOfEachRowWhetherGradientsAreDenseOrByRows) {
  std::mt19937 random(first_seed());
  for (int run = 0; run < 20; ++run) {
    Trained trained(NonFinite::skip);
    OracleTable oracle;
    for (int k = 0; k < 40; ++k) {
      const ChangedRows change = draw_change(random);
      if (change.rows.empty()) continue;
      const bool finite = random() % 5 != 0;
      trained.step(change, finite);
      if (finite) oracle.step(change);
    }
    expect_oracle(trained.values(), oracle);
  }
}

/// Steps 1, 2, 3 ... of a constant gradient of 1.
std::vector<double> steps_of_late_one(const std::function<void(Trained&, int)>& before) {
  Trained trained;
  const Tensor one = trained.tensor({1, 1}, 2);
  std::vector<double> moved;
  double last = 0;
  for (int k = 0; k < 310; ++k) {
    before(trained, k);
    trained.give({.dense = true, .rows = {0, 1, 2, 3, 4}, .gradient = Floats(table_rows * table_width, 1)});
    if (k >= 300 || trained.parameters.frozen(trained.other)) trained.parameters.add_gradient(trained.other, one);
    trained.optimiser.step(1);
    const double now = static_cast<double>(trained.parameters.value(trained.other).get()[0]);
    if (k >= 300) moved.push_back(last - now);
    last = now;
  }
  return moved;
}

TEST(StepCounts, BeginWithTheFirstGradientOfAParameterOrWhenItIsUnfrozen) {
  const auto late = steps_of_late_one([](Trained&, int) {});
  const auto frozen = steps_of_late_one([](Trained& trained, int k) {
    k < 300 ? trained.parameters.freeze(trained.other) : trained.parameters.unfreeze(trained.other);
  });
  for (const double moved : late) EXPECT_NEAR(moved, rate, 1e-6);
  for (const double moved : frozen) EXPECT_NEAR(moved, rate, 1e-6);
}

class StepCountFiles : public FileTest {
 protected:
  /// Trains, and goes on from a checkpoint in between; `change_contents` may change what is written.
  Floats train(const std::vector<ChangedRows>& all, std::size_t first,
               const std::function<void(CheckpointContents&)>& change_contents) {
    Trained before, after;
    for (std::size_t k = 0; k < first; ++k) before.step(all[k]);
    const Snapshot snapshot({before.parameters, &before.optimiser});
    CheckpointContents contents = snapshot.contents(1);
    change_contents(contents);
    CheckpointWriter(folder / "run", {.resume = true}).write(contents);
    restore(*CheckpointFolder(folder / "run").newest().checkpoint, {after.parameters, &after.optimiser});
    EXPECT_EQ(after.optimiser.progress().steps, first);
    for (std::size_t k = first; k < all.size(); ++k) after.step(all[k]);
    return after.values();
  }
};

TEST_F(StepCountFiles, KeepThem) {
  std::mt19937 random(first_seed());
  std::vector<ChangedRows> all;
  while (all.size() < 30) {
    all.push_back(draw_change(random));
    if (all.back().rows.empty()) all.pop_back();
  }
  Trained whole;
  for (const ChangedRows& change : all) whole.step(change);
  for (const std::size_t first : {1, 7, 20}) EXPECT_EQ(train(all, first, [](auto&) {}), whole.values());
}

TEST_F(StepCountFiles, WithoutThemCountTheStepsOfTheOptimiser) {
  // As checkpoints were before.
  std::vector<ChangedRows> all(6, {.dense = false, .rows = {1, 3}, .gradient = Floats(2 * table_width, 0.5f)});
  const auto without = [](CheckpointContents& contents) {
    std::erase_if(contents.tensors, [](const NamedArray& one) { return one.name.find(".steps/") != one.name.npos; });
    Record training = contents.document.at("training").record();
    training.remove("steps_of");
    contents.document.set("training", training);
  };
  Trained whole;
  for (const ChangedRows& change : all) whole.step(change);
  EXPECT_EQ(train(all, 4, without), whole.values());
}

TEST(StepCounts, AreEqualAtAllMembersOfAGroupShardedOrNot) {
  for (const bool sharded : {false, true}) {
    std::array<Trained, 3> members;
    const LocalGroup group({members[0].host, members[1].host, members[2].host});
    std::vector<OracleTable> oracles(3);
    on_threads(3, [&](int member) {
      const auto rank = static_cast<std::size_t>(member);
      Trained& own = members[rank];
      DataParallel parallel(group[member], own.parameters, {.sharded = sharded ? &own.optimiser : nullptr});
      std::mt19937 random(first_seed());
      for (int k = 0; k < 30; ++k) {
        // Each member has the gradient of some rows.
        ChangedRows change = draw_change(random), part{.dense = change.dense, .rows = {}, .gradient = {}};
        if (change.rows.empty()) continue;
        for (std::size_t i = 0; i < change.rows.size(); ++i) {
          if (!change.dense && i % 3 != rank) continue;
          part.rows.push_back(change.rows[i]);
          for (std::size_t c = 0; c < table_width; ++c) {
            const float g = change.gradient[i * table_width + c];
            part.gradient.push_back(change.dense && i % 3 != rank ? 0 : g);
          }
        }
        oracles[rank].step(change);
        part.rows.empty() ? void(own.parameters.begin_minibatch()) : own.give(part);
        own.optimiser.step(parallel.combine(rank == 0 ? 1 : 0));
      }
      expect_oracle(own.values(), oracles[rank]);
    });
    EXPECT_EQ(members[1].values(), members[0].values());
    EXPECT_EQ(members[2].values(), members[0].values());
  }
}

/// A table that is looked up, in bags and alone, and multiplied if it is tied.
struct Tied : OnHost {
  explicit Tied(bool tied) : cell(parameters, tied) {}
  void differentiate(unsigned seed) {
    const Graphs graphs(function, {some_words(6, seed)});
    runner.differentiate(graphs.pointers);
  }
  Floats values() const { return parameters.value(cell.table).get(); }

  const TiedCell cell;
  VertexFunction function{"tied", {}, [this](Vertex& v) { cell(v); }};
  Runner runner{host, function, parameters};
};

TEST(Tables, TakeTheStepsOfDenseGradients) {
  using Tables = OptimiserOptions::Tables;
  for (const Method& method :
       {Method::sgd(), Method::momentum(), Method::adagrad(), Method::rmsprop(), Method::adam()}) {
    for (const auto& [tied, tables] : {std::pair(true, Tables::lazy), {true, Tables::dense}, {false, Tables::dense}}) {
      for (const std::uint64_t accumulate : {1, 2}) {
        SCOPED_TRACE(method.name + (tied ? ", tied" : "") + (tables == Tables::lazy ? ", lazy" : ""));
        const OptimiserOptions options{
            .rate = 0.05, .penalty = 0.01, .clip_norm = 2, .accumulate = accumulate, .tables = tables};
        Tied one(tied), other(tied), gradients(tied);  // the last one computes what the second one is given
        Optimiser of_one(one.parameters, method, options), of_other(other.parameters, method, options);
        for (unsigned seed = first_seed(); seed < first_seed() + 4; ++seed) {
          gradients.parameters.value(gradients.cell.table).set(one.values());
          gradients.differentiate(seed);
          other.parameters.begin_minibatch();
          other.parameters.add_gradient(
              other.cell.table,
              other.tensor(gradients.parameters.dense_gradient(gradients.cell.table).get(), TiedCell::width));
          one.differentiate(seed);
          of_one.step(6);
          of_other.step(6);
        }
        // Where a gradient is nearly zero, a step of adam or rmsprop magnifies its rounding errors.
        expect_near(one.values(), other.values(), 1e-4);
      }
    }
  }
}

/// Two parameters whose gradients are inputs of steps; the second one gets its first gradient late.
struct GivenGradients : OnHost {
  GivenGradients(const EngineOptions& on, const Method& method, const OptimiserOptions& options,
                 const ParametersOptions& of_parameters = {})
      : OnHost(on, 3, of_parameters), optimiser(parameters, method, options) {}

  std::vector<Tensor> step(const StaticInputs& inputs) {
    parameters.set_gradient(first, inputs.in[0]);
    if (inputs.in.size() > 1) parameters.set_gradient(late, inputs.in[1]);
    optimiser.step(3);
    parameters.forget_gradients();
    return {};
  }
  template <class Step>
  std::vector<Floats> train(int steps, const Step& step_by) {
    for (int k = 0; k < steps; ++k) {
      Floats gradient;
      for (int i = 0; i < 15; ++i) gradient.push_back(static_cast<float>((i * 7 + k) % 13) / 13 - 0.5f);
      StaticInputs inputs{.in = {tensor(gradient, 3)}};
      if (k >= steps - 20) inputs.in.push_back(tensor({1, static_cast<float>(k % 5) - 2}, 2));
      step_by(inputs);
    }
    return values_of(parameters);
  }

  Parameter first = parameters.add("first", 5, 3, Initial::uniform(-1, 1)),
            late = parameters.add("late", 1, 2, Initial::zeros());
  Optimiser optimiser;
};

class RecordedSteps : public EveryPolicy {};
WINDROW_EVERY_POLICY(RecordedSteps);

TEST_P(RecordedSteps, EqualFreshOnesForManySteps) {
  constexpr int steps = thread_sanitized ? 100 : 1000;
  const OptimiserOptions how{.rate = LearningRate::cosine(0.05, 700, 0.001), .decay = 0.01, .clip_norm = 0.2};
  for (const Method& method : {Method::adam(), Method::momentum()}) {
    GivenGradients fresh({.policy = Policy::serial}, method, how);
    const auto expected = fresh.train(steps, [&](const StaticInputs& inputs) { fresh.step(inputs); });
    for (const StaticOptions::Order order : {StaticOptions::Order::parallel, StaticOptions::Order::serial}) {
      GivenGradients model(options(), method, how);
      Static step(model.host, [&](const StaticInputs& inputs) { return model.step(inputs); }, {.order = order});
      EXPECT_EQ(model.train(steps, [&](const StaticInputs& inputs) { step(inputs); }), expected);
      EXPECT_EQ(step.stats().recorded, 2U);
      EXPECT_EQ(model.optimiser.progress().steps, steps);
      EXPECT_EQ(model.optimiser.progress().steps_of, (std::map<std::string, std::uint64_t>{{"late", 20}}));
      EXPECT_EQ(model.optimiser.rate(), fresh.optimiser.rate());
    }
  }
}

/// The error of recording a step.
std::string error_of_step(const OptimiserOptions& options, const ParametersOptions& of_parameters) {
  GivenGradients model({.policy = Policy::serial}, Method::sgd(), options, of_parameters);
  Static step(model.host, [&](const StaticInputs& inputs) { return model.step(inputs); });
  const std::string error =
      error_of<MisuseError>([&] { model.train(1, [&](const StaticInputs& inputs) { step(inputs); }); });
  EXPECT_FALSE(model.optimiser.between_steps());
  return error;
}

TEST(RecordedStep, RefusesWhatReplaysWouldNotDo) {
  EXPECT_NE(error_of_step({.accumulate = 2}, {}).find("accumulate"), std::string::npos);
  EXPECT_NE(error_of_step({}, {.non_finite = NonFinite::skip}).find("NonFinite::skip"), std::string::npos);
  GivenGradients collects({.policy = Policy::serial}, Method::sgd(), {.accumulate = 2});
  collects.train(1, [&](const StaticInputs& inputs) { collects.step(inputs); });
  Static finishes(collects.host, [&](const StaticInputs&) -> std::vector<Tensor> {
    collects.optimiser.finish();
    return {};
  });
  expect_error<MisuseError>([&] { finishes(); }, "Optimiser::finish()");
  EXPECT_TRUE(collects.optimiser.between_steps());
  Static step(collects.host, [&](const StaticInputs&) -> std::vector<Tensor> {
    return {collects.parameters.value(collects.parameters.add("later", 1, 1, Initial::zeros()))};
  });
  expect_error<MisuseError>([&] { step(); }, "Parameters::add()");
  EXPECT_EQ(collects.parameters.size(), 2U);
}

}  // namespace
}  // namespace windrow::testing
