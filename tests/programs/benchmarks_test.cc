// What windrow-perf prints for each benchmark, and its tables, at sizes that are too small to measure anything.
#include "tests/programs/programs.h"
#include "windrow/models/datasets.h"

namespace windrow::testing {
namespace {

using Perf = Programs;
using Tables = Programs;

TEST_F(Perf, PrintsOneObjectPerLineWithAllFigures) {
  const std::string outcome =
      output("windrow-perf train --model tree-lstm --hidden 8 --embedding 6 --passes 3 --workers 1,2 --json");
  std::string line = R"re(\{"model": "tree-lstm", "workers": %, "unit": "trees")re";
  for (const char* name : {"units_per_s", "units_per_s_median", "flops_per_unit", "peak_gflops", "peak_share",
                           "construction_ns_per_vertex", "schedule_ns_per_vertex", "batches_per_minibatch",
                           "vertices_per_unit", "unbatched_units_per_s", "peak_rss_mb"}) {
    line += std::string(", \"") + name + R"re(": [0-9.e+-]+)re";
  }
  line += R"re(, "formula": "6 h e per leaf, 16 h\^2 per inner vertex, 2 h classes per vertex", "cell": "binary")re";
  line += R"re(, "hidden": 8, "embedding": 6, "classes": 5, "batch": 64)re";
  line += R"re(, "policy": "pool", "schedule": "level", "data": "generated"\})re";
  const auto of = [&](const char* workers) { return std::string(line).replace(line.find('%'), 1, workers) + "\n"; };
  expect_match(outcome, of("1") + of("2"));
}

TEST_F(Perf, EvaluatesTheValidationSet) {
  for (const char* part : {"train.txt", "dev.txt"}) {
    std::ofstream(folder / part) << (part[0] == 'd' ? "(3 (2 good) (4 (1 very) (1 good)))\n"
                                                    : "(2 (1 bad) (3 good))\n");
  }
  const std::string command = "windrow-perf train --model tree-lstm --data '" + folder.string() +
                              "' --hidden 8 --embedding 6 --passes 2 --inference --json";
  const std::string line = line_of(run(command));
  EXPECT_TRUE(line.starts_with(R"({"model": "tree-lstm", "mode": "inference", "workers": 1, "unit": "trees", )"))
      << line;
  EXPECT_DOUBLE_EQ(field(line, "flops_per_unit"), 3 * 6 * 8 * 6 + 2 * 16 * 8 * 8 + 5 * 10 * 8);
  EXPECT_GT(field(line, "units_per_s"), 0);
  expect_lacks(line, "unbatched");
}

TEST_F(Perf, TrainsSeveralModels) {
  const auto lines = lines_of(run(
      "windrow-perf train --model tree-fc,dag,var-lstm,parser --samples 20 --hidden 8 --passes 1 --batch 4 --json"));
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_TRUE(lines[0].starts_with(R"({"model": "tree-fc", "workers": 1, "unit": "trees", )")) << lines[0];
  EXPECT_TRUE(lines[1].starts_with(R"({"model": "dag", "workers": 1, "unit": "sentences", )")) << lines[1];
  EXPECT_TRUE(lines[2].starts_with(R"({"model": "var-lstm", "workers": 1, "unit": "words", )")) << lines[2];
  EXPECT_TRUE(lines[3].starts_with(R"({"model": "parser", "workers": 1, "unit": "sentences", )")) << lines[3];
  expect_has(lines[0], R"("formula": "4 h^2 per inner vertex, 8 h per tree", "hidden": 8, "leaves": 256, "batch": 4)");
  EXPECT_DOUBLE_EQ(field(lines[0], "flops_per_unit"), 3 * (4 * 64 * 255 + 8 * 8));
}

/// How a record of Windrow's engine begins.
std::string beginning(const std::string& pattern) {
  return R"({"system": "windrow", "pattern": ")" + pattern + (pattern.ends_with('D') ? R"(", "width": 64)" : "\"") +
         R"(, "workers": 2, )";
}

