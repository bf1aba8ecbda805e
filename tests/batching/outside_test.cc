// What vertex functions and other networks hand to each other: tensors whose rows vertices pull, outputs whose
// gradients come from elsewhere.
#include <gtest/gtest.h>

#include "tests/batching/cells.h"
#include "tests/batching/oracle.h"
#include "tests/engine/support.h"
#include "windrow/ops/apply.h"

namespace windrow {
namespace {

using testing::dense;
using testing::error_of;
using testing::Form;
using testing::Graphs;
using testing::Oracle;
using testing::OracleVertex;
using testing::random_graph;

/// A sum over the children of a squashed state, with a head; its input comes by `x`, which makes it of a vertex.
struct Cell {
  static constexpr Index in = 2, h = 3;
  Parameter w, u, out;

  explicit Cell(Parameters& p)
      : w(p.add("w", in, h, Initial::uniform(-1, 1))),
        u(p.add("u", h, h, Initial::uniform(-1, 1))),
        out(p.add("out", h, 1, Initial::uniform(-1, 1))) {}

  auto state(auto& v, const auto& x) const {
    const auto h_of = v.state("h", h);
    const auto own = tanh(matmul(x, w) + matmul(sum_children(v.each(h_of)), u));
    v.scatter(h_of, own);
    return own;
  }
  auto head(const auto& own) const { return square(tanh(matmul(own, out))); }
};

struct Networks {
  Engine engine{{.workers = 2}};
  Device host = host_device(engine);
  Parameters parameters{host, 3};
  Cell cell{parameters};
  std::vector<GraphData> data;
  VertexFunction by_input{
      "by_input", {.arity = any_arity}, [&](Vertex& v) { v.loss(cell.head(cell.state(v, v.pull("x", Cell::in)))); }};
  VertexFunction by_row{"by_row", {.arity = any_arity}, [&](Vertex& v) {
                          const Expr own = cell.state(v, v.pull_row("rows", Cell::in));
                          v.push("h", own);
                          v.loss(cell.head(own));
                        }};
  VertexFunction without_head{"without_head", {.arity = any_arity}, [&](Vertex& v) {
                                v.push("h", cell.state(v, v.pull_row("rows", Cell::in)));
                              }};
  VertexFunction head_alone{"head", {}, [&](Vertex& v) { v.loss(cell.head(v.pull_row("h", Cell::h))); }};

  Networks() {
    std::mt19937 random(1);
    for (std::int32_t vertices : {5, 0, 9, 1}) data.push_back(random_graph(vertices, any_arity, Form::dag, random));
  }

