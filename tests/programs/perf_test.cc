// What benchmarks are made of: systems that run every op, hazards, child processes, METG, turns, and
// the tagger with manual batching.

#include "batching/hand_tagger.h"
#include "batching/interleaved_runs.h"
#include "batching/tables.h"
#include "engine/benchmark.h"
#include "engine/hazards.h"
#include "engine/process.h"
#include "engine/trial.h"
#include "tests/batching/cells.h"
#include "windrow/engine/error.h"
#include "windrow/models/internal/tagger.h"

namespace windrow::perf {
namespace {

/// Each system of the build with each pattern that it takes.
TEST(Systems, RunEveryOpOnce) {
  for (const std::string& system : built_system_names()) {
    for (const std::string& name : Pattern::names()) {
      const Pattern pattern = Pattern::named(name, 5);
      if (!takes(system, pattern)) continue;
      Trial trial(system, pattern, {.workers = 2});
      for (const std::int64_t ops : {1, 7, 3000}) EXPECT_NO_THROW(trial.run({.ops = ops}));
    }
  }
}

TEST(Systems, RefuseWhatTheyDoNotKnow) {
  const Pattern pattern = Pattern::named("A");
  EXPECT_THROW(make_system("mxnet", pattern, {}), MisuseError);
  EXPECT_THROW(takes("mxnet", pattern), MisuseError);
  EXPECT_THROW(Pattern::named("D", 1), MisuseError);
}

/// Who reads or mutates what the other mutates.
bool conflict(const Task& a, const Task& b) {
  const auto touches = [](const Task& task, int cell) {
    return task.mutates == cell || std::find(task.reads.begin(), task.reads.begin() + task.read_count, cell) !=
                                       task.reads.begin() + task.read_count;
  };
  return (a.mutates != Task::none && touches(b, a.mutates)) || (b.mutates != Task::none && touches(a, b.mutates));
}

TEST(Hazards, OrderAllOpsThatConflictAndNoOthers) {
  const auto seed = static_cast<unsigned>(::testing::UnitTest::GetInstance()->random_seed());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Pattern pattern{"random", 6, 6, {}};
  for (int i = 0; i < 80; ++i) {
    Task task{.mutates = random() % 3 == 0 ? Task::none : static_cast<int>(random() % 6)};
    for (int k = static_cast<int>(random() % 4); k > 0; --k) {
      const int cell = static_cast<int>(random() % 6);
      if (cell != task.mutates) task.reads[static_cast<std::size_t>(task.read_count++)] = cell;
    }
    pattern.tasks.push_back(task);
  }
  Hazards<std::size_t> hazards(pattern);
  std::vector<std::set<std::size_t>> before(pattern.tasks.size());  // all that an op comes after
  for (std::size_t i = 0; i < pattern.tasks.size(); ++i) {
    hazards.precede(pattern.tasks[i], [&](std::size_t other) {
      EXPECT_TRUE(conflict(pattern.tasks[other], pattern.tasks[i])) << other << " before " << i;
      before[i].insert(other);
      before[i].insert(before[other].begin(), before[other].end());
    });
    hazards.enter(pattern.tasks[i], i);
    for (std::size_t other = 0; other < i; ++other) {
      if (conflict(pattern.tasks[other], pattern.tasks[i])) {
        EXPECT_EQ(before[i].count(other), 1u) << other << " before " << i;
      }
    }
  }
}

TEST(InChild, TellsWhatWasThrownThere) {
  EXPECT_EQ(testing::error_of<Error>([] { in_child([]() -> double { throw MisuseError("no such thing"); }); }),
            "no such thing");
  EXPECT_THROW(in_child([]() -> double { std::_Exit(3); }), Error);
}

TEST(InChild, HasItsOwnMemory) {
  constexpr std::size_t bytes = 64 << 20;
  const auto grow = [](std::size_t size) {
    return in_child([size] {
      const double before = resident_bytes();
      volatile char touched = std::vector<char>(size, 1)[size / 2];  // the memory is gone again
      (void)touched;
      return peak_resident_bytes() - before;
    });
  };
  if (std::isnan(resident_bytes())) GTEST_SKIP() << "needs /proc";
  EXPECT_GT(grow(bytes), 0.9 * bytes);
  EXPECT_LT(grow(1), 0.5 * bytes) << "the child before does not count";
}

TEST(Metg, LiesBetweenThePointsAroundIt) {
  const std::vector<Efficiency> curve = {{100, 0.1}, {200, 0.6}, {400, 0.4}, {800, 0.6}, {1600, 0.9}};
  EXPECT_NEAR(metg_of(curve, 0.5), 400 * std::sqrt(2), 1e-9) << "half way up, after it was lost";
  EXPECT_NEAR(metg_of(curve, 0.6), 800, 1e-9);
  EXPECT_NEAR(metg_of(curve, 0.9), 1600, 1e-9);
  EXPECT_TRUE(std::isnan(metg_of(curve, 0.95))) << "never";
  EXPECT_TRUE(std::isnan(metg_of(curve, 0.05))) << "below the shortest";
  EXPECT_TRUE(std::isnan(metg_of({}, 0.5)));
}

TEST(InterleavedRuns, AreTakenInEachRepetition) {
  InterleavedRuns runs;
  std::string order;
  double speed = 1;
  const std::size_t a = runs.add([&] { return order += 'a', speed *= 2; });
  const std::size_t b = runs.add([&] { return order += 'b', 3 * speed; });
  runs.run(3);
  EXPECT_EQ(order, "ababbaab") << "once unmeasured, then beginning with another one each time";
  EXPECT_EQ(runs.median(a), 8);
  EXPECT_EQ(runs.ratio(b, a), 3) << "whatever the machine's mood";
  EXPECT_TRUE(std::isnan(median_of({})));
  EXPECT_EQ(median_of({4, 1, 2, 3}), 2.5);
}

/// Minibatches of the same sentences, by hand and as a vertex function.
TEST(HandTagger, ComputesWhatTheVertexFunctionDoes) {
  Engine engine({.workers = 2});
  const Device host = host_device(engine);
  Parameters parameters(host, 1);
  const Tagger tagger(parameters, {.vocabulary = 9, .tags = 4, .embedding = 5, .hidden = 6, .layers = 2});
  const VertexFunction function = tagger.function();
  std::mt19937 random(7);
  constexpr std::size_t length = 5, sentences = 3;
  std::vector<TaggerInput> inputs(sentences);
  std::vector<std::int32_t> words, tags;
  for (std::size_t word = 0; word < length; ++word) {
    for (TaggerInput& input : inputs) {
      input.words.push_back(words.emplace_back(static_cast<std::int32_t>(random() % 9)));
      input.tags.push_back(tags.emplace_back(static_cast<std::int32_t>(random() % 4)));
      input.characters.emplace_back();
    }
  }
  std::vector<GraphData> data;
  for (const TaggerInput& input : inputs) data.push_back(tagger.graph(input));
  const testing::Graphs graphs(function, data);
  Runner runner(host, function, parameters);
  const double loss = runner.differentiate(graphs.pointers).loss();
  std::vector<std::vector<double>> expected;
  for (std::size_t p = 0; p < parameters.size(); ++p) expected.push_back(testing::dense(parameters, parameters[p]));

  HandTagger by_hand(host, parameters, 6, 2);
  const TensorSentences minibatch = to_tensors(host, words, tags, sentences);
  for (int again = 0; again < 2; ++again) EXPECT_NEAR(by_hand.differentiate(minibatch).get()[0], loss, 1e-4);
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    SCOPED_TRACE(parameters.name(parameters[p]));
    testing::expect_close(testing::dense(parameters, parameters[p]), expected[p], 1e-4);
  }
}

}  // namespace
}  // namespace windrow::perf