const char* const patterns[] = {"A", "B", "C", "D", "E", "FA", "FD"};

TEST_F(Perf, PrintsTheCostPerOp) {
  const auto lines = lines_of(run("windrow-perf engine --ops 2000 --repetitions 3 --workers 2 --json"));
  ASSERT_EQ(lines.size(), std::size(patterns));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    EXPECT_TRUE(line.starts_with(beginning(patterns[i]))) << line;
    if (patterns[i][0] == 'F') {  // replayed, nothing is pushed
      expect_has(line, R"("push_ns": null, "push_p50": null, "push_p999": null)");
    } else {
      EXPECT_GT(field(line, "push_ns"), 0);
      EXPECT_GE(field(line, "ns_per_op"), field(line, "push_ns"));
      EXPECT_GE(field(line, "push_p999"), field(line, "push_p50"));
    }
    EXPECT_LE(field(line, "p05"), field(line, "ns_per_op"));
    EXPECT_GE(field(line, "p95"), field(line, "ns_per_op"));
    EXPECT_GT(field(line, "rss_mb"), 0);
    EXPECT_EQ(line.find("efficiency"), std::string::npos) << "ops that do nothing have none";
  }
}

TEST_F(Perf, PrintsTheShareOfTheWorkersTimeInsideOps) {
  const auto lines =
      lines_of(run("windrow-perf engine --ops 500 --repetitions 2 --workers 2 --json --pattern A,D --task-ns 20000"));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_GT(field(lines[0], "ns_per_op"), 19000) << "a chain takes its ops' time one after the other";
  for (const std::string& line : lines) {
    const double efficiency = field(line, "efficiency");
    EXPECT_NEAR(efficiency, 20000.0 / 2 / field(line, "ns_per_op"), 1e-4 * efficiency);
  }
  EXPECT_LE(field(lines[0], "efficiency"), 0.55) << "of a chain, one worker does all";
}

/// The shortest useful op has no length where others take the machine's time.
TEST_F(Perf, PrintsTheFiguresOfWaitingOpsOfShortOnesAndOfTheFirstOne) {
  struct Mode {
    std::string flags;
    std::size_t lines;
    std::vector<const char*> figures;
  };
  for (const Mode& mode : {Mode{"--backlog 20000", std::size(patterns), {"backlog", "bytes_per_op", "rss_mb"}},
                           Mode{"--metg --ops 100 --repetitions 1 --width 4", 1, {"width", "peak_efficiency"}},
                           Mode{"--start", 4, {"gap_us", "start_p50", "start_p99", "start_max"}}}) {
    const auto lines = lines_of(run("windrow-perf engine --workers 2 --json " + mode.flags));
    EXPECT_EQ(lines.size(), mode.lines) << mode.flags;
    for (const std::string& line : lines) {
      for (const char* const figure : mode.figures) EXPECT_GT(field(line, figure), 0) << line;
    }
  }
}

TEST_F(Perf, LeavesOutSystemsThatCannotRunAPatternUnlessTheyAreNamed) {
  const std::string command = "windrow-perf engine --pattern A,FA --ops 100 --repetitions 1 --json --systems ";
  EXPECT_EQ(run(command + "windrow-captures").status, 2);
  EXPECT_EQ(run("windrow-perf engine --metg --pattern all --systems windrow-captures --ops 10 --repetitions 1").status,
            0);
  for (const std::string& line : lines_of(run(command + "all"))) {
    expect_lacks(line, R"("windrow-captures", "pattern": "FA")");
  }
}

