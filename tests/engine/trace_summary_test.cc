// Summaries of traces, counters of programs, traces that the environment asks for, and where they are written.
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "read_trace.h"
#include "sim_device.h"
#include "support.h"
#include "tests/grouping.h"
#include "windrow/engine/trace.h"

namespace windrow::testing {
namespace {

class SummaryOfEveryPolicy : public EngineOnEveryPolicy {};
WINDROW_EVERY_POLICY(SummaryOfEveryPolicy);

TEST(Trace, ShowsCountersOfTheProgram) {
  Engine engine({.policy = Policy::pool, .workers = 2});
  std::atomic<std::uint64_t> bytes = 7;
  engine.trace().add_counter("bytes in use", [&]() -> std::optional<std::uint64_t> { return bytes; });
  engine.trace().add_counter("gone", []() -> std::optional<std::uint64_t> { return std::nullopt; });
  engine.trace().start({.all_arrows = true});
  engine.push([&] { bytes = 9; }, {});
  const ReadTrace trace = end_trace(engine);
  const auto& counts = trace.counters.at("bytes in use");
  EXPECT_EQ(counts.size(), trace.counters.at("pending ops").size());
  EXPECT_EQ(counts.front().count, 7);
  EXPECT_EQ(counts.back().count, 9);
  EXPECT_FALSE(trace.counters.contains("gone"));
  EXPECT_EQ(error_of<MisuseError>([&] { engine.trace().add_counter("none", {}); }),
            "trace: counter 'none' has no function; expected one");
}

/// The length of the longest chain of arrows, by trying all.
std::int64_t longest_chain(const ReadTrace& trace, const std::string& to) {
  std::int64_t before = 0;
  for (const auto& [from, target] : trace.arrows) {
    if (target == to) before = std::max(before, longest_chain(trace, from));
  }
  return before + trace.op(to).end - trace.op(to).begin;
}

void spin(int rounds) {
  for (std::atomic<int> i = 0; i < rounds; ++i) {
  }
}

TEST_P(SummaryOfEveryPolicy, AgreesWithTheTrace) {
  std::mt19937 random(7);
  std::vector<Var> vars;
  for (int v = 0; v < 4; ++v) vars.push_back(engine.new_var());
  engine.trace().start({.all_arrows = true});
  for (int i = 0; i < 24; ++i) {
    engine.push([rounds = static_cast<int>(random() % 3000)] { spin(rounds); },
                {read(vars[random() % 4]), mutate(vars[random() % 4])}, {.name = "op" + std::to_string(i)});
  }
  const ReadTrace trace = end_trace(engine);
  const TraceSummary summary = engine.trace().summary();

  std::int64_t longest = 0, first = trace.ops[0].begin, last = 0, total = 0;
  for (const auto& op : trace.ops) {
    longest = std::max(longest, longest_chain(trace, op.name));
    first = std::min(first, op.begin);
    last = std::max(last, op.end);
    total += op.end - op.begin;
  }
  EXPECT_EQ(summary.critical_path.count(), longest);
  EXPECT_EQ(summary.length.count(), last - first);
  EXPECT_EQ(summary.ops.size(), 24u);
  std::int64_t on_path = 0, busy = 0;
  for (const auto& row : summary.critical_ops) {
    on_path += row.total.count();
    EXPECT_EQ(row.total.count(), trace.op(row.name).end - trace.op(row.name).begin);
    EXPECT_LE(row.total, summary.critical_ops.front().total);
  }
  for (const auto& track : summary.tracks) busy += track.busy.count();
  EXPECT_EQ(on_path, longest);
  EXPECT_EQ(busy, total);
  for (const auto& row : summary.ops) {
    EXPECT_EQ(row.total.count(), trace.op(row.name).end - trace.op(row.name).begin);
  }
}

TEST_P(SummaryOfEveryPolicy, DevicesHaveTracksOfTheirOwn) {
  const auto first = std::make_shared<SimLane>("first"), second = std::make_shared<SimLane>("second");
  const LaneId of_first = engine.add_lane(first);
  engine.push([&] { first->launch([] {}); }, {}, {.name = "before", .lane = of_first});
  engine.wait_all();
  engine.trace().start({.max_ops_per_thread = 3});
  const LaneId of_second = engine.add_lane(second);  // the trace is on
  for (int i = 0; i < 4; ++i) engine.push([&] { first->launch([] {}); }, {}, {.name = "issue", .lane = of_first});
  engine.push([&] { second->launch([] {}); }, {}, {.name = "issue", .lane = of_second});
  engine.wait_all();
  engine.trace().stop();
  engine.push([&] { second->launch([] {}); }, {}, {.name = "after", .lane = of_second});
  engine.wait_all();

  std::map<std::string, int> work;
  const ReadTrace trace = read_trace(engine);
  for (const auto& slice : trace.others) {
    EXPECT_EQ(slice.category, "device");
    EXPECT_EQ(slice.name, "work");
    ++work[trace.tracks.at(slice.track)];
  }
  EXPECT_EQ(work, (std::map<std::string, int>{{"first device", 3}, {"second device", 1}}));

  const TraceSummary summary = engine.trace().summary();
  ASSERT_EQ(summary.device_work.size(), 1u);
  EXPECT_EQ(summary.device_work[0].name, "work");
  EXPECT_EQ(summary.device_work[0].count, 4u);
  std::map<std::string, std::uint64_t> pieces;
  for (const auto& track : summary.tracks) {
    if (track.name.ends_with(" device")) pieces[track.name] = track.ops;
  }
  EXPECT_EQ(pieces, (std::map<std::string, std::uint64_t>{{"first device", 3}, {"second device", 1}}));
  EXPECT_NE(to_string(summary).find("work of devices"), std::string::npos);
}

/// The shortest time than which so many in a hundred are no longer.
std::int64_t shortest_that_covers(const std::vector<std::int64_t>& times, int percent) {
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t time : times) {
    const auto covered = std::count_if(times.begin(), times.end(), [&](std::int64_t t) { return t <= time; });
    if (100 * covered >= percent * static_cast<std::int64_t>(times.size())) shortest = std::min(shortest, time);
  }
  return shortest;
}

TEST(TraceSummary, RowsHoldTheTimesOfAllOpsOfAName) {
  Engine engine({.policy = Policy::serial});
  engine.trace().start({.all_arrows = true});
  for (int i = 0; i < 150; ++i)
    engine.push([i] { spin(10 * i); }, {}, {.name = i % 3 == 0 ? OpName("rare") : OpName("often")});
  std::map<std::string, std::vector<std::int64_t>> times;
  for (const auto& op : end_trace(engine).ops) times[op.name].push_back(op.end - op.begin);
  const TraceSummary summary = engine.trace().summary();
  ASSERT_EQ(summary.ops.size(), 2u);
  EXPECT_GE(summary.ops[0].total, summary.ops[1].total);
  for (const auto& row : summary.ops) {
    std::vector<std::int64_t>& of_name = times.at(row.name);
    std::sort(of_name.begin(), of_name.end());
    std::int64_t total = 0;
    for (const std::int64_t time : of_name) total += time;
    const auto count = static_cast<std::int64_t>(of_name.size());
    EXPECT_EQ(row.count, of_name.size());
    EXPECT_EQ(row.total.count(), total);
    EXPECT_EQ(row.mean.count(), total / count);
    EXPECT_EQ(row.p50.count(), shortest_that_covers(of_name, 50));
    EXPECT_EQ(row.p99.count(), shortest_that_covers(of_name, 99));
  }
}

TEST(TraceSummary, PrintsATableWhoseColumnsAreAligned) {
  TraceSummary summary{.length = 2ms, .failed = 1};
  summary.ops = {{"b", 2, 3ms, 1500us, 1ms, 2ms}, {"l\xc3\xb6ngst", 1, 10us, 10us, 10us, 10us}};
  summary.tracks = {{"worker 1", 3, 1ms, 0.5}};
  summary.critical_path = 3ms;
  summary.critical_ops = {summary.ops[0]};
  std::ostringstream out;
  out << summary;
  EXPECT_EQ(out.str(),
            "3 ops in 2.00 ms, 1 failed, 0 cancelled, 0 skipped\n"
            "op                      count     total      mean       p50       p99\n"
            "  b                         2   3.00 ms   1.50 ms   1.00 ms   2.00 ms\n"
            "  l\xc3\xb6ngst                    1  10.00 us  10.00 us  10.00 us  10.00 us\n"
            "lane or thread            ops      busy     share\n"
            "  worker 1                  3   1.00 ms    50.0 %\n"
            "critical path, 3.00 ms  count     total      mean       p50       p99\n"
            "  b                         2   3.00 ms   1.50 ms   1.00 ms   2.00 ms\n");
}

TEST(TraceSummary, OfNothingIsEmpty) {
  Engine engine({.policy = Policy::serial});
  EXPECT_TRUE(engine.trace().summary().ops.empty());
  EXPECT_FALSE(to_string(engine.trace().summary()).empty());
}

TEST(TraceByEnvironment, EachEngineSavesATraceOfItsOwnAtItsEnd) {
  const TestFolder folder;
  {
    const Environment trace("WINDROW_TRACE", folder.file("run.json").c_str());
    Engine first({.policy = Policy::serial});
    Engine second({.policy = Policy::pool, .workers = 1});
    first.push([] {}, {}, {.name = "of the first"});
    second.push([] {}, {}, {.name = "of the second"});
  }
  EXPECT_EQ(folder.files(), (std::set<std::string>{"run.json", "run.2.json"}));
  EXPECT_EQ(read_trace_file(folder.file("run.json")).ops.at(0).name, "of the first");
  EXPECT_EQ(read_trace_file(folder.file("run.2.json")).ops.at(0).name, "of the second");
}

TEST(TraceByEnvironment, EachProcessOfALauncherSavesATraceOfItsOwn) {
  const TestFolder folder;
  const Environment trace("WINDROW_TRACE", folder.file("run.json").c_str());
  const auto files_of = [&](const char* rank, const char* count, const char* number) {
    const Environment of_launcher(rank, number), size(count, "20");
    { Engine engine({.policy = Policy::serial}); }
    return std::ranges::count_if(folder.files(), [](const std::string& name) { return name.starts_with("run.17."); });
  };
  EXPECT_EQ(files_of("SLURM_PROCID", "SLURM_JOB_ID", "17"), 0) << "a script of Slurm is no process of srun";
  EXPECT_EQ(files_of("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "17"), 1);
  EXPECT_EQ(files_of("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "17"), 2);
  EXPECT_EQ(folder.files().size(), 3U);
}

TEST(TraceByEnvironment, AnEngineWhoseTraceCannotBeSavedEndsAllTheSame) {
  const Environment trace("WINDROW_TRACE", "/no/such/folder/run.json");
  Engine engine({.policy = Policy::serial});
  engine.push([] {}, {});
}

using TraceFile = SerialTrace;

/// Run as root, a program that saved to a device replaced it.
TEST_F(TraceFile, ADeviceIsWrittenAndNotReplaced) {
  const std::string full = folder.file("full");
  std::filesystem::create_symlink("/dev/full", full);
  engine.trace().start({.all_arrows = true});
  expect_error<Error>([&] { engine.trace().save(full); }, "No space left on device");
  EXPECT_TRUE(std::filesystem::is_character_file(full));
  EXPECT_EQ(folder.files(), std::set<std::string>{"full"});
}

// What is left out of the file of a trace, and how its numbers are written.

std::string saved_trace(Engine& engine) {
  const TestFolder folder;
  engine.trace().save(folder.file("run.json"));
  std::ifstream in(folder.file("run.json"));
  return std::string(std::istreambuf_iterator<char>(in), {});
}

/// Two ops that change a variable each, one after the other, and an op that reads both.
Arrows arrows_of(const TraceOptions& options) {
  Engine engine({.policy = Policy::serial});
  const Var a = engine.new_var("a"), b = engine.new_var("b");
  engine.trace().start(options);
  engine.push([] {}, {overwrite(a)}, {.name = "first"});
  engine.push([] {}, {overwrite(b)}, {.name = "second"});
  engine.push([] {}, {read(a), read(b)}, {.name = "sum"});
  return read_trace(engine).arrows;
}

TEST_F(TraceFile, ShowsTheArrowOfWhatAnOpWaitedForLastUnlessItShowsAll) {
  EXPECT_EQ(arrows_of({}), (Arrows{{"second", "sum"}}));
  EXPECT_EQ(arrows_of({.all_arrows = true}), (Arrows{{"first", "sum"}, {"second", "sum"}}));
}

TEST_F(TraceFile, MarksWhereItWasFull) {
  const auto saved = [&] { return saved_trace(engine); };
  engine.trace().start({.max_ops_per_thread = 3});
  for (int i = 0; i < 3; ++i) engine.push([] {}, {}, {.name = "op"});
  EXPECT_EQ(saved().find("the trace was full"), std::string::npos);
  for (int i = 0; i < 7; ++i) engine.push([] {}, {}, {.name = "op"});
  EXPECT_NE(saved().find("\"the trace was full: 7 more ops are left out\""), std::string::npos) << saved();
}

TEST_F(TraceFile, AndGraphsAsTextDoNotDependOnTheLocale) {
  constexpr int ops = 1200;
  const Var a = engine.new_var("a");
  const Graph graph = engine.capture([&] {
    for (int i = 0; i < ops; ++i) engine.push([] {}, {mutate(a)}, {.name = "n"});
  });
  const std::string dot = graph.dot();
  engine.trace().start();
  for (int i = 0; i < ops; ++i) engine.push([] {}, {mutate(a)}, {.name = "n"});
  engine.trace().stop();
  const std::string saved = saved_trace(engine), summary = to_string(engine.trace().summary());
  const Grouping grouping;
  EXPECT_EQ(graph.dot(), dot);
  EXPECT_NE(dot.find("op1199 ["), std::string::npos);
  EXPECT_EQ(saved_trace(engine), saved);
  EXPECT_EQ(to_string(engine.trace().summary()), summary);
}

}  // namespace
}  // namespace windrow::testing