  std::vector<float> inputs() const {
    std::vector<float> all;
    for (const GraphData& graph : data) {
      const auto& x = graph.values.at("x");
      all.insert(all.end(), x.begin(), x.end());
    }
    return all;
  }
  Tensor tensor(const std::vector<float>& values, Index width) const {
    const Tensor result(host, static_cast<Index>(values.size()) / width, width);
    result.set(values);
    return result;
  }
  std::vector<std::vector<double>> gradients() const {
    std::vector<std::vector<double>> all;
    for (std::size_t p = 0; p < parameters.size(); ++p) all.push_back(dense(parameters, parameters[p]));
    return all;
  }
};

TEST(GivenTensors, AreInputsLikeThoseOfGraphs) {
  Networks s;
  Runner one(s.host, s.by_input, s.parameters), other(s.host, s.by_row, s.parameters);
  const Graphs graphs(s.by_input, s.data), same(s.by_row, s.data);
  const double loss = one.differentiate(graphs.pointers).loss();
  const auto gradients = s.gradients();
  EXPECT_EQ(other.differentiate(same.pointers, {{"rows", {s.tensor(s.inputs(), Cell::in)}}}).loss(), loss);
  EXPECT_EQ(s.gradients(), gradients);
}

TEST(GivenTensors, HaveTheGradientThatTheOracleSees) {
  Networks s;
  Runner runner(s.host, s.by_row, s.parameters);
  const Graphs graphs(s.by_row, s.data);
  // Two rows, of which vertices pull now this one, now that.
  const std::vector<float> rows = {0.5f, -0.25f, -0.75f, 1};
  std::vector<std::int32_t> row_of;
  for (std::int32_t v = 0; v < 15; ++v) row_of.push_back(v % 3 == 0 ? 1 : 0);
  const Minibatch minibatch = runner.differentiate(graphs.pointers, {{"rows", {s.tensor(rows, Cell::in), row_of}}});
  const std::vector<float> gradient = minibatch.gradient("rows").get();

  Oracle oracle(s.parameters, [&](OracleVertex& v) { v.loss(s.cell.head(s.cell.state(v, v.pull("x", Cell::in)))); });
  const auto loss_of = [&](const std::vector<float>& values) {
    std::size_t vertex = 0;
    for (GraphData& graph : s.data) {
      auto& x = graph.values["x"];
      for (std::size_t i = 0; i < x.size(); i += 2, ++vertex) {
        for (std::size_t c = 0; c < 2; ++c) x[i + c] = values[static_cast<std::size_t>(row_of[vertex]) * 2 + c];
      }
    }
    return oracle.loss(s.data);
  };
  constexpr float step = 1.0f / 1024;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::vector<float> above = rows, below = rows;
    above[i] += step, below[i] -= step;
    EXPECT_NEAR(gradient[i], (loss_of(above) - loss_of(below)) / (2 * step), 1e-4) << i;
  }
}

TEST(Outputs, TakeGradientsFromElsewhere) {
  Networks s;
  const Tensor x = s.tensor(s.inputs(), Cell::in);
  Runner whole(s.host, s.by_row, s.parameters);
  const Graphs graphs(s.by_row, s.data);
  const Minibatch at_once = whole.differentiate(graphs.pointers, {{"rows", {x}}});
  const auto expected = s.gradients();
  const std::vector<float> expected_of_x = at_once.gradient("rows").get();

  Runner below(s.host, s.without_head, s.parameters), above(s.host, s.head_alone, s.parameters);
  const Graphs lower(s.without_head, s.data);
  GraphData single{.child_begin = std::vector<std::int32_t>(16, 0)};
  const Graphs upper(s.head_alone, {single});
  const Minibatch first = below.record(lower.pointers, {{"rows", {x}}}, {"h"});
  const Minibatch second = above.differentiate(upper.pointers, {{"h", {first.output("h")}}});
  EXPECT_NEAR(second.loss(), at_once.loss(), 1e-6);
  below.backward(first, {{"h", second.gradient("h")}}, Runner::Gradients::add);
  const auto gradients = s.gradients();
  for (std::size_t p = 0; p < expected.size(); ++p) {
    for (std::size_t i = 0; i < expected[p].size(); ++i) EXPECT_NEAR(gradients[p][i], expected[p][i], 1e-5);
  }
  const std::vector<float> of_x = first.gradient("rows").get();
  for (std::size_t i = 0; i < of_x.size(); ++i) EXPECT_NEAR(of_x[i], expected_of_x[i], 1e-5);
}

TEST(Outputs, AddToGradientsOrSetThem) {
  Networks s;
  Runner runner(s.host, s.without_head, s.parameters);
  const Graphs graphs(s.without_head, s.data);
  const Tensor x = s.tensor(s.inputs(), Cell::in);
  const Tensor ones = s.tensor(std::vector<float>(15 * Cell::h, 1), Cell::h);
  const auto gradient = [&](Runner::Gradients mode) {
    runner.backward(runner.record(graphs.pointers, {{"rows", {x}}}, {"h"}), {{"h", ones}}, mode);
    return dense(s.parameters, s.cell.w);
  };
  const auto once = gradient(Runner::Gradients::set), again = gradient(Runner::Gradients::set);
  EXPECT_EQ(once, again);
  const auto twice = gradient(Runner::Gradients::add);
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(twice[i], 2 * once[i], 1e-5);
}

TEST(Outputs, MayBeNamedTwice) {
  Networks s;
  Runner runner(s.host, s.without_head, s.parameters);
  const Graphs graphs(s.without_head, s.data);
  const Tensor x = s.tensor(s.inputs(), Cell::in);
  const Tensor ones = s.tensor(std::vector<float>(15 * Cell::h, 1), Cell::h);
  const auto gradient = [&](const std::vector<std::string>& outputs) {
    runner.backward(runner.record(graphs.pointers, {{"rows", {x}}}, outputs), {{"h", ones}});
    return dense(s.parameters, s.cell.w);
  };
  EXPECT_EQ(gradient({"h", "h"}), gradient({"h"}));
}

TEST(Outputs, AndTheirGradientsMayHaveRowsOfSomeVerticesOnly) {
  Networks s;
  Runner runner(s.host, s.without_head, s.parameters);
  const Graphs graphs(s.without_head, s.data);
  const Tensor x = s.tensor(s.inputs(), Cell::in);
  std::vector<std::int32_t> kept(15, -1), row_of(15, 2);
  kept[3] = row_of[3] = 1;
  kept[9] = row_of[9] = 0;
  std::vector<float> all(15 * Cell::h, 0);
  for (std::size_t c = 0; c < Cell::h; ++c) all[3 * Cell::h + c] = 3, all[9 * Cell::h + c] = 9;
  const Minibatch whole = runner.record(graphs.pointers, {{"rows", {x}}}, {"h"});
  runner.backward(whole, {{"h", s.tensor(all, Cell::h)}});
  const auto expected = s.gradients();
  const std::vector<float> values = whole.output("h").get();

  const Minibatch some = runner.record_rows(graphs.pointers, {{"rows", {x}}}, {{"h", row_of}});
  const std::vector<float> rows = some.output("h", kept).get();
  EXPECT_EQ(rows, (std::vector<float>{values[27], values[28], values[29], values[9], values[10], values[11]}));
  runner.backward(some, {{"h", s.tensor({9, 9, 9, 3, 3, 3, 0, 0, 0}, Cell::h)}});
  EXPECT_EQ(s.gradients(), expected);
}

TEST(Outputs, MayBeOtherOnesEachTimeWithoutEnd) {
  Engine engine;
  const Device host = host_device(engine);
  Parameters parameters(host, 1);
  const std::vector<std::string> names = {"a", "b", "c", "d", "e", "f", "g"};
  const Parameter w = parameters.add("w", 1, 1, Initial::constant(1));
  const VertexFunction function("many", {}, [&](Vertex& v) {
    const Expr x = matmul(v.pull("x", 1), w);
    for (const std::string& name : names) v.push(name, tanh(x));
  });
  GraphData data{.child_begin = {0, 0}};
  data.values["x"] = {1};
  const Graphs graphs(function, {data});
  Runner runner(host, function, parameters);
  std::size_t first = 0;
  for (unsigned some = 1; some < 128; ++some) {
    std::vector<std::string> outputs;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if ((some >> i & 1u) != 0) outputs.push_back(names[i]);
    }
    runner.record(graphs.pointers, {}, outputs);
    if (some == 1) first = runner.describe().size();
  }
  EXPECT_LT(runner.describe().size(), 64 * first);
}

