// What vertex functions and other networks hand to each other: tensors whose rows vertices pull, outputs whose
// gradients come from elsewhere.
#include "tests/batching/cells.h"
#include "tests/batching/oracle.h"
#include "windrow/ops/static.h"
#include "windrow/ops/tape.h"

namespace windrow::testing {
namespace {

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

class Networks : public ::testing::Test, protected OnHost {
 protected:
  Cell cell{parameters};
  std::vector<GraphData> data = drawn();
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

  /// The function without a head: its runner, its graphs, and the tensor that its vertices pull.
  Runner runner{host, without_head, parameters};
  const Graphs graphs{without_head, data};
  const Tensor x = tensor(inputs(data), Cell::in);
  /// The function with a head, which also has an output.
  Runner whole{host, by_row, parameters};
  const Graphs of_rows{by_row, data};

  /// What vertices pull as "rows".
  static GivenTensors of(const Tensor& tensor, Ints row_of = {}) { return {{"rows", {tensor, std::move(row_of)}}}; }
  template <class Call>
  static void refuses(const std::string& said, Call call) {
    EXPECT_EQ(error_of<MisuseError>(call), said);
  }
  static std::vector<GraphData> drawn() {
    std::mt19937 random(1);
    return random_graphs({5, 0, 9, 1}, any_arity, Form::dag, random);
  }
  static std::vector<float> inputs(const std::vector<GraphData>& graphs) {
    std::vector<float> all;
    for (const GraphData& graph : graphs) {
      const auto& x = graph.values.at("x");
      all.insert(all.end(), x.begin(), x.end());
    }
    return all;
  }
};

TEST_F(Networks, GivenTensorsAreInputsLikeThoseOfGraphs) {
  const double loss = differentiated(by_input, data).loss();
  const auto expected = gradients();
  EXPECT_EQ(whole.differentiate(of_rows.pointers, of(x)).loss(), loss);
  EXPECT_EQ(gradients(), expected);
}

TEST_F(Networks, GivenTensorsHaveTheGradientThatTheOracleSees) {
  // Two rows, of which vertices pull now this one, now that.
  const std::vector<float> rows = {0.5f, -0.25f, -0.75f, 1};
  std::vector<std::int32_t> row_of;
  for (std::int32_t v = 0; v < 15; ++v) row_of.push_back(v % 3 == 0 ? 1 : 0);
  const Minibatch minibatch = whole.differentiate(of_rows.pointers, of(tensor(rows, Cell::in), row_of));
  const std::vector<float> gradient = minibatch.gradient("rows").get();

  Oracle oracle(parameters, [&](OracleVertex& v) { v.loss(cell.head(cell.state(v, v.pull("x", Cell::in)))); });
  const auto loss_of = [&](const std::vector<float>& values) {
    std::size_t vertex = 0;
    for (GraphData& graph : data) {
      auto& pulled = graph.values["x"];
      for (std::size_t i = 0; i < pulled.size(); i += 2, ++vertex) {
        for (std::size_t c = 0; c < 2; ++c) pulled[i + c] = values[static_cast<std::size_t>(row_of[vertex]) * 2 + c];
      }
    }
    return oracle.loss(data);
  };
  constexpr float step = 1.0f / 1024;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::vector<float> above = rows, below = rows;
    above[i] += step, below[i] -= step;
    EXPECT_NEAR(gradient[i], (loss_of(above) - loss_of(below)) / (2 * step), 1e-4) << i;
  }
}

TEST_F(Networks, OutputsTakeGradientsFromElsewhere) {
  const Minibatch at_once = whole.differentiate(of_rows.pointers, of(x));
  const auto expected = gradients();
  const std::vector<float> expected_of_x = at_once.gradient("rows").get();

  Runner above(host, head_alone, parameters);
  const Graphs upper(head_alone, {leaves(15)});
  const Minibatch first = runner.record(graphs.pointers, of(x), {"h"});
  const Minibatch second = above.differentiate(upper.pointers, {{"h", {first.output("h")}}});
  EXPECT_NEAR(second.loss(), at_once.loss(), 1e-6);
  runner.backward(first, {{"h", second.gradient("h")}}, Runner::Gradients::add);
  const auto found = gradients();
  for (std::size_t p = 0; p < expected.size(); ++p) expect_near(found[p], expected[p], 1e-5);
  expect_near(first.gradient("rows").get(), expected_of_x, 1e-5);
}

TEST_F(Networks, OutputsMayBeNamedTwice) {
  const Tensor ones = tensor(std::vector<float>(15 * Cell::h, 1), Cell::h);
  const auto gradient = [&](const std::vector<std::string>& outputs) {
    runner.backward(runner.record(graphs.pointers, of(x), outputs), {{"h", ones}});
    return dense(parameters, cell.w);
  };
  EXPECT_EQ(gradient({"h", "h"}), gradient({"h"}));
}

TEST_F(Networks, OutputsAndTheirGradientsMayHaveRowsOfSomeVerticesOnly) {
  std::vector<std::int32_t> kept(15, -1), row_of(15, 2);
  kept[3] = row_of[3] = 1;
  kept[9] = row_of[9] = 0;
  std::vector<float> all(15 * Cell::h, 0);
  for (std::size_t c = 0; c < Cell::h; ++c) all[3 * Cell::h + c] = 3, all[9 * Cell::h + c] = 9;
  const Minibatch of_all = runner.record(graphs.pointers, of(x), {"h"});
  runner.backward(of_all, {{"h", tensor(all, Cell::h)}});
  const auto expected = gradients();
  const std::vector<float> values = of_all.output("h").get();

  const Minibatch some = runner.record_rows(graphs.pointers, of(x), {{"h", row_of}});
  const std::vector<float> rows = some.output("h", kept).get();
  EXPECT_EQ(rows, (std::vector<float>{values[27], values[28], values[29], values[9], values[10], values[11]}));
  runner.backward(some, {{"h", tensor({9, 9, 9, 3, 3, 3, 0, 0, 0}, Cell::h)}});
  EXPECT_EQ(gradients(), expected);
}

/// Those in use stay planned however many others come, and the others are forgotten.
TEST_F(Networks, OutputsMayBeOtherOnesEachTimeWithoutEnd) {
  const VertexFunction function("many", {}, [&](Vertex& v) {
    const Expr own = v.pull("x", 1);
    for (int i = 0; i < 7; ++i) v.push(std::to_string(i), tanh(own));
  });
  const Graphs one(function, {{.child_begin = {0, 0}, .values = {{"x", {1}}}}});
  Runner many(host, function, parameters);
  std::size_t first = 0;
  for (unsigned some = 1; some < 128; ++some) {
    std::vector<std::string> outputs;
    for (unsigned i = 0; i < 7; ++i) {
      if ((some >> i & 1u) != 0) outputs.push_back(std::to_string(i));
    }
    many.record(one.pointers, {}, outputs);
    many.record(one.pointers, {}, {"0"});
    if (some == 1) first = many.describe().size();
  }
  EXPECT_EQ(many.stats().plans, 127) << "one for each set of outputs";
  EXPECT_LT(many.describe().size(), 64 * first);
}

/// A recorded block of operators above a vertex function: its backward pass is replayed between the two halves of the
/// minibatch's.
TEST_F(Networks, OutputsMayGoThroughAStatic) {
  Static head(host, [this](const StaticInputs& call) -> std::vector<Tensor> {
    const Tensor &h = call.in.front(), &weight = parameters.value(cell.out);
    Tape tape(host);
    tape.watch(h);
    tape.watch(weight);
    const Tensor y = tape.apply(op::tanh, {.in = {tape.apply(op::matmul, {.in = {h, weight}})}});
    const Tensor loss = tape.apply(op::column_sum, {.in = {tape.apply(op::square, {.in = {y}})}});
    tape.backward(loss);
    return {loss, tape.gradient(h).value(), tape.gradient(weight).value()};
  });
  std::mt19937 random(1);
  for (int minibatch = 0; minibatch < 6; ++minibatch) {
    SCOPED_TRACE(minibatch);
    // Other graphs each time, of 9 or 12 vertices.
    const auto others = random_graphs({5, 0, minibatch % 2 == 0 ? 4 : 7}, any_arity, Form::dag, random);
    const Graphs at_once(by_row, others), below(without_head, others);
    const GivenTensors rows = of(tensor(inputs(others), Cell::in));
    const double expected = whole.differentiate(at_once.pointers, rows).loss();
    const auto of_whole = gradients();
    const Minibatch recorded = runner.record(below.pointers, rows, {"h"});
    const std::vector<Tensor> results = head({.in = {recorded.output("h")}});
    EXPECT_NEAR(results[0].get().at(0), expected, 1e-5);
    runner.backward(recorded, {{"h", results[1]}});
    parameters.add_gradient(cell.out, results[2]);
    const auto found = gradients();
    for (std::size_t p = 0; p < of_whole.size(); ++p) expect_close(found[p], of_whole[p], 1e-5);
  }
  EXPECT_EQ(head.stats().recorded, 2u);  // a recording for each number of vertices
  EXPECT_EQ(head.stats().replayed, 4u);
}

TEST_F(Networks, OfAMinibatchWithoutVerticesTensorsHaveAnyRows) {
  const Tensor two = tensor({1, 2, 3, 4}, Cell::in), of_h = tensor(std::vector<float>(6, 1), Cell::h);
  const Tensor no_rows(host, 0, Cell::in);
  const Graphs empty(by_row, {data[1]}), same(without_head, {data[1]});
  for (const Tensor& given : {two, no_rows}) {
    EXPECT_EQ(whole.run(empty.pointers, of(given)).loss(), 0);
    EXPECT_EQ(whole.run({}, of(given)).loss(), 0);
    const Minibatch minibatch = whole.differentiate(empty.pointers, of(given));
    EXPECT_EQ(minibatch.gradient("rows").get(), std::vector<float>(static_cast<std::size_t>(given.rows() * Cell::in)));
    const Minibatch first = runner.record_rows(same.pointers, of(given), {{"h", {}}});
    EXPECT_TRUE(first.output("h").get().empty());
    runner.backward(first, {{"h", of_h}});
    EXPECT_EQ(first.gradient("rows").rows(), given.rows());
  }
  EXPECT_EQ(parameters.dense_gradient(cell.w).get(), std::vector<float>(6, 0));
  refuses("by_row: tensor 'rows' has a row_of for 1 vertices; expected 0, the vertices of the minibatch",
          [&] { whole.run({}, of(two, {0})); });
}

TEST_F(Networks, TellsWhatDoesNotFit) {
  const Tensor wide = tensor(std::vector<float>(45), 3);
  refuses("without_head: tensor 'rows' is pulled, but was not given", [&] { runner.run(graphs.pointers); });
  refuses("without_head: tensor 'rows' is 3 wide; expected 2", [&] { runner.run(graphs.pointers, of(wide)); });
  refuses("without_head: tensor 'rows' has 14 rows; expected 15, the vertices of the minibatch",
          [&] { runner.run(graphs.pointers, of(x.row_range(0, 14))); });
  refuses("without_head: tensor 'rows' has a row_of for 2 vertices; expected 15, the vertices of the minibatch", [&] {
    runner.run(graphs.pointers, of(x, {0, 1}));
  });
  refuses("without_head: there is no output 'g'; expected one that the function pushes: 'h'",
          [&] { runner.record(graphs.pointers, of(x), {"g"}); });
  refuses("without_head: has no loss; expected one to differentiate",
          [&] { runner.differentiate(graphs.pointers, of(x)); });
  refuses("without_head: output 'h' has a row_of for 2 vertices; expected 15", [&] {
    runner.record_rows(graphs.pointers, of(x), {{"h", {0, 1}}});
  });
  EXPECT_EQ(runner.describe(), "");
  const Minibatch recorded = runner.record(graphs.pointers, of(x), {"h"});
  refuses("output 'h': rows of 1 vertices; expected 15", [&] { recorded.output("h", {0}); });
  refuses("output 'h': row -2; expected -1 or more", [&] { recorded.output("h", std::vector<std::int32_t>(15, -2)); });
  refuses("without_head: 'rows' has no gradient before backward()", [&] { recorded.gradient("rows"); });
  refuses("without_head: the gradient of output 'h' was announced, but is not given",
          [&] { runner.backward(recorded, {}); });
  const std::map<std::string, Tensor> narrow = {{"h", x}}, fits = {{"h", wide}};
  refuses("without_head: the gradient of output 'h' is 15 x 2; expected 15 x 3",
          [&] { runner.backward(recorded, narrow); });
  refuses("without_head: gradients of 2 outputs are given; expected those that record() named, 1", [&] {
    runner.backward(recorded, {{"h", wide}, {"g", wide}});
  });
  Runner twin(host, without_head, parameters);
  refuses("without_head: backward() of a minibatch that this runner did not record",
          [&] { twin.backward(recorded, fits); });
  runner.backward(recorded, fits);
  refuses("without_head: backward() of a minibatch that was differentiated", [&] { runner.backward(recorded, fits); });
  refuses("without_head: there is no tensor 'g'; expected one that the function pulls",
          [&] { recorded.gradient("g"); });
  const Minibatch inferred = runner.run(graphs.pointers, of(x));
  refuses("without_head: backward() of a minibatch that this runner did not record",
          [&] { runner.backward(inferred, {}); });
}

TEST_F(Networks, NamesAVertexWhoseRowIsNotThere) {
  std::vector<std::int32_t> far(15, 3);
  far[7] = 15;
  const std::vector<std::int32_t> below(15, -1);
  refuses("without_head: sample 2, vertex 2: row 15 of tensor 'rows'; expected one of its 15 rows",
          [&] { runner.run(graphs.pointers, of(x, far)); });
  refuses("without_head: sample 0, vertex 0: row -1 of tensor 'rows'; expected one of its 15 rows",
          [&] { runner.run(graphs.pointers, of(x, below)); });
  refuses("without_head: sample 0, vertex 0: row -1 of output 'h'; expected 0 or more", [&] {
    runner.record_rows(graphs.pointers, of(x), {{"h", below}});
  });
  refuses("without_head: the gradient of output 'h' has 15 rows; expected at least 16, as its vertices say", [&] {
    const Minibatch recorded = runner.record_rows(graphs.pointers, of(x), {{"h", far}});
    runner.backward(recorded, {{"h", tensor(std::vector<float>(45), Cell::h)}});
  });
}

}  // namespace
}  // namespace windrow::testing
