// A model of two parameters, a matrix with a dense gradient and a table that is looked up, for tests of optimisers.
#pragma once

#include <cstdint>
#include <vector>

#include "windrow/batching/runner.h"
#include "windrow/engine/engine.h"

namespace windrow::testing {

/// The loss of a sample is the squared distance between a row of the table and a target, plus that between a row of the
/// matrix and another one: as perf/peers/torch_optimisers.py has it.
struct RowsModel {
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
      : rows(options.rows),
        width(options.width),
        loss_scale(options.loss_scale),
        engine(options.engine),
        parameters(host, 1, {options.non_finite}) {
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
    GraphData data;
    data.child_begin.assign(samples.size() + 1, 0);
    data.indices["row"] = {};  // also without samples
    data.values = {{"which", {}}, {"of_table", {}}, {"of_matrix", {}}};
    for (const Sample& sample : samples) {
      data.indices["row"].push_back(sample.row);
      for (Index r = 0; r < rows; ++r) data.values["which"].push_back(r == sample.row % rows ? 1.0f : 0.0f);
      std::vector<float>&of_table = data.values["of_table"], &of_matrix = data.values["of_matrix"];
      of_table.insert(of_table.end(), sample.of_table.begin(), sample.of_table.end());
      of_matrix.insert(of_matrix.end(), sample.of_matrix.begin(), sample.of_matrix.end());
    }
    const InputGraph graph(function, data);
    runner.differentiate(std::vector<const InputGraph*>{&graph});
  }
  /// Those of the matrix, then those of the table.
  std::vector<float> values() const {
    std::vector<float> all = parameters.value(matrix).get();
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
  Engine engine;
  Device host = host_device(engine);
  Parameters parameters;
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

}  // namespace windrow::testing
