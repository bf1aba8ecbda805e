// All models on a device: training and evaluation, against the same on the host.
#include <algorithm>
#include <cmath>

#include "tests/devices/conformance.h"
#include "tests/models/training.h"
#include "tests/sanitized.h"
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
  for (const WorkloadKind& kind : workload_kinds()) {
    if (kind.name != name) continue;
    for (const WorkloadSize& size : kind.sizes) {
      if (small.count(size.name) > 0) options.sizes[size.name] = small.at(size.name);
    }
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
    const InputGraph graph(of, data);
    const InputGraph* const graphs[] = {&graph};
    return runner.run(graphs).output("logits").get();
  };
  EXPECT_EQ(logits(program.function, *program.parameters), logits(function, *workload.parameters));
}

}  // namespace
}  // namespace windrow::testing
