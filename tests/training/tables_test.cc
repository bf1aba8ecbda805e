// Steps of tables that are looked up, also in bags, and that are factors of products at once.
#include <gtest/gtest.h>

#include <random>

#include "tests/seed.h"
#include "windrow/batching/runner.h"
#include "windrow/training/optimiser.h"

namespace windrow::testing {
namespace {

using Floats = std::vector<float>;

/// The same loss of a table, by lookups or by products with the numbers of times that each row is looked up.
class TableModel {
 public:
  enum class Form { lookups, products };
  TableModel(Form form, bool tied) : form_(form), tied_(tied) {}

  void differentiate(std::uint32_t seed) {
    std::mt19937 random(seed);
    GraphData data;
    data.child_begin.assign(samples + 1, 0);
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
  Engine engine{{.workers = 2}};
  Device host = host_device(engine);

 public:
  Parameters parameters{host, 1};
  Parameter table = parameters.add("table", rows, 4, Initial::uniform(-1, 1));

 private:
  VertexFunction function{"tables", {}, [this](Vertex& v) { compute(v); }};
  Runner runner{host, function, parameters};
};

TEST(Tables, TakeTheStepsOfDenseGradients) {
  SCOPED_TRACE("seed " + std::to_string(first_seed()));
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