TEST_F(Perf, RunsEverySystemOfTheBuild) {
  const auto lines = lines_of(run("windrow-perf engine --systems all --ops 1000 --repetitions 1 --json"));
  std::map<std::string, int> count;  // of systems, by pattern
  for (const std::string& line : lines) {
    ++count[std::regex_replace(line, std::regex(R"re(^.*"pattern": "(\w+)".*$)re"), "$1")];
    const bool replayed = std::regex_search(line, std::regex(R"re(-graph"|"windrow", "pattern": "F)re"));
    if (!replayed) {
      EXPECT_GT(field(line, "push_ns"), 0) << line;
    } else {
      expect_has(line, R"("push_ns": null, "push_p50": null, "push_p999": null)");
    }
  }
  EXPECT_EQ(count.size(), std::size(patterns));
  EXPECT_GE(count["A"], 1);
  EXPECT_EQ(count["A"], count["E"]);
  constexpr int ways_to_push = 4;  // windrow-captures, -per-device, -values, -pointers
  EXPECT_GE(count["FA"] + ways_to_push, count["A"]) << "graphs that are built once stand beside replay only";
}

TEST_F(Perf, SaysWhichSystemsAreNotInTheBuild) {
  for (const char* system : {"openmp", "tbb", "tbb-graph", "taskflow", "taskflow-graph", "starpu"}) {
    const std::string command = std::string("windrow-perf engine --ops 10 --repetitions 1 --systems ") + system;
    const Outcome outcome = run(command + " --pattern A");
    if (outcome.status == 0) continue;
    EXPECT_EQ(outcome.status, 2);
    const std::string name = std::string("windrow-perf: system '") + system + "' ";
    EXPECT_TRUE(outcome.err == name +
                                   "is not in this build; expected WINDROW_PEERS to name it, as in cmake --preset "
                                   "release -DWINDROW_PEERS=" +
                                   system + "\n" ||
                outcome.err == name + "cannot run pattern A, it only replays graphs; expected pattern FA or FD\n")
        << outcome.err;
  }
}

TEST_F(Perf, ListsEveryCommand) {
  const std::string help = output("windrow-perf --help");
  for (const std::string command : {"train", "engine", "gpu", "comm", "ablation", "schedules", "lazy", "static"}) {
    expect_has(help, "\n  " + command + " ");
  }
}

struct TableCommand {
  const char* flags;
  const char* title;
  const char* columns;
  std::ptrdiff_t rows;
};

void PrintTo(const TableCommand& command, std::ostream* out) { *out << command.flags; }

class TableCommands : public Programs, public ::testing::WithParamInterface<TableCommand> {};

TEST_P(TableCommands, PrintWhatTheyMeasured) {
  const TableCommand& command = GetParam();
  const auto lines = lines_of(run(std::string("windrow-perf ") + command.flags + " --repetitions 1 --workers 2"));
  ASSERT_GT(lines.size(), 4u);
  EXPECT_EQ(lines[0], std::string("# ") + command.title);
  EXPECT_EQ(lines[4], command.columns);
  EXPECT_EQ(static_cast<std::ptrdiff_t>(lines.size()), 6 + command.rows);
  for (const std::string& line : lines) expect_lacks(line, "nan");
}