TEST(Outputs, ThatAreInUseStayPlannedHoweverManyOthersCome) {
  Engine engine;
  const Device host = host_device(engine);
  Parameters parameters(host, 1);
  const VertexFunction function("many", {}, [&](Vertex& v) {
    const Expr x = v.pull("x", 1);
    for (int i = 0; i < 7; ++i) v.push(std::to_string(i), tanh(x));
  });
  GraphData data{.child_begin = {0, 0}};
  data.values["x"] = {1};
  const Graphs graphs(function, {data});
  Runner runner(host, function, parameters);
  for (unsigned some = 1; some < 128; ++some) {
    std::vector<std::string> outputs;
    for (unsigned i = 0; i < 7; ++i) {
      if ((some >> i & 1u) != 0) outputs.push_back(std::to_string(i));
    }
    runner.record(graphs.pointers, {}, outputs);
    runner.record(graphs.pointers, {}, {"0"});
  }
  EXPECT_EQ(runner.stats().plans, 127) << "one for each set of outputs";
}

TEST(Outside, OfAMinibatchWithoutVerticesTensorsHaveAnyRows) {
  Networks s;
  const Tensor x = s.tensor({1, 2, 3, 4}, Cell::in), of_h = s.tensor(std::vector<float>(6, 1), Cell::h);
  const Tensor no_rows(s.host, 0, Cell::in);
  Runner whole(s.host, s.by_row, s.parameters), below(s.host, s.without_head, s.parameters);
  const Graphs empty(s.by_row, {s.data[1]}), same(s.without_head, {s.data[1]});
  for (const Tensor& given : {x, no_rows}) {
    EXPECT_EQ(whole.run(empty.pointers, {{"rows", {given}}}).loss(), 0);
    EXPECT_EQ(whole.run({}, {{"rows", {given}}}).loss(), 0);
    const Minibatch minibatch = whole.differentiate(empty.pointers, {{"rows", {given}}});
    EXPECT_EQ(minibatch.gradient("rows").get(), std::vector<float>(static_cast<std::size_t>(given.rows() * Cell::in)));
    const Minibatch first = below.record_rows(same.pointers, {{"rows", {given, {}}}}, {{"h", {}}});
    EXPECT_TRUE(first.output("h").get().empty());
    below.backward(first, {{"h", of_h}});
    EXPECT_EQ(first.gradient("rows").rows(), given.rows());
  }
  EXPECT_EQ(s.parameters.dense_gradient(s.cell.w).get(), std::vector<float>(6, 0));
  EXPECT_EQ(error_of<MisuseError>([&] {
              whole.run({}, {{"rows", {x, {0}}}});
            }),
            "by_row: tensor 'rows' has a row_of for 1 vertices; expected 0, the vertices of the minibatch");
}

