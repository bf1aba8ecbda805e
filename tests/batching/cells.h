// Vertex functions and graphs for the tests of the batching layer.
#pragma once

#include "tests/batching/support.h"
#include "windrow/models/tree_lstm.h"

namespace windrow::testing {

/// The model at a small size. For this and all other cells here, `cell(v)` runs on a Vertex and on an OracleVertex.
struct TreeLstm : windrow::TreeLstm {
  static constexpr Index vocabulary = 7, e = 3, h = 4, classes = 5;

  explicit TreeLstm(Parameters& parameters) : windrow::TreeLstm(parameters, {vocabulary, e, h, classes}) {
    draw_values(parameters, 1);
  }
};

/// An artificial cell with features that the Tree-LSTM lacks: three children, real inputs, one product of the vertex's
/// input and its children, a parameter computed from another, a child's value in the loss, a state that is never
/// gathered, differences, maxima and dropout.
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

/// States and values whose rows are placed further apart than they are wide, and others; with few parameters.
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

/// States that are not computed: an input, and a state of a child that is passed on. Losses that depend on children
/// only.
struct PassingCell {
  static constexpr std::size_t arity = 2;
  static constexpr Index in = 2;
  Parameter w, out;

  explicit PassingCell(Parameters& p)
      : w(p.add("w", in, in, Initial::uniform(-1, 1))), out(p.add("out", in, 1, Initial::uniform(-1, 1))) {}

  void operator()(auto& v) const {
    const auto a = v.state("a", in), b = v.state("b", in), c = v.state("c", in);
    const auto x = v.pull("x", in), passed = v.gather(0, c);
    v.scatter(a, x);
    v.scatter(b, passed);
    v.scatter(c, tanh(matmul(x + v.gather(1, a), w) + v.gather(1, b)));
    v.push("passed", passed);
    v.loss(square(matmul(v.gather(0, b) + v.gather(0, a), out)));
    v.loss(row_sum(v.gather(1, c)));
  }
};

/// A child-sum Tree-LSTM (Tai, Socher and Manning 2015) whose edges have relations and weights, with a mean in addition
/// to the sums.
struct ChildSumCell {
  static constexpr std::size_t arity = any_arity;
  static constexpr Index e = 2, h = 3;
  Parameter gates, of_sum, forget, of_child, relations, out;

  explicit ChildSumCell(Parameters& p)
      : gates(p.add("gates", e, 3 * h, Initial::uniform(-1, 1))),
        of_sum(p.add("of_sum", h, 3 * h, Initial::uniform(-1, 1))),
        forget(p.add("forget", e, h, Initial::uniform(-1, 1))),
        of_child(p.add("of_child", h, h, Initial::uniform(-1, 1))),
        relations(p.add("relations", 3, h, Initial::uniform(-1, 1))),
        out(p.add("out", h, 1, Initial::uniform(-1, 1))) {}

  void operator()(auto& v) const {
    const auto h_of = v.state("h", h), c_of = v.state("c", h);
    const auto x = v.pull("x", e);
    const auto below = v.each(h_of), memory = v.each(c_of);
    const auto all = matmul(x, gates) + matmul(sum_children(below), of_sum);
    const auto relation = embedding(relations, v.pull_edge_index("relation"));
    const auto keep = sigmoid(matmul(x, forget) + (matmul(below, of_child) + relation));
    const auto weighed = mean_children(relation * memory + matmul(v.pull_edge("weight", 2), forget));
    const auto c = sigmoid(slice(all, 0, h)) * tanh(slice(all, h, 2 * h)) + sum_children(keep * memory) + weighed;
    const auto own = sigmoid(slice(all, 2 * h, 3 * h)) * tanh(c);
    v.scatter(h_of, own);
    v.scatter(c_of, c);
    v.push("h", own);
    v.push("weighed", weighed);
    v.loss(square(matmul(own, out)) + row_sum(sum_children(square(below) * keep)));
  }
};

/// Vertices of four kinds: words; pairs, which gather both states of the first child and one of the second; sums over
/// any number of children; and tops, which use only sums. They share parameters, inputs and outputs.
struct Kinds {
  static constexpr std::size_t arity = any_arity;
  static constexpr Index e = 2, h = 3;
  static constexpr std::int32_t word = 0, pair = 1, sum = 2, top = 3;
  Parameter in, shared, table, out;

  explicit Kinds(Parameters& p)
      : in(p.add("in", e, h, Initial::uniform(-1, 1))),
        shared(p.add("shared", h, h, Initial::uniform(-1, 1))),
        table(p.add("table", 4, h, Initial::uniform(-1, 1))),
        out(p.add("out", h, 1, Initial::uniform(-1, 1))) {}

