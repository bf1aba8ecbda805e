// The commands of windrow-perf that print tables, at sizes that are too small to measure anything, but with every
// figure.
#include <algorithm>

#include "tests/programs/programs.h"

namespace windrow::testing {
namespace {

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
  for (const std::string& line : lines) EXPECT_EQ(line.find("nan"), std::string::npos) << line;
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
                     4},
        TableCommand{"static --batch 2 --hidden 8 --turn-ms 1",
                     "Steps of operators, pushed and replayed: time and peak memory",
                     "| program | workers | step | step us | step ratio | calling us | calling ratio | allocations | "
                     "peak KiB | bound KiB | sum KiB | peak / bound |",
                     50}));

using Tables = Programs;

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

TEST_F(Tables, CanUsePublishedData) {
  for (const char* part : {"train.txt", "dev.txt"}) std::ofstream(folder / part) << "(3 (2 It) (4 works))\n(2 Yes)\n";
  const std::string flags = " --batch 2 --hidden 8 --repetitions 1 --data " + folder.string();
  EXPECT_EQ(lines_of(run("windrow-perf lazy" + flags)).front(), "# Lazy expressions compared with a vertex function");
  EXPECT_EQ(lines_of(run("windrow-perf ablation --times --model tree-lstm" + flags)).front(),
            "# Time of memory operations and of computation");
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
  const auto lines = lines_of(
      run("windrow-perf train --model tree-lstm --samples 20 --hidden 8 --passes 1 --without fusion,ahead --json"));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find(R"("without": "fusion,ahead")"), std::string::npos) << lines[0];
}

}  // namespace
}  // namespace windrow::testing
