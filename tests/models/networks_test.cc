// The networks of the workloads against the oracle: losses, outputs and gradients, which their bodies are run for once
// more, in double precision.
#include <gtest/gtest.h>

#include "networks/deep_sets.h"
#include "networks/graph_lstm.h"
#include "tests/batching/check_minibatch.h"
#include "tests/batching/layers_cell.h"
#include "tests/batching/seeing_cell.h"
#include "windrow/models/language_model.h"
#include "windrow/models/seq2seq.h"
#include "windrow/models/tagger.h"
#include "windrow/models/tree_fc.h"
#include "windrow/models/tree_lstm.h"

namespace windrow {
namespace {

using testing::check_minibatch;
using testing::Form;
using testing::Oracle;
using testing::OracleVertex;
using testing::random_graph;

/// A network with what it needs. Its function is of one kind, or tells kinds apart by a second argument.
template <class Network>
struct Checked {
  template <class... Sizes>
  explicit Checked(const Sizes&... sizes) : network(parameters, sizes...) {
    for (std::size_t i = 0; i < parameters.size(); ++i) draw(parameters.value(parameters[i]));
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

  Engine engine{{.workers = 2}};
  Device host = host_device(engine);
  Parameters parameters{host, 3};
  Network network;

 private:
  /// Values that cannot be missed, where networks start with small ones or none.
  static void draw(const Tensor& value) {
    std::mt19937 random(static_cast<unsigned>(value.width()));
    std::vector<float> values;
    for (Index i = 0; i < value.rows() * value.width(); ++i) {
      values.push_back(static_cast<float>(random() % 2001) / 1000 - 1);
    }
    value.set(values);
  }
};

TEST(ChildSumTreeLstm, ComputesWhatTheOracleDoes) {
  std::mt19937 random(1);
  std::vector<GraphData> data;
  for (const std::int32_t vertices : {1, 9, 0, 23, 2}) {
    data.push_back(random_graph(vertices, any_arity, Form::trees, random));
    data.push_back(random_graph(vertices, any_arity, Form::dag, random));
  }
  for (const auto children : {ChildSumTreeLstm::Children::sum, ChildSumTreeLstm::Children::attention}) {
    Checked<ChildSumTreeLstm> network(TreeLstmSizes{7, 3, 4, 5}, children);
    network.check(data);
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
  Checked<LanguageModel> network(LanguageModelSizes{5, 3, 4});
  network.check({LanguageModel::graph({1, 2, 3, 4, 0}), LanguageModel::graph({1, 2}), LanguageModel::graph({4, 2, 3}),
                 LanguageModel::graph({})});
}

TEST(LanguageModel, WithTiedWordsComputesWhatTheOracleDoes) {
  Checked<LanguageModel> network(LanguageModelSizes{.vocabulary = 5, .embedding = 3, .hidden = 3, .tied = true});
  network.check({LanguageModel::graph({1, 2, 3, 4, 0}), LanguageModel::graph({1, 2}), LanguageModel::graph({4, 2, 3})});
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
  std::vector<GraphData> data;
  for (const std::int32_t vertices : {1, 9, 0, 23, 2}) {
    GraphData graph = random_graph(vertices, any_arity, Form::dag, random);
    for (std::int32_t& word : graph.indices["word"]) word = std::max(word, 0);
    data.push_back(graph);
  }
  network.check(data);
}

}  // namespace
}  // namespace windrow
