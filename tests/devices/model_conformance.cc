// All models on a device: training and evaluation, against the same on the host. Functions of parameters of two sets:
// training gives the bits that one set of all parameters gives.
#include "tests/devices/conformance.h"
#include "tests/models/training.h"
#include "windrow/batching/internal/lazy_weight.h"
#include "windrow/training/optimiser.h"
#include "windrow/training/program.h"

namespace windrow::testing {
namespace {

struct Trained {
  std::vector<double> losses;
  std::vector<std::vector<float>> parameters;
  std::vector<Metric> metrics;
};

Trained train(const Device& device, const std::string& name, const WorkloadOptions& options) {
  Workload workload = make_workload(name, device, options);
  Trainer trainer(device, workload, {.minibatch = 7, .optimiser = {.rate = 0.05}});
  Trained result;
  const int passes = sanitized ? 1 : 2;
  for (int pass = 0; pass < passes; ++pass) result.losses.push_back(trainer.train(14).loss);
  result.metrics = trainer.evaluate();
  result.parameters = parameters_of(workload);
  return result;
}

void compare(const Device& device, const std::string& name, const std::string& cell = {},
             const std::string& switched_on = {}) {
  SCOPED_TRACE(name + " " + cell + " " + switched_on);
  const std::map<std::string, Index> small = {{"hidden", 8},           {"embedding", 6},     {"vocabulary", 40},
                                              {"leaves", 6},           {"steps", 5},         {"character-embedding", 4},
                                              {"character-hidden", 4}, {"tag-embedding", 4}, {"scorer", 8}};
  WorkloadOptions options{.seed = 3, .samples = 20, .cell = cell};
  for (const WorkloadSize& size : workload_kind(name).sizes) {
    if (small.contains(size.name)) options.sizes[size.name] = small.at(size.name);
  }
  if (!switched_on.empty()) options.switches.insert(switched_on);
  if (switched_on == "tied") options.sizes["embedding"] = options.sizes["hidden"];
  Engine other({.policy = Policy::serial});
  const Trained expected = train(host_device(other), name, options), actual = train(device, name, options);
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(actual.losses[i], expected.losses[i], 1e-4 * std::abs(expected.losses[i]));
  }
  ASSERT_EQ(actual.parameters.size(), expected.parameters.size());
  for (std::size_t p = 0; p < expected.parameters.size(); ++p) {
    float largest = 0, off = 0;
    for (std::size_t i = 0; i < expected.parameters[p].size(); ++i) {
      largest = std::max(largest, std::abs(expected.parameters[p][i]));
      off = std::max(off, std::abs(actual.parameters[p][i] - expected.parameters[p][i]));
    }
    EXPECT_LE(off, 1e-4f * std::max(largest, 0.01f)) << "parameter " << p;
  }
  ASSERT_EQ(actual.metrics.size(), expected.metrics.size());
  for (std::size_t i = 0; i < expected.metrics.size(); ++i) {
    EXPECT_NEAR(actual.metrics[i].value, expected.metrics[i].value, 1e-3 * (1 + std::abs(expected.metrics[i].value)))
        << expected.metrics[i].name;
  }
}

TEST_P(OnDeviceInFull, TrainsEveryModelAsTheHostDoes) {
  for (const WorkloadKind& kind : workload_kinds()) compare(device, kind.name);
  compare(device, "tree-lstm", "child-sum");
  compare(device, "tree-lstm", "attention");
  compare(device, "bilstm", {}, "crf");
  compare(device, "var-lstm", {}, "tied");
}

TEST_P(OnDevice, RunsAProgramOfAFileAsTheFunctionThatWasSaved) {
  const TextFolder folder({});
  const auto file = folder.path / "program.safetensors";
  const WorkloadOptions options{.samples = 4, .cell = "attention", .sizes = {{"hidden", 8}, {"embedding", 6}}};
  const Workload workload = make_workload("tree-lstm", device, options);
  const VertexFunction function = workload.network->function_for_use();
  save_program(file, {.function = function, .parameters = *workload.parameters});
  const LoadedProgram program = load_program(device, file);
  const GraphData data = graphs_of(workload).texts->read("(2 (2 (2 w1) (2 w2)) (2 (2 w3) (2 w4)))", "text").graph;
  const auto logits = [&](const VertexFunction& of, Parameters& parameters) {
    Runner runner(device, of, parameters);
    return runner.run(Graphs(of, {data}).pointers).output("logits").get();
  };
  EXPECT_EQ(logits(program.function, *program.parameters), logits(function, *workload.parameters));
}

constexpr Index h = 3, words = 5;

/// Encoder and decoder have parameters of the same names, unless they are in one set.
struct Part {
  Parameter table, w, bias;

  Part(Parameters& p, const std::string& before, float sign)
      : table(p.add(before + "table", words, h, Initial::zeros())),
        w(p.add(before + "w", h, h, Initial::identity(sign))),
        bias(p.add(before + "bias", 1, h, Initial::constant(0.1f * sign))) {
    std::vector<float> values;
    for (int i = 0; i < words * h; ++i) values.push_back(sign * 0.1f * static_cast<float>(i % 7 - 3));
    p.value(table).set(std::move(values));
  }
  std::vector<Parameter> all() const { return {table, w, bias}; }
};

/// An encoder reads a chain of words. A decoder says a label from each state, by logits that are tied to the encoder's
/// words. Both use `mixed`, a function of weights of both.
struct Model {
  Part encoder, decoder;

