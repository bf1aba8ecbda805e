// Completions and the manual page, which are made from the flags.
#include <algorithm>
#include <regex>
#include <set>

#include "tests/programs/programs.h"

namespace windrow::testing {
namespace {

class Completion : public Programs {
 protected:
  /// What bash offers for the last word of a line that begins with the program.
  std::set<std::string> offered(const std::vector<std::string>& words) const {
    std::string array = "'" WINDROW_BIN "/windrow'";
    for (const std::string& word : words) array += " '" + word + "'";
    const std::filesystem::path script = folder / "script";
    std::ofstream(script) << "cd '" << folder.string() << "'\nsource <('" WINDROW_BIN "/windrow' completion bash)\n"
                          << "COMP_WORDS=(" << array << ")\nCOMP_CWORD=" << words.size()
                          << "\n_windrow\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
    const auto lines = lines_of(run_command("bash '" + script.string() + "'"));
    return {lines.begin(), lines.end()};
  }
};
using Manual = Programs;

TEST_F(Completion, OfBashKnowsCommandsFlagsAndValues) {
  using Words = std::set<std::string>;
  EXPECT_EQ(offered({"e"}), (Words{"eval", "explain", "export"}));
  EXPECT_EQ(offered({"train", "bil"}), (Words{"bilstm", "bilstm-char"}));
  EXPECT_EQ(offered({"train", "dag", "--rep"}), (Words{"--report"}));
  EXPECT_TRUE(offered({"train", "dag", "--"}).contains("--optimiser"));
  EXPECT_FALSE(offered({"train", "dag", "--"}).contains("model"));
  EXPECT_EQ(offered({"train", "dag", "--optimiser", "ad"}), (Words{"adagrad", "adam"}));
  EXPECT_EQ(offered({"train", "dag", "--optimiser", "=", "ad"}), (Words{"adagrad", "adam"}));
  EXPECT_EQ(offered({"train", "tree-lstm", "--cell", "="}), (Words{"attention", "binary", "child-sum"}));
  EXPECT_EQ(offered({"schedule", "dag", "--schedule", "level,a"}), (Words{"level,agenda"}));
  EXPECT_EQ(offered({"completion", ""}), (Words{"bash", "fish", "zsh"}));
  EXPECT_EQ(offered({"train", "dag", "--hidden", ""}), Words{""}) << "any number";
  std::filesystem::create_directory(folder / "my data");
  std::ofstream(folder / "my file") << "x";
  EXPECT_EQ(offered({"train", "dag", "--data", "my"}), (Words{"my data"}));
  EXPECT_EQ(offered({"train", "dag", "--trace", "my"}), (Words{"my data", "my file"}));
  EXPECT_EQ(offered({"predict", "my"}), (Words{"my data"}));
}

TEST_F(Manual, HasNoLineThatATerminalOf80ColumnsBreaks) {
  bool kept = false;  // the line breaks of the page
  for (const std::string& line : lines_of(run("windrow man"))) {
    if (line == ".nf") kept = true;
    if (line == ".fi") kept = false;
    const std::string shown = std::regex_replace(line, std::regex("\\\\(-|e|&|\\(aq)"), "x");
    if (kept) {
      EXPECT_LE(shown.size(), 73u) << shown;
    }
  }
}

/// Each shell gets its answers from the same request.
TEST_F(Completion, OfAllShellsAsksTheProgramWhichKnowsEveryFlag) {
  const std::string help = run("windrow train --help").out, answers = run("windrow complete train dag --").out;
  const std::regex flag("\n  (--[a-z-]+)");
  int seen = 0;
  for (std::sregex_iterator it(help.begin(), help.end(), flag), end; it != end; ++it, ++seen) {
    EXPECT_NE(("\n" + answers).find("\n" + (*it)[1].str() + "\t"), std::string::npos) << (*it)[1];
  }
  EXPECT_GT(seen, 20);
  EXPECT_EQ(run("windrow complete train dag --cell=ch").out, "--cell=child-sum\tCell, for models that offer several\n");
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    EXPECT_NE(run("windrow completion " + shell).out.find(" complete "), std::string::npos) << shell;
  }
  EXPECT_TRUE(run("windrow completion zsh").out.starts_with("#compdef windrow\n"));
}

TEST_F(Manual, NamesEveryFlagAndIsCleanRoff) {
  const Outcome manual = run("windrow man");
  EXPECT_EQ(manual.err, "");
  const std::string page = std::regex_replace(manual.out, std::regex("\\\\-"), "-");
  for (const std::string command :
       {"train", "eval", "predict", "sample", "export", "explain", "schedule", "completion"}) {
    const std::string help = run("windrow " + command + " --help").out;
    const std::regex flag("\n  (--[a-z-]+)");
    for (std::sregex_iterator it(help.begin(), help.end(), flag), end; it != end; ++it) {
      EXPECT_NE(page.find("\\fB" + (*it)[1].str() + "\\fR"), std::string::npos) << command << (*it)[1];
    }
  }
  std::ofstream(folder / "windrow.1") << manual.out;
  const std::string file = " " + in("windrow.1");
  int checks = 0;
  for (const std::string check : {"groff -man -ww -Tutf8 -z", "mandoc -Tlint -Wwarning"}) {
    if (run_command("command -v " + check.substr(0, check.find(' '))).status != 0) continue;
    const Outcome outcome = run_command(check + file);
    EXPECT_EQ(outcome.out + outcome.err, "") << check;
    ++checks;
  }
  if (checks == 0) GTEST_SKIP() << "neither groff nor mandoc is installed";
}

}  // namespace
}  // namespace windrow::testing
