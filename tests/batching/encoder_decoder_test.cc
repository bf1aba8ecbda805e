// An encoder and a decoder (Sutskever, Vinyals and Le 2014): as one graph of two kinds, as two minibatches, the one
// behind the other, and as lazy expressions. All are the same function.
#include <gtest/gtest.h>

#include "tests/batching/check_minibatch.h"
#include "tests/batching/lstm.h"
#include "windrow/batching/lazy.h"

namespace windrow {
namespace {

using testing::check_minibatch;
using testing::dense;
using testing::expect_close;
using testing::Graphs;
using testing::Lstm;
using testing::Oracle;
using testing::OracleVertex;

struct Model {
  static constexpr Index e = 3, h = 4, words = 6;
  static constexpr std::int32_t encoder = 0, decoder = 1;
  Parameter source, target, out;
  Lstm encode, decode;

  explicit Model(Parameters& p)
      : source(p.add("source", words, e, Initial::uniform(-1, 1))),
        target(p.add("target", words, e, Initial::uniform(-1, 1))),
        out(p.add("out", h, words, Initial::uniform(-1, 1))),
        encode(p, "encode", e, h),
        decode(p, "decode", e, h) {}

  auto read(auto& v) const { return encode.step(v, embedding(source, v.pull_index("word")), 0); }
  /// What comes behind the word that the decoder said last, which is the true one.
  void say(auto& v, const auto& own) const {
    const auto logits = matmul(own.h, out);
    v.push("logits", logits);
    v.loss(softmax_cross_entropy(logits, v.pull_index("label")));
  }
  auto word_before(auto& v) const { return embedding(target, v.pull_index("word")); }
  void operator()(auto& v) const {
    if (v.kind() == encoder) {
      read(v);
    } else {
      say(v, decode.step(v, word_before(v), 0));
    }
  }
};

/// Word 0 ends a sentence.
struct SentencePair {
  std::vector<std::int32_t> from, to;
};

/// Appends a chain to the graph, whose first vertex has `child`; returns its last vertex.
std::int32_t append_chain(GraphData& graph, std::int32_t kind, std::int32_t child,
                          const std::vector<std::int32_t>& words) {
  for (std::int32_t word : words) {
    graph.children.push_back(child);
    graph.child_begin.push_back(static_cast<std::int32_t>(graph.children.size()));
    graph.kinds.push_back(kind);
    graph.indices["word"].push_back(word);
    graph.indices["label"];
    child = static_cast<std::int32_t>(graph.kinds.size()) - 1;
  }
  return child;
}

std::vector<std::int32_t> shifted(std::vector<std::int32_t> words) {
  words.insert(words.begin(), 0);
  return words;
}
std::vector<std::int32_t> ended(std::vector<std::int32_t> words) {
  words.push_back(0);
  return words;
}

class EncoderDecoder : public ::testing::Test {
 protected:
  Engine engine{{.workers = 2}};
  Device host = host_device(engine);
  Parameters parameters{host, 1};
  Model model{parameters};
  std::vector<SentencePair> pairs;
  VertexFunction function{"encoder and decoder",
                          {VertexFunction("encoder", {.arity = 1}, [&](Vertex& v) { model.read(v); }),
                           VertexFunction("decoder", {.arity = 1}, [&](Vertex& v) {
                             model.say(v, model.decode.step(v, model.word_before(v), 0));
                           })}};
  std::vector<GraphData> graphs;

  EncoderDecoder() {
    std::mt19937 random(5);
    const auto sentence = [&](std::size_t length) {
      std::vector<std::int32_t> words;
      for (; length > 0; --length) words.push_back(1 + static_cast<std::int32_t>(random() % (Model::words - 1)));
      return words;
    };
    for (int i = 0; i < 20; ++i) pairs.push_back({sentence(1 + random() % 9), sentence(random() % 7)});
    for (const SentencePair& pair : pairs) {
      GraphData graph;
      const std::int32_t last = append_chain(graph, Model::encoder, no_child, pair.from);
      append_chain(graph, Model::decoder, last, shifted(pair.to));
      graph.indices["label"].assign(pair.from.size(), -1);
      for (std::int32_t label : ended(pair.to)) graph.indices["label"].push_back(label);
      graphs.push_back(std::move(graph));
    }
  }

