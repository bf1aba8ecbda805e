// Which steps the bias correction of adam counts: those of each parameter, and of each row of a table.
#include <memory>

#include "tests/batching/support.h"
#include "tests/training/files.h"
#include "tests/training/members.h"
#include "windrow/ops/static.h"
#include "windrow/training/checkpoint.h"
#include "windrow/training/data_parallel.h"
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

void expect_near(const Floats& values, const OracleTable& expected) {
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
    expect_near(trained.values(), oracle);
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
    CheckpointWriter(folder / "run").write(contents);
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

TEST(StepCounts, GoOnInRecordedSteps) {
  Trained fresh, recorded;
  const auto make = [](Trained& trained) {
    return [&trained](const StaticInputs& in) -> std::vector<Tensor> {
      trained.parameters.set_gradient(trained.table, in.in[0]);
      if (in.in.size() > 1) trained.parameters.set_gradient(trained.other, in.in[1]);
      trained.optimiser.step(1);
      trained.parameters.forget_gradients();
      return {};
    };
  };
  Static step(recorded.host, make(recorded));
  const auto run = [](Trained& trained, const auto& body) {
    for (int k = 0; k < 60; ++k) {
      StaticInputs in{
          .in = {trained.tensor(Floats(table_rows * table_width, static_cast<float>(k % 7) - 3), table_width)}};
      if (k >= 40) in.in.push_back(trained.tensor({1, static_cast<float>(k % 5) - 2}, 2));
      body(in);
    }
    Floats all = trained.values();
    for (const float value : trained.parameters.value(trained.other).get()) all.push_back(value);
    return all;
  };
  EXPECT_EQ(run(recorded, [&](const StaticInputs& in) { step(in); }), run(fresh, make(fresh)));
  EXPECT_EQ(recorded.optimiser.progress().steps_of, (std::map<std::string, std::uint64_t>{{"other", 20}}));
}

TEST(StepCounts, AreEqualAtAllMembersOfAGroupShardedOrNot) {
  for (const bool sharded : {false, true}) {
    std::array<Trained, 3> members;
    const LocalGroup group({members[0].host, members[1].host, members[2].host});
    std::vector<OracleTable> oracles(3);
    in_threads(3, [&](int member) {
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
      expect_near(own.values(), oracles[rank]);
    });
    EXPECT_EQ(members[1].values(), members[0].values());
    EXPECT_EQ(members[2].values(), members[0].values());
  }
}

/// The same loss of a table, by lookups or by products with the numbers of times that each row is looked up.
class TableModel : public OnHost {
 public:
  enum class Form { lookups, products };
  TableModel(Form form, bool tied) : form_(form), tied_(tied) {}

  void differentiate(std::uint32_t seed) {
    std::mt19937 random(seed);
    GraphData data = leaves(samples);
    for (std::size_t v = 0; v < samples; ++v) {
      Floats of_word(rows, 0), of_bag(rows, 0);
      const auto word = random() % (rows - 1);  // the last row is in no sample
      data.indices["word"].push_back(static_cast<std::int32_t>(word));
      ++of_word[word];
      for (int i = 0; i < 3; ++i) {
        const auto row = static_cast<std::int32_t>(random() % rows) - 1;
        data.indices["bag"].push_back(row);
        if (row >= 0) ++of_bag[static_cast<std::size_t>(row)];
      }
      for (const auto& [name, counts] : {std::pair("words", &of_word), {"bags", &of_bag}}) {
        data.values[name].insert(data.values[name].end(), counts->begin(), counts->end());
      }
      data.indices["label"].push_back(static_cast<std::int32_t>(random() % rows));
    }
    const InputGraph graph(function, data);
    runner.differentiate(std::vector<const InputGraph*>{&graph});
  }
  Floats values() const { return parameters.value(table).get(); }

 private:
  void compute(Vertex& v) const {
    const bool looks_up = form_ == Form::lookups;
    const Expr word = looks_up ? embedding(table, v.pull_index("word")) : matmul(v.pull("words", rows), table);
    const Expr bag =
        looks_up ? embedding_bag(table, v.pull_index("bag", Presence::always, 3)) : matmul(v.pull("bags", rows), table);
    const Expr x = word + tanh(bag);
    v.loss(row_sum(square(x)));
    if (tied_) v.loss(softmax_cross_entropy(matmul_nt(x, table), v.pull_index("label")));
  }

  static constexpr std::size_t samples = 6, rows = 5;
  const Form form_;
  const bool tied_;
  Parameter table = parameters.add("table", rows, 4, Initial::uniform(-1, 1));
  VertexFunction function{"tables", {}, [this](Vertex& v) { compute(v); }};
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
        TableModel one(TableModel::Form::lookups, tied), other(TableModel::Form::products, tied);
        Optimiser of_one(one.parameters, method, options), of_other(other.parameters, method, options);
        for (std::uint32_t step = 0; step < 4; ++step) {
          one.differentiate(first_seed() + step);
          other.differentiate(first_seed() + step);
          of_one.step(6);
          of_other.step(6);
        }
        const Floats values = one.values(), expected = other.values();
        // Where a gradient is nearly zero, a step of adam or rmsprop magnifies its rounding errors.
        for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-4) << i;
      }
    }
  }
}

}  // namespace
}  // namespace windrow::testing
