// The commands of windrow-perf that write tables, at sizes that are too small to measure anything, but with every
// figure.
#include <sys/stat.h>

#include <algorithm>
#include <regex>
#include <sstream>

#include "tests/programs.h"

namespace windrow::testing {
namespace {

struct TableCommand {
  const char* name;
  const char* flags;
  const char* columns;  ///< as its Markdown has them
  std::size_t rows;
  std::size_t plots;
};

void PrintTo(const TableCommand& command, std::ostream* out) { *out << command.name; }

class TableCommands : public Programs, public ::testing::WithParamInterface<TableCommand> {
 protected:
  std::filesystem::path file(const char* ending) const {
    return folder / "results" / (std::string(GetParam().name) + ending);
  }
};

std::ptrdiff_t count(const std::string& text, const std::string& expression) {
  const std::regex regex(expression);
  return std::distance(std::sregex_iterator(text.begin(), text.end(), regex), std::sregex_iterator());
}

TEST_P(TableCommands, PrintAndWriteWhatTheyMeasured) {
  const TableCommand& command = GetParam();
  const std::string called = std::string("windrow-perf ") + command.name + " " + command.flags +
                             " --repetitions 1 --workers 2 --out " + (folder / "results").string();
  const Outcome outcome = run(called);
  EXPECT_EQ(outcome.err, "");
  ASSERT_EQ(outcome.status, 0);
  EXPECT_EQ(read_file(file(".md")), outcome.out);
  EXPECT_NE(outcome.out.find("\n```\n" + called + "\n```\n"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find(command.columns), std::string::npos) << outcome.out;
  EXPECT_EQ(count(outcome.out, "\n\\| [a-z0-9]"), static_cast<std::ptrdiff_t>(command.rows + 1)) << outcome.out;
  EXPECT_EQ(outcome.out.find("nan"), std::string::npos) << outcome.out;
  const std::string json = read_file(file(".json")), svg = read_file(file(".svg"));
  EXPECT_TRUE(json.starts_with("{\"name\": \"" + std::string(command.name) + "\", ")) << json;
  EXPECT_EQ(count(json, "\n    \\{"), static_cast<std::ptrdiff_t>(command.rows)) << json;
  EXPECT_EQ(count(svg, "font-weight=\"bold\""), static_cast<std::ptrdiff_t>(command.plots));
}

INSTANTIATE_TEST_SUITE_P(
    All, TableCommands,
    ::testing::Values(
        TableCommand{"serial", "--turn-ms 1 --batch 1,4 --samples 4 --hidden 8 --embedding 8 --steps 5 --vocabulary 20",
                     "| batch | batched words/s | serial words/s | speedup |", 2, 1},
        TableCommand{"overhead", "--batch 1,3 --leaves 2,5 --hidden 8 --embedding 8",
                     "| model | leaves | batch | construction ms | scheduling ms | training ms | construction share | "
                     "scheduling share |",
                     4, 2},
        TableCommand{"ablation", "--turn-ms 1 --model all --batch 4 --samples 8 --hidden 8",
                     "| model | unit | all on | no specialisation | no eager | no lazy | no slots | no "
                     "in-place | no sharing | no fusion | no streaming | no splitting | no ahead | all off |",
                     10, 1},
        TableCommand{"memory", "--turn-ms 1 --model tree-lstm,listops --batch 1,4 --samples 8 --hidden 8",
                     "| model | batch | variant | products ms | arithmetic ms | memory ms | memory share | units/s |",
                     12, 2},
        TableCommand{"schedules", "--turn-ms 1 --batch 4 --samples 8 --hidden 8",
                     "| model | unit | no batching | depth | agenda | level | best speedup |", 10, 1},
        TableCommand{"hand", "--batch 1,3 --samples 4 --hidden 8 --embedding 6 --layers 1",
                     "| batch | manual | automatic | automatic / manual | one vertex at a time |", 2, 1},
        TableCommand{
            "lazy", "--batch 3 --samples 8 --hidden 6,8",
            "| workers | hidden | written as | vertex function | lazy | lazy / vertex function | "
            "lazy / vertex function (CPU time) | nodes per tree | recording ns per node | lowering ns per node |",
            4, 1},
        TableCommand{"mlp", "--batch 4 --hidden 8 --turn-ms 1", "| workers | samples/s | speedup |", 1, 1},
        TableCommand{"replay", "--batch 4 --hidden 8 --turn-ms 1",
                     "| program | workers | step | calling us | calling ratio | step us | step ratio | allocations |",
                     10, 1},
        TableCommand{
            "static", "--batch 2 --hidden 8 --turn-ms 1",
            "| program | order | memory | step us | step ratio | peak KiB | bound KiB | sum KiB | peak / bound "
            "| sum / peak |",
            40, 1},
        TableCommand{"optimisers", "--hidden 8 --turn-ms 1",
                     "| workers | method | GB/s | memory GB/s | share of bandwidth |", 5, 1}),
    [](const auto& command) { return std::string(command.param.name); });

class Tables : public Programs {
 protected:
  /// The rows of a table, as JSON has them.
  std::vector<std::string> rows_of(const std::string& name, const std::string& flags) {
    lines_of(run("windrow-perf " + name + " --turn-ms 1 --repetitions 1 " + flags + " --out " + folder.string()));
    std::istringstream json(read_file(folder / (name + ".json")));
    std::vector<std::string> rows;
    for (std::string line; std::getline(json, line);) {
      if (line.starts_with("    {")) rows.push_back(line);
    }
    return rows;
  }
};

TEST_F(Tables, PlanStepsNearTheLowerBound) {
  int planned = 0, recycled = 0;
  for (const std::string& row : rows_of("static", "--batch 16 --hidden 64 --workers 1")) {
    SCOPED_TRACE(row);
    const auto is = [&](const char* text) { return row.find(text) != std::string::npos; };
    EXPECT_GT(field(row, "bound KiB"), 0);
    EXPECT_GE(field(row, "sum KiB"), field(row, "bound KiB"));
    if (is("\"eager\"") || is("\"lazily allocated\"")) {
      EXPECT_GE(field(row, "peak KiB"), field(row, "sum KiB"));
    } else if (is("\"serial\", \"memory\": \"recycled\"")) {
      EXPECT_LT(field(row, "peak KiB"), field(row, "sum KiB"));
      ++recycled;
    }
    if (!is("\"planned\"") && !is("\"replayed\"")) continue;
    ++planned;
    EXPECT_GE(field(row, "peak / bound"), 1);
    EXPECT_LE(field(row, "peak / bound"), 1.05);
    if (is("forward")) {
      EXPECT_GE(field(row, "sum / peak"), 2);
    }
  }
  EXPECT_EQ(planned, 16);
  EXPECT_EQ(recycled, 4);
}

TEST_F(Tables, CountTheAllocationsOfReplays) {
  const auto rows = rows_of("replay", "--batch 2 --hidden 8 --workers 1");
  ASSERT_EQ(rows.size(), 10u);
  double pushed = 0;
  for (const std::string& row : rows) {
    SCOPED_TRACE(row);
    const double allocations = field(row, "allocations");
    if (row.find("\"pushed\"") != std::string::npos) {
      EXPECT_GT(pushed = allocations, 100);
    } else if (row.find("\"cells replayed") != std::string::npos) {
      EXPECT_LT(allocations, pushed / 2);  // the tape and the copies of each call allocate
    } else {
      EXPECT_LT(allocations, pushed / 10);
    }
  }
}

TEST_F(Tables, CanUsePublishedData) {
  for (const char* part : {"train.txt", "dev.txt"}) std::ofstream(folder / part) << "(3 (2 It) (4 works))\n(2 Yes)\n";
  const std::string flags =
      " --batch 2 --hidden 8 --embedding 8 --repetitions 1 --data " + folder.string() + " --out " + folder.string();
  EXPECT_EQ(lines_of(run("windrow-perf overhead --leaves 3" + flags)).front(),
            "# Overhead of graph construction and scheduling");
  const std::string trees =
      " --batch 2 --hidden 8 --repetitions 1 --data " + folder.string() + " --out " + folder.string();
  EXPECT_EQ(lines_of(run("windrow-perf lazy" + trees)).front(), "# Lazy expressions compared with a vertex function");
  EXPECT_EQ(lines_of(run("windrow-perf memory" + flags)).front(), "# Time of memory operations and of computation");
}

TEST_F(Tables, RefuseFoldersInWhichTheyCannotWriteBeforeTheyMeasure) {
  std::ofstream(folder / "file") << "x";
  const std::string out = (folder / "file").string();
  const Outcome outcome = run("windrow-perf schedules --out " + out);
  EXPECT_EQ(outcome.err,
            "windrow-perf: " + out +
                "/schedules.md: cannot be written: Not a directory; expected a writable folder for the results\n");
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.status, 2);
}

TEST_F(Tables, ReplaceOnlyRegularFiles) {
  ASSERT_EQ(mkfifo((folder / "serial.md").c_str(), 0600), 0);
  const Outcome outcome = run("windrow-perf serial --out " + folder.string());
  EXPECT_EQ(outcome.err, "windrow-perf: " + (folder / "serial.md").string() +
                             ": not a regular file; expected a regular file or none\n");
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_FALSE(std::filesystem::exists(folder / "serial.json"));
}

TEST_F(Tables, ShowTheCommandAsAShellReadsIt) {
  const std::string out = "'" + (folder / "two words").string() + "'";
  const Outcome outcome =
      run("windrow-perf serial --batch 1 --samples 1 --steps 2 --hidden 4 --embedding 4 --vocabulary 9 "
          "--turn-ms 1 --repetitions 1 --out " +
          out);
  EXPECT_EQ(outcome.err, "");
  EXPECT_NE(outcome.out.find(" --out " + out + "\n"), std::string::npos) << outcome.out;
  EXPECT_EQ(read_file(folder / "two words" / "serial.md"), outcome.out);
}

TEST_F(Tables, DisableTheNamedOptimisationsInTraining) {
  const auto lines = lines_of(
      run("windrow-perf train --model tree-lstm --samples 20 --hidden 8 --passes 1 --without fusion,ahead --json"));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find(R"("without": "fusion,ahead")"), std::string::npos) << lines[0];
}

}  // namespace
}  // namespace windrow::testing