  auto mixed(const auto& one, const auto& other) const { return exp(one) * other; }
  auto read(const auto& word, const auto& before) const {
    return tanh(embedding(encoder.table, word) + matmul(before, encoder.w) + encoder.bias);
  }
  auto say(const auto& state, const auto& word, const auto& label, const auto& weight) const {
    const auto own = dropout(state * decoder.bias + embedding(decoder.table, word), {.rate = 0.25});
    return softmax_cross_entropy(matmul_nt(matmul(own, weight), encoder.table), label);
  }
  VertexFunction function() const {
    const VertexFunction reads("encoder", {.arity = 1}, [&](Vertex& v) {
      const State s = v.state("s", h);
      v.scatter(s, read(v.pull_index("word"), v.gather(0, s)));
    });
    const VertexFunction says("decoder", {.arity = 1}, [&](Vertex& v) {
      const Expr weight = mixed(v.parameter(encoder.w), v.parameter(decoder.w));
      v.loss(say(v.gather(0, v.state("s", h)), v.pull_index("word"), v.pull_index("label"), weight));
    });
    return VertexFunction("both", {reads, says});
  }
  /// A word and its label for each pair of vertices.
  static GraphData graph(const std::vector<std::int32_t>& sentence) {
    GraphData data{.child_begin = {0}};
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(sentence.size()); ++i) {
      for (const std::int32_t kind : {0, 1}) {
        if (kind == 1 || i > 0) data.children.push_back(kind == 1 ? 2 * i : 2 * i - 2);
        data.child_begin.push_back(static_cast<std::int32_t>(data.children.size()));
        data.kinds.push_back(kind);
        data.indices["word"].push_back(sentence[static_cast<std::size_t>(i)]);
        data.indices["label"].push_back((sentence[static_cast<std::size_t>(i)] + 1) % words);
      }
    }
    return data;
  }
};

/// Trains in both front ends, with these steps. Returns the losses.
std::vector<double> train(const Device& device, const ParameterSets& sets, const Model& model,
                          const std::function<void()>& step) {
  std::vector<double> losses;
  const std::vector<std::int32_t> sentences[] = {{1, 2, 3}, {0, 4}, {2, 2, 1, 0}};
  const VertexFunction function = model.function();
  Runner runner(device, function, sets);
  LazyGraph graph(device, sets);
  const LazyCell read = graph.cell("read", [&](CellBody& cell) {
    const IndexExpr word = cell.index();
    const Expr before = cell.operand(h);
    cell.result(model.read(word, before) * model.decoder.bias);
  });
  std::vector<GraphData> data;
  for (const auto& sentence : sentences) data.push_back(Model::graph(sentence));
  const Graphs graphs(function, data);
  for (int i = 0; i < 3; ++i) {
    losses.push_back(runner.differentiate(graphs.pointers).loss());
    step();
    std::vector<LazyExpr> terms;
    for (const auto& sentence : sentences) {
      LazyExpr state = graph.zeros(h);
      for (const std::int32_t word : sentence) {
        state = i == 2 ? read({state}, {graph.index(word)}) : model.read(graph.index(word), state);
        const LazyWeight weight = model.mixed(LazyWeight(model.encoder.w), LazyWeight(model.decoder.w));
        terms.push_back(model.say(state, graph.index(word), graph.index((word + 1) % words), weight));
      }
    }
    losses.push_back(sum(terms).scalar());
    graph.backward(terms);
    step();
    graph.clear();
  }
  return losses;
}

std::vector<float> values(const Parameters& set, const Part& part) {
  std::vector<float> all;
  for (const Parameter& parameter : part.all()) {
    for (const float value : set.value(parameter).get()) all.push_back(value);
  }
  return all;
}

TEST_P(OnDeviceInFull, TrainsWithTwoSetsAsWithOneThatHasAllParameters) {
  Parameters all(device, 7);
  const Model of_one{Part(all, "encoder.", 1), Part(all, "decoder.", -1)};
  Optimiser of_all(all, Method::adam(), {.rate = 0.1});
  for (const Parameter& parameter : of_one.decoder.all()) of_all.set(parameter, {.rate_factor = 0.5});

  Parameters encoder(device, 7, {.name = "encoder"}), decoder(device, 8, {.name = "decoder"});
  const Model of_two{Part(encoder, "", 1), Part(decoder, "", -1)};
  Optimiser fast(encoder, Method::adam(), {.rate = 0.1}), slow(decoder, Method::adam(), {.rate = 0.05});

  const std::vector<double> losses = train(device, all, of_one, [&] { of_all.step(3); });
  const auto step_both = [&] {
    fast.step(3);
    slow.step(3);
  };
  EXPECT_EQ(train(device, {encoder, decoder}, of_two, step_both), losses);
  EXPECT_EQ(values(all, of_one.encoder), values(encoder, of_two.encoder));
  EXPECT_EQ(values(all, of_one.decoder), values(decoder, of_two.decoder));
  EXPECT_EQ(encoder.minibatches(), all.minibatches());
  EXPECT_EQ(decoder.minibatches(), all.minibatches());

  // A set without an optimiser stands still, and all sets get their gradients.
  const std::vector<float> before = values(encoder, of_two.encoder), changing = values(decoder, of_two.decoder);
  train(device, {encoder, decoder}, of_two, [&] { slow.step(3); });
  EXPECT_EQ(values(encoder, of_two.encoder), before);
  EXPECT_NE(values(decoder, of_two.decoder), changing);
  EXPECT_TRUE(encoder.gradient(of_two.encoder.w).all.has_value());
}

}  // namespace
}  // namespace windrow::testing
