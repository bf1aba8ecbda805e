// What Runner::source() refuses. That printed programs give the bits of the library is tested by
// programs_export_test.cc, which compiles them.
#include "windrow/ops/source.h"

#include <gtest/gtest.h>

#include <string>

#include "windrow/batching/runner.h"
#include "windrow/ops/operators.h"

namespace windrow {
namespace {

class Source : public ::testing::Test {
 protected:
  /// The message with which printing is refused after a vertex without children was computed.
  std::string refusal(const VertexFunction& function, const RunnerOptions& options = {}) {
    Runner runner(host, function, parameters, options);
    const InputGraph graph(function, {.child_begin = {0, 0}, .values = {{"x", {1, 2}}}});
    const InputGraph* const pointer = &graph;
    runner.run({&pointer, 1});
    return refusal(runner);
  }
  static std::string refusal(const Runner& runner) {
    try {
      static_cast<void>(runner.source());
      return {};
    } catch (const MisuseError& error) {
      return error.what();
    }
  }

  Engine engine;
  const Device host = host_device(engine);
  Parameters parameters{host, 1};
  const VertexFunction twice{"twice", {}, [](Vertex& v) {
                               const Expr x = v.pull("x", 2);
                               v.push("y", x + x);
                             }};
};

TEST_F(Source, NeedsVertexTypesAndAnOutput) {
  EXPECT_EQ(refusal(Runner(host, twice, parameters)),
            "twice cannot be exported: no vertex types are known; expected a runner that has computed minibatches");
  EXPECT_EQ(refusal(twice), "");
  const VertexFunction silent("silent", {}, [](Vertex& v) { v.loss(slice(v.pull("x", 2), 0, 1)); });
  EXPECT_EQ(refusal(silent), "silent cannot be exported: it pushes no output; expected one");
}

TEST_F(Source, NeedsTheDefaultOptions) {
  EXPECT_EQ(refusal(twice, {.batch_rows = 1}),
            "twice cannot be exported: options of its runner; expected the default ones");
  EXPECT_EQ(refusal(twice, {.optimisations = {.slots = false}}),
            "twice cannot be exported: options of its runner; expected the default ones");
  EXPECT_EQ(refusal(twice, {.groups = 2}), "") << "that only divides work";
}

TEST_F(Source, HasAFileForTheModelAndNamesOfParameters) {
  const Parameter w = parameters.add("w", 2, 3, Initial::constant(1));
  const VertexFunction product("a product", {}, [&](Vertex& v) { v.push("y", matmul(v.pull("x", 2), w)); });
  Runner runner(host, product, parameters);
  const InputGraph graph(product, {.child_begin = {0, 0}, .values = {{"x", {1, 2}}}});
  const InputGraph* const pointer = &graph;
  runner.run({&pointer, 1});
  const PrintedSource source = runner.source();
  EXPECT_EQ(source.name, "a_product");
  EXPECT_EQ(source.parameters, std::vector<std::string>{"w"});
  for (const char* const name : {"model.h", "model.cc", "main.cc", "level_loop.h", "weights.h", "CMakeLists.txt"}) {
    EXPECT_TRUE(source.files.contains(name)) << name;
  }
  EXPECT_NE(source.files.at("model.h").find("std::vector<float> x = {};"), std::string::npos);
  EXPECT_NE(source.files.at("model.cc").find("n.op_matmul("), std::string::npos);
}

}  // namespace
}  // namespace windrow
