// The networks of the workloads against the oracle, which runs their bodies once more in double precision: losses,
// outputs and gradients. Cells and attention in lazy expressions.
#include "networks/deep_sets.h"
#include "networks/graph_lstm.h"
#include "tests/batching/check_minibatch.h"
#include "tests/batching/layers_cell.h"
#include "windrow/models/internal/tagger.h"
#include "windrow/models/internal/tree_fc.h"
#include "windrow/models/language_model.h"
#include "windrow/models/layers.h"
#include "windrow/models/seq2seq.h"

namespace windrow::testing {
namespace {

/// A network with what it needs. Its function is of one kind, or tells kinds apart by a second argument.
template <class Network>
struct Checked : OnHost {
  template <class... Sizes>
  explicit Checked(const Sizes&... sizes) : network(parameters, sizes...) {
    draw_values(parameters, 3);
  }

  void check(const std::vector<GraphData>& data, const VertexFunction::Shape& shape = {}) {
    const VertexFunction function = network.function();
    Runner runner(host, function, parameters, {.groups = 2, .group_flops = 1});
    const auto body = [&](OracleVertex& v) {
      if constexpr (requires { network(v); }) {
        network(v);
      } else {
        network(v, v.kind());
      }
    };
    Oracle oracle(parameters, body, shape);
    check_minibatch(runner, parameters, oracle, function, data);
  }

  Network network;
};

/// Gated recurrent units along chains.
struct GruChain {
  explicit GruChain(Parameters& parameters) : gru(parameters, "gru", {2, 4}) {}

  void operator()(auto& v) const {
    const auto h = gru.step(v, gru.state(v, "h"), gru.project(v.pull("x", 2)));
    v.push("h", h);
    v.loss(row_sum(square(h)));
  }
  VertexFunction function() const {
    return {"gru", {.arity = 1}, [*this](Vertex& v) { (*this)(v); }};
  }