INSTANTIATE_TEST_SUITE_P(
    All, TableCommands,
    ::testing::Values(
        TableCommand{"ablation --turn-ms 1 --model all --batch 4 --samples 8 --hidden 8",
                     "Throughput with each optimisation disabled",
                     "| model | batch | unit | all on | no specialisation | no eager | no lazy | no slots "
                     "| no in-place | no sharing | no fusion | no streaming | no splitting | no ahead | all off |",
                     11},
        TableCommand{"ablation --times --turn-ms 1 --model tree-lstm,listops --batch 1,4 --samples 8 --hidden 8",
                     "Time of memory operations and of computation",
                     "| model | batch | variant | products ms | arithmetic ms | memory ms | memory share | units/s |",
                     12},
        TableCommand{"schedules --turn-ms 1 --batch 1,4 --samples 8 --hidden 8",
                     "Throughput without batching and with each schedule policy",
                     "| model | batch | unit | no batching | depth | agenda | complete | level | best speedup |", 22},
        TableCommand{"schedules --manual --batch 1,3 --samples 4 --hidden 8 --embedding 6 --layers 1",
                     "Manual batching compared with automatic batching",
                     "| batch | manual | automatic | automatic / manual | one vertex at a time |", 2},
        TableCommand{"lazy --batch 3 --samples 8 --hidden 6,8", "Lazy expressions compared with a vertex function",
                     "| workers | hidden | written as | vertex function | lazy | lazy / vertex function | lazy / "
                     "vertex function "
                     "(CPU time) | nodes per tree | recording ns per node | lowering ns per node |",
                     6},
        TableCommand{"static --batch 2 --hidden 8 --turn-ms 1",
                     "Steps of operators, pushed and replayed: time and peak memory",
                     "| program | workers | step | step us | step ratio | calling us | calling ratio | allocations | "
                     "peak KiB | bound KiB | sum KiB | peak / bound |",
                     50}));

TEST_F(Tables, OfStepsShowMemoryNearTheLowerBoundAndReplaysWithoutAllocations) {
  int planned = 0, recycled = 0, replayed = 0;
  double pushed = 0;
  for (const std::string& row :
       lines_of(run("windrow-perf static --batch 16 --hidden 64 --workers 1 --turn-ms 1 --repetitions 1 --json"))) {
    SCOPED_TRACE(row);
    const auto is = [&](const char* text) { return row.find(text) != std::string::npos; };
    const bool counted = !is("\"allocations\": null"), bounded = !is("\"bound KiB\": null");
    EXPECT_GE(field(row, "sum KiB"), bounded ? field(row, "bound KiB") : 0);
    if (is("\"eager\"") || is("\"lazily allocated\"")) {
      EXPECT_GE(field(row, "peak KiB"), field(row, "sum KiB"));
    } else if (is("\"recycled\"") && counted) {
      ++recycled;
      EXPECT_GT(pushed = field(row, "allocations"), 30);
    } else if (is("\"recycled\"")) {
      ++recycled;
      EXPECT_LT(field(row, "peak KiB"), field(row, "sum KiB"));
    } else if (is("\"cells replayed")) {
      EXPECT_LT(field(row, "allocations"), pushed / 2);  // the tape and the copies of each call allocate
    } else if (is("\"replayed") && counted) {
      ++replayed;
      EXPECT_LT(field(row, "allocations"), pushed / 10);
    }
    if (!bounded || !(is("\"planned\"") || is("\"replayed"))) continue;
    ++planned;
    EXPECT_GE(field(row, "peak / bound"), 1);
    EXPECT_LE(field(row, "peak / bound"), 1.05);
    if (is("forward")) {
      EXPECT_GE(field(row, "sum KiB"), 2 * field(row, "peak KiB"));
    }
  }
  EXPECT_EQ(planned, 20);
  EXPECT_EQ(recycled, 8);
  EXPECT_EQ(replayed, 12);
}

TEST_F(Tables, OfCommandsThatWereReplacedSayWhatReplacesThem) {
  expect_refused(run("windrow-perf replay --workers 1,2"),
                 "windrow-perf: command 'replay' was replaced; expected windrow-perf static\n");
}

TEST_F(Tables, SayWhatCannotBeTimed) {
  EXPECT_EQ(
      run("windrow-perf ablation --times --model parser").err,
      "windrow-perf: parser: --times measures steps of a runner; expected a model whose graphs are known before\n");
}

TEST_F(Tables, TrainRecordsWhatItLeftOut) {
  const std::string line = line_of(
      run("windrow-perf train --model tree-lstm --samples 20 --hidden 8 --passes 1 --without fusion,ahead --json"));
  expect_has(line, R"("without": "fusion,ahead")");
}

}  // namespace
}  // namespace windrow::testing
