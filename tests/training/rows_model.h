// A model of two parameters, a matrix with a dense gradient and a table that is looked up, for tests of optimisers.
#pragma once

#include "tests/batching/support.h"

namespace windrow::testing {

/// The loss of a sample is the squared distance between a row of the table and a target, plus that between a row of the
/// matrix and another one: as perf/peers/torch_optimisers.py has it.
struct RowsModel : OnHost {
  struct Options {
    EngineOptions engine = {};
    NonFinite non_finite = NonFinite::fail;
    Index rows = 3, width = 4;  // of the matrix
    double loss_scale = 1;
  };
  struct Sample {
    std::int32_t row;                        // of the table; that of the matrix is row % rows
    std::vector<float> of_table, of_matrix;  // targets
  };

  RowsModel() : RowsModel(Options()) {}
  explicit RowsModel(const Options& options)
      : OnHost(options.engine, 1, {options.non_finite}),
        rows(options.rows),
        width(options.width),
        loss_scale(options.loss_scale) {
    parameters.value(matrix).set(draw(rows * width));
    parameters.value(table).set(draw(6 * 2));
  }

  std::vector<Sample> draw_samples(std::size_t count) {
    std::vector<Sample> samples;
    while (samples.size() < count) {
      const auto row = static_cast<std::int32_t>((draw_one() + 1) / 2 * 6);
      const std::vector<float> of_table = draw(2);
      samples.push_back({row, of_table, draw(width)});
    }
    return samples;
  }
  void differentiate(const std::vector<Sample>& samples) {
    GraphData data = leaves(samples.size());
    data.indices["row"] = {};  // also without samples
    data.values = {{"which", {}}, {"of_table", {}}, {"of_matrix", {}}};
    for (const Sample& sample : samples) {
      data.indices["row"].push_back(sample.row);
      for (Index r = 0; r < rows; ++r) data.values["which"].push_back(r == sample.row % rows ? 1.0f : 0.0f);
      std::vector<float>&of_table = data.values["of_table"], &of_matrix = data.values["of_matrix"];
      of_table.insert(of_table.end(), sample.of_table.begin(), sample.of_table.end());
      of_matrix.insert(of_matrix.end(), sample.of_matrix.begin(), sample.of_matrix.end());
    }
    runner.differentiate(Graphs(function, {data}).pointers);
  }
  /// Those of the matrix, then those of the table.
  Floats values() const {
    Floats all = parameters.value(matrix).get();
    for (const float value : parameters.value(table).get()) all.push_back(value);
    return all;
  }

  /// Within [-1, 1): a linear congruential generator.
  float draw_one() {
    state = static_cast<std::uint32_t>((std::uint64_t{state} * 1103515245 + 12345) % (std::uint64_t{1} << 31));
    return static_cast<float>(state >> 8) / 4194304.0f - 1;
  }
  std::vector<float> draw(Index count) {
    std::vector<float> values;
    for (Index i = 0; i < count; ++i) values.push_back(draw_one());
    return values;
  }

  Index rows, width;
  double loss_scale;
  std::uint32_t state = 12345;
  Parameter matrix = parameters.add("matrix", rows, width, Initial::zeros());
  Parameter table = parameters.add("table", 6, 2, Initial::zeros());
  VertexFunction function{"rows", {.arity = 0}, [this](Vertex& v) {
                            const Expr own = matmul(v.pull("which", rows), matrix);
                            const Expr loss =
                                squared_distance(embedding(table, v.pull_index("row")), v.pull("of_table", 2)) +
                                squared_distance(own, v.pull("of_matrix", width));
                            v.loss(loss_scale == 1 ? loss : loss_scale * loss);
                          }};
  Runner runner{host, function, parameters};
};

/// One element of a parameter and its steps by these methods at rate 0.01, in double precision.
class Element {
 public:
  explicit Element(std::string method) : method_(std::move(method)) {}
  double value() const { return value_; }

  double step(double g) {
    ++steps_;
    if (method_ == "adagrad") {
      v_ += g * g;
      return value_ -= 0.01 * g / (std::sqrt(v_) + 1e-10);
    }
    if (method_ == "rmsprop") {
      v_ = 0.99 * v_ + 0.01 * g * g;
      return value_ -= 0.01 * g / (std::sqrt(v_) + 1e-8);
    }
    m_ = 0.9 * m_ + 0.1 * g;
    v_ = 0.999 * v_ + 0.001 * g * g;
    return value_ -= 0.01 * m_ / (1 - std::pow(0.9, steps_)) / (std::sqrt(v_ / (1 - std::pow(0.999, steps_))) + 1e-8);
  }

 private:
  std::string method_;
  double value_ = 0, m_ = 0, v_ = 0, steps_ = 0;
};

}  // namespace windrow::testing
