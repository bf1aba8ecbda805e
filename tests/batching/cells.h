// Vertex functions and graphs for the tests of the batching layer.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "windrow/batching/runner.h"
#include "windrow/models/tree_lstm.h"

namespace windrow::testing {

/// The model at a size for tests. As of all cells here, `cell(v)` runs on a Vertex and on an OracleVertex.
struct TreeLstm : windrow::TreeLstm {
  static constexpr Index vocabulary = 7, e = 3, h = 4, classes = 5;

  explicit TreeLstm(Parameters& parameters) : windrow::TreeLstm(parameters, {vocabulary, e, h, classes}) {
    for (const char* name : {"words", "bias", "head_bias"}) draw(parameters.value(parameters.find(name)));
  }

 private:
  /// Values that cannot be missed, where the model starts with small ones or none.
  static void draw(const Tensor& value) {
    std::mt19937 random(static_cast<unsigned>(value.width()));
    std::vector<float> values;
    for (Index i = 0; i < value.rows() * value.width(); ++i) {
      values.push_back(static_cast<float>(random() % 2001) / 1000 - 1);
    }
    value.set(values);
  }
};

/// A cell that no model has, with what the Tree-LSTM lacks: three children, real inputs, a product of own input and
/// children in one matrix, a parameter computed from another, a child's value in the loss, a state that nobody gathers,
/// differences, maxima and dropout.
struct OddCell {
  static constexpr std::size_t arity = 3;
  static constexpr Index in = 2, h = 3;
  Parameter all, shared, table, out;

  explicit OddCell(Parameters& p)
      : all(p.add("all", in + 3 * h, h, Initial::uniform(-1, 1))),
        shared(p.add("shared", h, h, Initial::uniform(-1, 1))),
        table(p.add("table", 4, h, Initial::uniform(-1, 1))),
        out(p.add("out", h, 1, Initial::uniform(-1, 1))) {}

  void operator()(auto& v) const {
    const auto state = v.state("state", h), unused = v.state("unused", 2);
    const auto x = v.pull("x", in);
    const auto first = v.gather(0, state), second = v.gather(1, state), third = v.gather(2, state);
    const auto mixed = matmul(concat(x, first, second, third), all);
    const auto kind = embedding(table, v.pull_index("kind", Presence::sometimes));
    const auto squashed = tanh(v.parameter(shared));
    const auto own = tanh(mixed + kind) - 0.5 * matmul(second, squashed);
    const auto value = maximum(own, 0.25 * first) + slice(concat(third, x), 1, 1 + h);
    v.scatter(state, dropout(value, v.pull_index("keys", Presence::always, 3), 0.25, 5, 1));
    v.scatter(unused, slice(value, 0, 2));
    v.push("value", value);
    v.push("kind", kind);
    v.loss(square(matmul(value, out)));
    v.loss(row_sum(first * second) + row_sum(softmax(matmul(third, squashed)) * own));
  }
};

/// States and values of widths that are placed further apart than they are wide, beside others; with few parameters.
struct WideCell {
  static constexpr std::size_t arity = 3;
  static constexpr Index in = 2, wide = 64;
  Parameter table, out, narrow, back;

  explicit WideCell(Parameters& p)
      : table(p.add("table", 4, wide, Initial::uniform(-1, 1))),
        out(p.add("out", 2 * wide, 1, Initial::uniform(-1, 1))),
        narrow(p.add("narrow", 1, wide, Initial::uniform(-1, 1))),
        back(p.add("back", wide, in, Initial::uniform(-0.3f, 0.3f))) {}

  void operator()(auto& v) const {
    const auto a = v.state("a", wide), b = v.state("b", 2 * wide), c = v.state("c", 1);
    const auto kind = embedding(table, v.pull_index("kind", Presence::sometimes));
    const auto b0 = v.gather(0, b);
    const auto own = tanh(kind + v.gather(0, a) + 0.5 * v.gather(1, a) + slice(b0, 10, 10 + wide) * v.gather(2, a) +
                          matmul(v.gather(1, c), narrow));
    const auto both = tanh(concat(own, slice(v.gather(2, b), 3, 3 + wide)) + 0.3 * v.gather(1, b));
    const auto one = tanh(matmul(both, out));
    v.scatter(a, own);
    v.scatter(b, both);
    v.scatter(c, one);
    v.push("own", own);
    v.loss(square(one) + row_sum(matmul(v.gather(2, a), back) * v.pull("x", in)));
  }
};

/// What random_graph() makes.
enum class Form { trees, any_order, dag };

/// A graph of `vertices` vertices: each has up to `arity` children among those before it, some places empty; of trees,
/// no child has two consumers. Inputs fit both cells.
inline GraphData random_graph(std::int32_t vertices, std::size_t arity, Form form, std::mt19937& random) {
  const auto below = [&](std::size_t n) { return random() % n; };
  std::vector<std::int32_t> number(static_cast<std::size_t>(vertices));
  for (std::int32_t v = 0; v < vertices; ++v) number[static_cast<std::size_t>(v)] = v;
  if (form == Form::any_order) std::shuffle(number.begin(), number.end(), random);
  std::vector<std::vector<std::int32_t>> children(static_cast<std::size_t>(vertices));
  std::vector<std::int32_t> free;
  for (std::int32_t v = 0; v < vertices; ++v) {
    auto& own = children[static_cast<std::size_t>(number[static_cast<std::size_t>(v)])];
    for (std::size_t k = 0; k < arity && below(3) > 0; ++k) {
      if (free.empty() || below(6) == 0) {
        own.push_back(no_child);
        continue;
      }
      const std::size_t chosen = below(free.size());
      own.push_back(free[chosen]);
      if (form != Form::dag) free.erase(free.begin() + static_cast<std::int64_t>(chosen));
    }
    free.push_back(number[static_cast<std::size_t>(v)]);
  }
  GraphData data;
  for (const char* name : {"word", "label", "kind", "keys"}) data.indices[name];
  data.values["x"];
  for (const auto& own : children) {
    data.children.insert(data.children.end(), own.begin(), own.end());
    data.child_begin.push_back(static_cast<std::int32_t>(data.children.size()));
    data.indices["word"].push_back(static_cast<std::int32_t>(below(TreeLstm::vocabulary + 1)) - 1);
    data.indices["label"].push_back(static_cast<std::int32_t>(below(TreeLstm::classes + 1)) - 1);
    data.indices["kind"].push_back(static_cast<std::int32_t>(below(5)) - 1);
    for (int k = 0; k < 3; ++k) data.indices["keys"].push_back(static_cast<std::int32_t>(random() >> 1));
    for (int k = 0; k < 2; ++k) {
      data.values["x"].push_back(static_cast<float>(below(2001)) / 1000 - 1);
    }
  }
  return data;
}

/// Graphs of several sizes, 0 and 1 among them.
inline std::vector<GraphData> random_graphs(std::size_t arity, Form form, std::mt19937& random) {
  std::vector<GraphData> graphs;
  for (std::int32_t vertices : {1, 9, 0, 23, 2, 1, 14}) {
    graphs.push_back(random_graph(vertices, arity, form, random));
  }
  return graphs;
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

/// The gradient with its rows added in, row by row; empty if it has no part.
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

}  // namespace windrow::testing