  Gru gru;
};

TEST(Gru, ComputesWhatTheOracleDoes) {
  std::mt19937 random(1);
  Checked<GruChain>().check(random_graphs({1, 5, 0, 9}, 1, Form::trees, random), {.arity = 1});
}

TEST(ChildSumTreeLstm, ComputesWhatTheOracleDoes) {
  std::mt19937 random(1);
  for (const auto children : {ChildSumTreeLstm::Children::sum, ChildSumTreeLstm::Children::attention}) {
    for (const Form form : {Form::trees, Form::dag}) {
      Checked<ChildSumTreeLstm> network(TreeLstmSizes{7, 3, 4, 5}, children);
      network.check(random_graphs({1, 9, 0, 23, 2}, any_arity, form, random));
    }
  }
}

TEST(TreeFc, ComputesWhatTheOracleDoes) {
  Checked<TreeFc> network(TreeFcSizes{5, 3, 4});
  network.check({TreeFc::graph({0, 1}, 2), TreeFc::graph({3, 4, 0}, 0), TreeFc::graph({1, 2, 1, 2, 0, 3, 3, 0}, 3)});
}

TEST(TreeFc, HasCompleteTrees) {
  const GraphData tree = TreeFc::graph({4, 3, 2, 1, 0}, 1);
  EXPECT_EQ(tree.child_begin, (std::vector<std::int32_t>{0, 2, 4, 6, 8, 8, 8, 8, 8, 8}));
  EXPECT_EQ(tree.children, (std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(tree.kinds, (std::vector<std::int32_t>{2, 1, 1, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(tree.indices.at("word"), (std::vector<std::int32_t>{-1, -1, -1, -1, 4, 3, 2, 1, 0}));
}

TEST(LanguageModel, ComputesWhatTheOracleDoes) {
  for (const bool tied : {false, true}) {
    SCOPED_TRACE(tied ? "tied words" : "words apart");
    Checked<LanguageModel> network(
        LanguageModelSizes{.vocabulary = 5, .embedding = 3, .hidden = tied ? 3 : 4, .tied = tied});
    network.check({LanguageModel::graph({1, 2, 3, 4, 0}), LanguageModel::graph({1, 2}), LanguageModel::graph({4, 2, 3}),
                   LanguageModel::graph({})});
  }
}

TEST(Tagger, ComputesWhatTheOracleDoes) {
  const std::vector<TaggerInput> sentences = {
      {{1, 2, 3, 1}, {{}, {}, {}, {}}, {0, 1, 2, 0}}, {{2}, {{}}, {1}}, {}, {{4, 0}, {{}, {}}, {2, 2}}};
  for (const Index layers : {1, 2}) {
    Checked<Tagger> network(
        TaggerSizes{.vocabulary = 5, .tags = 3, .embedding = 2, .hidden = 3, .layers = layers, .crf = layers == 2});
    std::vector<GraphData> data;
    for (const TaggerInput& sentence : sentences) data.push_back(network.network.graph(sentence));
    network.check(data);
  }
}

TEST(Tagger, ReadsWordsByTheirCharactersAsTheOracleDoes) {
  Checked<Tagger> network(TaggerSizes{.vocabulary = 5,
                                      .tags = 3,
                                      .embedding = 2,
                                      .hidden = 3,
                                      .characters = 4,
                                      .character_embedding = 2,
                                      .character_hidden = 2,
                                      .crf = true});
  std::vector<GraphData> data;
  for (const TaggerInput& sentence : std::vector<TaggerInput>{{{1, -1, 3, -1}, {{}, {0, 1, 2}, {}, {3}}, {0, 1, 2, 0}},
                                                              {{2, 2}, {{}, {}}, {1, 0}},
                                                              {{-1}, {{1, 1}}, {2}}}) {
    data.push_back(network.network.graph(sentence));
  }
  network.check(data);
}

TEST(Seq2Seq, ComputesWhatTheOracleDoes) {
  Checked<Seq2Seq> network(Seq2SeqSizes{.source = 6, .target = 5, .embedding = 2, .hidden = 3});
  const std::vector<std::int32_t> sentences[] = {{3, 4, 5, 3}, {0}}, translations[] = {{1, 3, 4, 0, 2}, {1, 4, 2}};
  network.check({Seq2Seq::graph(sentences[0], translations[0]), Seq2Seq::graph(sentences[1], translations[0]),
                 Seq2Seq::graph(sentences[0], translations[1])},
                Seq2Seq::shapes[Seq2Seq::step]);
}

TEST(DeepSets, ComputeWhatTheOracleDoes) {
  Checked<DeepSets> network(DeepSetsSizes{5, 3, 4});
  constexpr auto digit = DeepSets::digit, list = DeepSets::list;
  GraphData nested{
      .child_begin = {0, 0, 0, 2, 2, 5}, .children = {0, 1, 2, 3, 0}, .kinds = {digit, digit, list, digit, list}};
  nested.indices = {{"symbol", {1, 2, 3, 0, 4}}, {"label", {-1, -1, 2, -1, 0}}};
  GraphData flat{.child_begin = {0, 1, 1}, .children = {1}, .kinds = {list, digit}};
  flat.indices = {{"symbol", {3, 0}}, {"label", {-1, -1}}};
  network.check({nested, flat, nested});
}

TEST(GraphLstm, ComputesWhatTheOracleDoes) {
  std::mt19937 random(1);
  Checked<GraphLstm> network(GraphLstmSizes{7, 3, 3, 4, 5});
  std::vector<GraphData> data = random_graphs({1, 9, 0, 23, 2}, any_arity, Form::dag, random);
  for (GraphData& graph : data) {
    for (std::int32_t& word : graph.indices["word"]) word = std::max(word, 0);
  }
  network.check(data);
}

constexpr Index from = 3, hidden = 4;

class BuildingBlocks : public ::testing::Test, protected OnHost {
 protected:
  BuildingBlocks() : OnHost({.workers = 2}, first_seed()) {}
  LazyGraph graph{host, parameters};
};

TEST_F(BuildingBlocks, GrusAreWhatTheirFormulasSay) {
  const Gru gru(parameters, "gru", {from, hidden});
  for (const char* name : {"gru bias", "gru recurrent bias"}) {
    std::vector<float> values;
    for (int i = 0; i < 12; ++i) values.push_back(static_cast<float>(i) / 8 - 0.5f);
    parameters.value(parameters.find(name)).set(values);
  }
  const std::vector<float> x = {0.5, -1, 2}, before = {1, -0.5, 0.25, 0};
  const auto of = [&](const char* name) { return parameters.value(parameters.find(name)).get(); };
  const std::vector<float> in = of("gru in"), recurrent = of("gru recurrent"), bias = of("gru bias"),
                           other = of("gru recurrent bias");
  const std::vector<float> found = gru.cell(gru.project(graph.input(x)), graph.input(before)).value();
  for (std::size_t c = 0; c < hidden; ++c) {
    const auto gate = [&](std::size_t number) {
      const std::size_t column = number * hidden + c;
      double input = bias[column], state = other[column];
      for (std::size_t i = 0; i < from; ++i) input += x[i] * in[i * 3 * hidden + column];
      for (std::size_t i = 0; i < hidden; ++i) state += before[i] * recurrent[i * 3 * hidden + column];
      return std::pair(input, state);
    };
    const auto sigmoid_of = [](std::pair<double, double> both) {
      return 1 / (1 + std::exp(-both.first - both.second));
    };
    const double reset = sigmoid_of(gate(0)), keep = sigmoid_of(gate(1));
    const double fresh = std::tanh(gate(2).first + reset * gate(2).second);
    EXPECT_NEAR(found[c], (1 - keep) * fresh + keep * before[c], 1e-5);
  }
}

TEST_F(BuildingBlocks, AParameterSetMayHoldSeveralTreeLstms) {
  const TreeLstmSizes sizes{.vocabulary = 5, .embedding = from, .hidden = hidden, .classes = 3};
  const windrow::TreeLstm question(parameters, sizes, "question"), answer(parameters, sizes, "answer");
  const ChildSumTreeLstm third(parameters, sizes, ChildSumTreeLstm::Children::attention, "third");
  for (const std::string name : {"question words", "answer words", "third attention score"}) {
    EXPECT_EQ(parameters.name(parameters.find(name)), name);
  }
  EXPECT_NE(error_of<MisuseError>([&] { windrow::TreeLstm(parameters, sizes, "answer"); }), "");
  const std::pair none(graph.zeros(hidden), graph.zeros(hidden));
  const auto of = [&](const windrow::TreeLstm& tree) { return tree.cell(tree.read(graph.index(3)), none, none).first; };
  graph.backward(std::vector{row_sum(of(question) * of(answer))});
  for (const char* const name : {"question leaf", "answer leaf"}) {
    const Values gradient = dense(parameters, parameters.find(name));
    EXPECT_NE(gradient, Values(gradient.size(), 0)) << name;
  }
}

/// Checkpoints contain these names: a change of one needs a table that maps the old ones.
TEST(NamesOfParameters, AreThoseOfTheBlockAndARole) {
  using Add = std::function<void(Parameters&, const std::string&)>;
  using Roles = std::vector<std::string>;
  struct Block {
    Add add;
    Roles roles;
  };
  const TreeLstmSizes sizes{.vocabulary = 5, .embedding = from, .hidden = hidden, .classes = 3};
  using Children = ChildSumTreeLstm::Children;
  const Roles child_sum = {"words", "in", "sum", "bias", "forget", "forget_in", "forget_bias", "head", "head_bias"};
  Roles attending = child_sum;
  attending.insert(attending.end(), {"attention", "attention score"});
  const std::vector<Block> blocks = {
      {[](auto& p, auto& name) {
         Lstm(p, name, {from, hidden});
       },
       {"in", "recurrent", "bias"}},
      {[](auto& p, auto& name) {
         Gru(p, name, {from, hidden});
       },
       {"in", "recurrent", "bias", "recurrent bias"}},
      {[](auto& p, auto& name) {
         AdditiveAttention(p, name, {hidden, from, 5});
       },
       {"query", "key", "score"}},
      {[](auto& p, auto& name) { Crf(p, name, 4); }, {"transitions", "start", "stop"}},
      {[&](auto& p, auto& name) { windrow::TreeLstm(p, sizes, name); },
       {"words", "leaf", "inner", "bias", "forget", "forget_bias", "head", "head_bias"}},
      {[&](auto& p, auto& name) { ChildSumTreeLstm(p, sizes, Children::sum, name); }, child_sum},
      {[&](auto& p, auto& name) { ChildSumTreeLstm(p, sizes, Children::attention, name); }, attending}};
  for (const auto& [add, roles] : blocks) {
    for (const std::string block : {"left", "left ", ""}) {
      OnHost s;
      add(s.parameters, block);
      ASSERT_EQ(s.parameters.size(), roles.size());
      for (std::size_t i = 0; i < roles.size(); ++i) {
        EXPECT_EQ(s.parameters.name(s.parameters[i]), (block.empty() ? "" : "left ") + roles[i]);
      }
      add(s.parameters, "right");
      EXPECT_NE(error_of<MisuseError>([&] { add(s.parameters, block); }), "");
    }
  }
}

/// A key that is hidden counts for nothing; otherwise a query attends to lists of any length.
TEST_F(BuildingBlocks, AttentionIsToListsOfAnyLength) {
  const AdditiveAttention additive(parameters, "attention", {hidden, from, 5});
  const LazyExpr query = graph.input({0.5, -0.25, 1, 2});
  std::vector<LazyExpr> keys, masks;
  for (int i = 0; i < 21; ++i) {
    const auto x = static_cast<float>(i);
    keys.push_back(graph.input({x / 8, 1 - x / 16, -x / 32}));
    masks.push_back(graph.input({i == 7 ? -1e30f : 0}));
  }
  std::vector<LazyExpr> seen = keys;
  seen.erase(seen.begin() + 7);
  const auto as_doubles = [](const std::vector<float>& row) { return Values(row.begin(), row.end()); };
  expect_close(as_doubles(attend(additive, query, keys, keys, masks).value()),
               as_doubles(attend(additive, query, seen, seen).value()), 1e-5);
  EXPECT_EQ(attend(DotAttention(), keys[2], std::span(keys).first(1), std::span(keys).first(1)).value(),
            keys[0].value());
  const auto said = [](auto call) { return error_of<MisuseError>(call); };
  EXPECT_EQ(said([&] { attend(additive, query, keys, keys, std::span(masks).first(2)); }),
            "attend: 2 masks for 21 keys; expected as many");
  EXPECT_EQ(said([&] { attend(DotAttention(), query, keys, keys); }),
            "dot_attention: the query is vertices x 4, key 0 is vertices x 3; expected one width");
  EXPECT_EQ(said([&] { attend(additive, query, keys, std::span(keys).first(2)); }),
            "weighted_sum: 21 weights for 2 values; expected as many");
}

}  // namespace
}  // namespace windrow::testing
