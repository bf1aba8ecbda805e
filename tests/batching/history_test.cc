// Histories of runners. What a training does after one was set, tests/models/resume_test.cc shows.
#include <gtest/gtest.h>

#include "tests/batching/trainer.h"

namespace windrow {
namespace {

using testing::Graphs;
using testing::many_trees;
using testing::Trainer;

TEST(RunnerHistory, IsTakenByARunnerOfTheSameFunctionOnly) {
  const RunnerOptions options{.schedule = SchedulePolicy::learned, .own_types = 1};
  Trainer s({}, options);
  const Graphs graphs(s.function, many_trees(1, 20));
  s.runner.differentiate(graphs.pointers);
  const std::vector<std::int64_t> history = s.runner.history();
  Trainer same({}, options);
  same.runner.set_history(history);
  EXPECT_EQ(same.runner.history(), history);
  const std::vector<std::int64_t> before = Trainer({}, options).runner.history();
  Trainer other({}, options);
  for (std::size_t length = 0; length < history.size(); length += 1 + history.size() / 50) {
    EXPECT_THROW(other.runner.set_history(std::span(history).first(length)), MisuseError) << length;
  }
  std::vector<std::int64_t> longer = history;
  longer.push_back(0);
  EXPECT_THROW(other.runner.set_history(longer), MisuseError);
  EXPECT_EQ(other.runner.history(), before);  // unchanged
  const VertexFunction kinds("kinds", {VertexFunction("a", {}, [](Vertex& v) { v.push("x", v.pull("y", 1)); }),
                                       VertexFunction("b", {}, [](Vertex& v) { v.push("x", v.pull("y", 1)); })});
  EXPECT_THROW(Runner(s.host, kinds, s.parameters).set_history(history), MisuseError);
}

}  // namespace
}  // namespace windrow