  void of_word(auto& v) const {
    const auto own = tanh(matmul(v.pull("x", e), in) + embedding(table, v.pull_index("kind", Presence::sometimes)));
    v.scatter(v.state("h", h), own);
    v.scatter(v.state("c", h), square(own));
    v.push("own", own);
    v.loss(square(matmul(own, out)));
  }
  void of_pair(auto& v) const {
    const auto h_of = v.state("h", h), c_of = v.state("c", h);
    const auto first = v.gather(0, h_of), second = v.gather(1, h_of);
    const auto own = tanh(matmul(first, shared) + second * v.gather(0, c_of));
    v.scatter(h_of, own);
    v.scatter(c_of, 0.5 * first);
    v.push("own", own);
  }
  void of_sum(auto& v) const {
    const auto h_of = v.state("h", h);
    const auto below = v.each(h_of);
    const auto own = tanh(sum_children(tanh(matmul(below, shared))) + matmul(v.pull("x", e), in));
    v.scatter(h_of, own);
    v.scatter(v.state("s", 2 * h), concat(own, mean_children(below)));
    v.push("mean", mean_children(square(below)));
    v.loss(square(matmul(own, out)));
  }
  void of_top(auto& v) const {
    const auto below = v.gather(0, v.state("s", 2 * h));
    const auto own = tanh(slice(below, 0, h) * slice(below, h, 2 * h));
    v.scatter(v.state("h", h), own);
    v.push("own", own);
    v.loss(row_sum(own));
  }
  void operator()(auto& v) const {
    switch (v.kind()) {
      case word:
        return of_word(v);
      case pair:
        return of_pair(v);
      case sum:
        return of_sum(v);
      default:
        return of_top(v);
    }
  }

  VertexFunction function() const {
    const VertexFunction kinds[] = {
        {"word", {}, [&](Vertex& v) { of_word(v); }},
        {"pair", {.arity = 2}, [&](Vertex& v) { of_pair(v); }},
        {"sum", {.arity = any_arity}, [&](Vertex& v) { of_sum(v); }},
        {"top", {.arity = 1}, [&](Vertex& v) { of_top(v); }},
    };
    return VertexFunction("kinds", {std::begin(kinds), std::end(kinds)});
  }

  /// Gives each vertex a kind that fits its children.
  static void give_kinds(GraphData& data) {
    const std::size_t vertices = data.child_begin.size() - 1;
    data.kinds.assign(vertices, -1);
    for (std::size_t given = 0; given < vertices;) {
      for (std::size_t v = 0; v < vertices; ++v) {
        const std::int32_t kind = data.kinds[v] >= 0 ? -1 : kind_for(data, v);
        if (kind < 0) continue;
        data.kinds[v] = kind;
        ++given;
      }
    }
  }

 private:
  /// Returns -1 if a child has no kind yet.
  static std::int32_t kind_for(const GraphData& data, std::size_t v) {
    std::vector<std::int32_t> children;
    for (auto e = data.child_begin[v]; e < data.child_begin[v + 1]; ++e) {
      const std::int32_t child = data.children[static_cast<std::size_t>(e)];
      children.push_back(child == no_child ? word : data.kinds[static_cast<std::size_t>(child)]);
      if (children.back() < 0) return -1;
    }
    if (children.empty()) return v % 4 == 0 ? sum : word;
    const bool pairs = children.size() <= 2 && children[0] <= pair;
    if (children.size() == 1 && children[0] == sum) return v % 2 == 0 ? top : sum;
    return pairs && v % 3 != 0 ? pair : sum;
  }
};

/// The form of the graphs that random_graph() generates.
enum class Form { trees, any_order, dag };

/// A graph of `vertices` vertices: each has up to `arity` children among those before it, some places empty; of trees,
/// no child has two consumers. Inputs fit all cells.
inline GraphData random_graph(std::int32_t vertices, std::size_t arity, Form form, std::mt19937& random) {
  if (arity == any_arity) arity = 6;
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
  data.edge_indices["relation"];
  data.edge_values["weight"];
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
  std::mt19937 of_edges(static_cast<unsigned>(vertices));  // separate, so that edge inputs do not affect the rest
  for (std::size_t edge = 0; edge < data.children.size(); ++edge) {
    data.edge_indices["relation"].push_back(static_cast<std::int32_t>(of_edges() % 3));
    for (int k = 0; k < 2; ++k) data.edge_values["weight"].push_back(static_cast<float>(of_edges() % 2001) / 1000 - 1);
  }
  return data;
}

/// One of each of these sizes.
inline std::vector<GraphData> random_graphs(const std::vector<std::int32_t>& sizes, std::size_t arity, Form form,
                                            std::mt19937& random) {
  std::vector<GraphData> data;
  for (const std::int32_t vertices : sizes) data.push_back(random_graph(vertices, arity, form, random));
  return data;
}

}  // namespace windrow::testing