TEST(Outside, TellsWhatDoesNotFit) {
  Networks s;
  Runner runner(s.host, s.without_head, s.parameters);
  const Graphs graphs(s.without_head, s.data);
  const Tensor x = s.tensor(s.inputs(), Cell::in), wide = s.tensor(std::vector<float>(45), 3);
  const auto said = [&](auto body) { return error_of<MisuseError>(body); };
  EXPECT_EQ(said([&] { runner.run(graphs.pointers); }), "without_head: tensor 'rows' is pulled, but was not given");
  EXPECT_EQ(said([&] {
              runner.run(graphs.pointers, {{"rows", {wide}}});
            }),
            "without_head: tensor 'rows' is 3 wide; expected 2");
  EXPECT_EQ(said([&] {
              runner.run(graphs.pointers, {{"rows", {x.row_range(0, 14)}}});
            }),
            "without_head: tensor 'rows' has 14 rows; expected 15, the vertices of the minibatch");
  EXPECT_EQ(said([&] {
              runner.run(graphs.pointers, {{"rows", {x, {0, 1}}}});
            }),
            "without_head: tensor 'rows' has a row_of for 2 vertices; expected 15, the vertices of the minibatch");
  EXPECT_EQ(said([&] {
              runner.record(graphs.pointers, {{"rows", {x}}}, {"g"});
            }),
            "without_head: there is no output 'g'; expected one that it pushes");
  EXPECT_EQ(said([&] {
              runner.differentiate(graphs.pointers, {{"rows", {x}}});
            }),
            "without_head: has no loss; expected one to differentiate");
  EXPECT_EQ(said([&] {
              runner.record_rows(graphs.pointers, {{"rows", {x}}}, {{"h", {0, 1}}});
            }),
            "without_head: output 'h' has a row_of for 2 vertices; expected 15");
  EXPECT_EQ(runner.describe(), "");
  const Minibatch recorded = runner.record(graphs.pointers, {{"rows", {x}}}, {"h"});
  EXPECT_EQ(said([&] { recorded.output("h", {0}); }), "output 'h': rows of 1 vertices; expected 15");
  EXPECT_EQ(said([&] { recorded.output("h", std::vector<std::int32_t>(15, -2)); }),
            "output 'h': row -2; expected -1 or more");
  EXPECT_EQ(said([&] { recorded.gradient("rows"); }), "without_head: 'rows' has no gradient before backward()");
  EXPECT_EQ(said([&] { runner.backward(recorded, {}); }),
            "without_head: the gradient of output 'h' was announced, but is not given");
  EXPECT_EQ(said([&] {
              runner.backward(recorded, {{"h", x}});
            }),
            "without_head: the gradient of output 'h' is 15 x 2; expected 15 x 3");
  EXPECT_EQ(said([&] {
              runner.backward(recorded, {{"h", wide}, {"g", wide}});
            }),
            "without_head: gradients of 2 outputs are given; expected those that record() named, 1");
  Runner twin(s.host, s.without_head, s.parameters);
  EXPECT_EQ(said([&] {
              twin.backward(recorded, {{"h", wide}});
            }),
            "without_head: backward() of a minibatch that this runner did not record");
  runner.backward(recorded, {{"h", wide}});
  EXPECT_EQ(said([&] {
              runner.backward(recorded, {{"h", wide}});
            }),
            "without_head: backward() of a minibatch that was differentiated");
  EXPECT_EQ(said([&] { recorded.gradient("g"); }),
            "without_head: there is no tensor 'g'; expected one that the function pulls");
  const Minibatch inferred = runner.run(graphs.pointers, {{"rows", {x}}});
  EXPECT_EQ(said([&] { runner.backward(inferred, {}); }),
            "without_head: backward() of a minibatch that this runner did not record");
}

