// Shared by the tests of the batching room: an engine with its parameters, graphs, and the gradients of a minibatch.
// Start here; the cells that tests compute are in cells.h.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "tests/ops/cases.h"
#include "tests/sanitized.h"
#include "windrow/batching/lazy_cell.h"
#include "windrow/batching/runner.h"
#include "windrow/ops/apply.h"

namespace windrow::testing {

using Ints = std::vector<std::int32_t>;

/// Vertices with these children.
inline GraphData graph_of(const std::vector<Ints>& children, const Floats& x = {}) {
  GraphData data{.child_begin = {0}};
  for (const Ints& own : children) {
    data.children.insert(data.children.end(), own.begin(), own.end());
    data.child_begin.push_back(static_cast<std::int32_t>(data.children.size()));
  }
  if (!x.empty()) data.values["x"] = x;
  return data;
}
/// Vertices without children.
inline GraphData leaves(std::size_t count, const Floats& x = {}) { return graph_of(std::vector<Ints>(count), x); }
/// Each vertex is the child of the next one.
inline GraphData chain_of(std::int32_t length, const Floats& x = {}) {
  std::vector<Ints> children(static_cast<std::size_t>(length));
  for (std::int32_t v = 1; v < length; ++v) children[static_cast<std::size_t>(v)] = {v - 1};
  return graph_of(children, x);
}

/// Graphs of a function, with pointers to them.
struct Graphs {
  Graphs(const VertexFunction& function, const std::vector<GraphData>& data) {
    for (const GraphData& one : data) graphs.emplace_back(function, one);
    for (const InputGraph& graph : graphs) pointers.push_back(&graph);
  }
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;
  std::vector<InputGraph> graphs;
  std::vector<const InputGraph*> pointers;
};

/// The gradient as one matrix, row by row, with the gradients of single rows added. Empty if there is no gradient.
inline std::vector<double> dense(const Parameters& parameters, const Parameter& parameter) {
  const Gradient& gradient = parameters.gradient(parameter);
  const Type& type = parameter.type();
  if (!gradient.all && gradient.rows.empty()) return {};
  std::vector<double> sum(static_cast<std::size_t>(type.rows.number() * type.width), 0);
  const auto add = [&](std::size_t at, const std::vector<float>& values, std::size_t from, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) sum[at + i] += static_cast<double>(values[from + i]);
  };
  if (gradient.all) add(0, gradient.all->get(), 0, sum.size());
  for (const Gradient::Rows& rows : gradient.rows) {
    const std::vector<std::int32_t> of = rows.of.get();
    const std::vector<float> values = rows.rows.get();
    const auto width = static_cast<std::size_t>(type.width);
    for (std::size_t r = 0; r < of.size(); ++r) add(static_cast<std::size_t>(of[r]) * width, values, r * width, width);
  }
  return sum;
}

/// Of each parameter in turn.
inline std::vector<std::vector<float>> values_of(const Parameters& parameters) {
  std::vector<std::vector<float>> values;
  for (std::size_t i = 0; i < parameters.size(); ++i) values.push_back(parameters.value(parameters[i]).get());
  return values;
}

/// Sets each element of all parameters to of(element).
template <class Of>
void change_values(const Parameters& parameters, Of of) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor value = parameters.value(parameters[i]);
    Floats all = value.get();
    std::ranges::transform(all, all.begin(), of);
    value.set(all);
  }
}
/// Draws numbers in [-1, 1] that cannot be missed, where networks start with small ones or none.
inline void draw_values(const Parameters& parameters, unsigned seed) {
  std::mt19937 random(seed);
  change_values(parameters, [&](float) { return static_cast<float>(random() % 2001) / 1000 - 1; });
}

/// What most tests begin with: an engine, the host as its device, and a set of parameters.
struct OnHost {
  explicit OnHost(const EngineOptions& options = {.workers = 2}, std::uint64_t seed = 1,
                  const ParametersOptions& of_parameters = {})
      : engine(options), parameters(host, seed, of_parameters) {}
  /// Of each parameter in turn.
  std::vector<std::vector<double>> gradients() const {
    std::vector<std::vector<double>> all;
    for (std::size_t p = 0; p < parameters.size(); ++p) all.push_back(dense(parameters, parameters[p]));
    return all;
  }

  Tensor tensor(const Floats& values, Index width) const {
    const Tensor made(host, width == 0 ? 0 : std::ssize(values) / width, width);
    made.set(values);
    return made;
  }
  /// A minibatch of these graphs, by a runner of its own.
  Minibatch computed(const VertexFunction& function, const std::vector<GraphData>& data,
                     const RunnerOptions& options = {}) {
    const Graphs graphs(function, data);
    return Runner(host, function, parameters, options).run(graphs.pointers);
  }
  Minibatch differentiated(const VertexFunction& function, const std::vector<GraphData>& data,
                           const RunnerOptions& options = {}) {
    const Graphs graphs(function, data);
    return Runner(host, function, parameters, options).differentiate(graphs.pointers);
  }

  Engine engine;
  Device host = host_device(engine);
  Parameters parameters;
};

/// Uniform in [-2, 2], exact as floats.
inline Values random_row(Index count, std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(-2, 2);
  Values row;
  for (Index i = 0; i < count; ++i) row.push_back(uniform(random));
  return row;
}

}  // namespace windrow::testing