  std::vector<std::vector<double>> gradients() const {
    std::vector<std::vector<double>> all;
    for (std::size_t p = 0; p < parameters.size(); ++p) all.push_back(dense(parameters, parameters[p]));
    return all;
  }
  struct Result {
    double loss;
    std::vector<std::vector<double>> gradients;
  };
  Result in_one_graph() {
    Runner runner(host, function, parameters);
    const Graphs all(function, graphs);
    const double loss = runner.differentiate(all.pointers).loss();
    return {loss, gradients()};
  }
  void expect_the_same(double loss, const Result& expected) const {
    EXPECT_NEAR(loss, expected.loss, 1e-5 * expected.loss);
    const auto found = gradients();
    for (std::size_t p = 0; p < found.size(); ++p) expect_close(found[p], expected.gradients[p], 1e-5);
  }
};

TEST_F(EncoderDecoder, IsAGraphOfTwoKinds) {
  Runner runner(host, function, parameters, {.groups = 2, .group_flops = 1});
  Oracle oracle(parameters, [&](OracleVertex& v) { model(v); });
  check_minibatch(runner, parameters, oracle, function, graphs);
}

/// The decoder takes the encoder's outputs, and gives back their gradients.
TEST_F(EncoderDecoder, IsTwoMinibatchesThatMeet) {
  const Result expected = in_one_graph();
  const VertexFunction encoder("encoder", {.arity = 1}, [&](Vertex& v) {
    const auto own = model.read(v);
    v.push("h", own.h);
    v.push("c", own.c);
  });
  const VertexFunction first("first", {.arity = 1}, [&](Vertex& v) {
    const Lstm::State<Expr> before = {v.pull_row("h", Model::h), v.pull_row("c", Model::h)};
    const auto own = model.decode(model.word_before(v), before);
    v.scatter(v.state("h", Model::h), own.h);
    v.scatter(v.state("c", Model::h), own.c);
    model.say(v, own);
  });
  const VertexFunction next("next", {.arity = 1},
                            [&](Vertex& v) { model.say(v, model.decode.step(v, model.word_before(v), 0)); });
  const VertexFunction decoder("decoder", {first, next});

  std::vector<GraphData> sources, targets;
  std::vector<std::int32_t> row_of;
  std::int32_t rows = 0;
  for (const SentencePair& pair : pairs) {
    append_chain(sources.emplace_back(), 0, no_child, pair.from);
    append_chain(targets.emplace_back(), 1, no_child, shifted(pair.to));
    targets.back().kinds[0] = 0;
    targets.back().indices["label"] = ended(pair.to);
    rows += static_cast<std::int32_t>(pair.from.size());
    row_of.push_back(rows - 1);
    row_of.insert(row_of.end(), pair.to.size(), -1);
  }
  Runner reads(host, encoder, parameters), says(host, decoder, parameters);
  const Graphs lower(encoder, sources), upper(decoder, targets);
  const Minibatch read = reads.record(lower.pointers, {}, {"h", "c"});
  const Minibatch said =
      says.differentiate(upper.pointers, {{"h", {read.output("h"), row_of}}, {"c", {read.output("c"), row_of}}});
  reads.backward(read, {{"h", said.gradient("h")}, {"c", said.gradient("c")}}, Runner::Gradients::add);
  expect_the_same(said.loss(), expected);
}

TEST_F(EncoderDecoder, IsWrittenAsLazyExpressions) {
  const Result expected = in_one_graph();
  LazyGraph graph(host, parameters);
  std::vector<LazyExpr> losses;
  for (const SentencePair& pair : pairs) {
    const LazyExpr zero = graph.input({0, 0, 0, 0});
    Lstm::State<LazyExpr> state = {zero, zero};
    for (std::int32_t word : pair.from) state = model.encode(embedding(model.source, graph.index(word)), state);
    for (std::size_t i = 0; i <= pair.to.size(); ++i) {
      const std::int32_t before = shifted(pair.to)[i], label = ended(pair.to)[i];
      state = model.decode(embedding(model.target, graph.index(before)), state);
      losses.push_back(softmax_cross_entropy(matmul(state.h, model.out), graph.index(label)));
    }
  }
  graph.backward(losses);
  double loss = 0;
  for (const LazyExpr& one : losses) loss += one.scalar();
  expect_the_same(loss, expected);
  EXPECT_LE(graph.stats().kinds, 8);
}

}  // namespace
}  // namespace windrow