TEST(Outside, NamesAVertexWhoseRowIsNotThere) {
  Networks s;
  Runner runner(s.host, s.without_head, s.parameters);
  const Graphs graphs(s.without_head, s.data);
  const Tensor x = s.tensor(s.inputs(), Cell::in);
  std::vector<std::int32_t> far(15, 3);
  far[7] = 15;
  const std::vector<std::int32_t> below(15, -1);
  const auto said = [&](auto body) { return error_of<MisuseError>(body); };
  EXPECT_EQ(said([&] {
              runner.run(graphs.pointers, {{"rows", {x, far}}});
            }),
            "without_head: vertex 2 of graph 2 has row 15 of tensor 'rows'; expected one of its 15 rows");
  EXPECT_EQ(said([&] {
              runner.run(graphs.pointers, {{"rows", {x, below}}});
            }),
            "without_head: vertex 0 of graph 0 has row -1 of tensor 'rows'; expected one of its 15 rows");
  EXPECT_EQ(said([&] {
              runner.record_rows(graphs.pointers, {{"rows", {x}}}, {{"h", below}});
            }),
            "without_head: vertex 0 of graph 0 has row -1 of output 'h'; expected 0 or more");
  EXPECT_EQ(said([&] {
              const Minibatch recorded = runner.record_rows(graphs.pointers, {{"rows", {x}}}, {{"h", far}});
              runner.backward(recorded, {{"h", s.tensor(std::vector<float>(45), Cell::h)}});
            }),
            "without_head: the gradient of output 'h' has 15 rows; expected at least 16, as its vertices say");
}

}  // namespace
}  // namespace windrow
