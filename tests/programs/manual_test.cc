// Completions and the manual page, which are made from the flags.
#include <algorithm>
#include <regex>
#include <set>

#include "tests/programs/programs.h"

namespace windrow::testing {
namespace {

class Completion : public Programs {
 protected:
  /// What bash offers for the last word of a line.
  std::set<std::string> offered(const std::vector<std::string>& words) const {
    std::string array;
    for (const std::string& word : words) array += " '" + word + "'";
    const std::filesystem::path script = folder / "script";
    std::ofstream(script) << "cd '" << folder.string() << "'\nsource <('" WINDROW_BIN "/windrow' completion bash)\n"
                          << "COMP_WORDS=(" << array << ")\nCOMP_CWORD=" << words.size() - 1
                          << "\n_windrow\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
    const auto lines = lines_of(run_command("bash '" + script.string() + "'"));
    return {lines.begin(), lines.end()};
  }
};
using Manual = Programs;

TEST_F(Completion, OfBashKnowsCommandsFlagsAndValues) {
  using Words = std::set<std::string>;
  EXPECT_EQ(offered({"windrow", "e"}), (Words{"eval", "explain", "export"}));
  EXPECT_EQ(offered({"windrow", "train", "bil"}), (Words{"bilstm", "bilstm-char"}));
  EXPECT_EQ(offered({"windrow", "train", "dag", "--rep"}), (Words{"--report"}));
  EXPECT_TRUE(offered({"windrow", "train", "dag", "--"}).contains("--optimiser"));
  EXPECT_FALSE(offered({"windrow", "train", "dag", "--"}).contains("model"));
  EXPECT_EQ(offered({"windrow", "train", "dag", "--optimiser", "ad"}), (Words{"adagrad", "adam"}));
  EXPECT_EQ(offered({"windrow", "train", "dag", "--optimiser", "=", "ad"}), (Words{"adagrad", "adam"}));
  EXPECT_EQ(offered({"windrow", "train", "tree-lstm", "--cell", "="}), (Words{"attention", "binary", "child-sum"}));
  EXPECT_EQ(offered({"windrow", "schedule", "dag", "--schedule", "level,a"}), (Words{"level,agenda"}));
  EXPECT_EQ(offered({"windrow", "completion", ""}), (Words{"bash", "fish", "zsh"}));
  EXPECT_EQ(offered({"windrow", "train", "dag", "--hidden", ""}), Words{""}) << "any number";
  std::filesystem::create_directory(folder / "my data");
  std::ofstream(folder / "my file") << "x";
  EXPECT_EQ(offered({"windrow", "train", "dag", "--data", "my"}), (Words{"my data"}));
  EXPECT_EQ(offered({"windrow", "train", "dag", "--trace", "my"}), (Words{"my data", "my file"}));
  EXPECT_EQ(offered({"windrow", "predict", "my"}), (Words{"my data"}));
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

/// Also where these shells are not installed.
TEST_F(Completion, OfOtherShellsNamesEveryFlag) {
  const std::string help = run("windrow train --help").out;
  const std::string zsh = run("windrow completion zsh").out, fish = run("windrow completion fish").out;
  const std::regex flag("\n  --([a-z-]+)");
  int seen = 0;
  for (std::sregex_iterator it(help.begin(), help.end(), flag), end; it != end; ++it, ++seen) {
    EXPECT_TRUE(std::regex_search(zsh, std::regex("'--" + (*it)[1].str() + "=?\\["))) << (*it)[1];
    EXPECT_NE(fish.find("command train' -l " + (*it)[1].str() + " "), std::string::npos) << (*it)[1];
  }
  EXPECT_GT(seen, 20);
  EXPECT_TRUE(zsh.starts_with("#compdef windrow\n"));
}

/// A line that is typed, and what a shell offers for its last word.
struct Typed {
  std::string line;
  std::set<std::string> offered;
};

TEST_F(Completion, OfFishOffersWhatMayFollow) {
  if (run_command("command -v fish").status != 0) GTEST_SKIP() << "fish is not installed";
  std::filesystem::create_directory(folder / "train");  // is no command there
  std::ofstream(folder / "traits") << "x";
  const std::vector<Typed> lines = {
      {"windrow tr", {"train"}},
      {"windrow --", {"--help", "--version"}},
      {"windrow train bil", {"bilstm", "bilstm-char"}},
      {"windrow train --optimiser adam tree-f", {"tree-fc"}},
      {"windrow train dag --rep", {"--report"}},
      {"windrow train dag --optimiser ad", {"adagrad", "adam"}},
      {"windrow train dag --optimiser=ad", {"--optimiser=adagrad", "--optimiser=adam"}},
      {"windrow train dag --hidden ", {}},
      {"windrow train dag --data tr", {"train/"}},
      {"windrow train dag --trace tr", {"train/", "traits"}},
      {"windrow eval tr", {"train/"}},
      {"windrow eval train --tr", {}},
      {"windrow schedule dag --schedule level,a", {"level,agenda"}},
      {"windrow completion f", {"fish"}},
  };
  const std::filesystem::path script = folder / "script";
  std::ofstream out(script);
  out << "cd '" << folder.string() << "'\n'" WINDROW_BIN "/windrow' completion fish | source\n";
  for (const Typed& typed : lines) out << "echo '> " << typed.line << "'\ncomplete -C '" << typed.line << "'\n";
  out.close();
  std::vector<std::set<std::string>> offered;
  const std::string home = "HOME='" + folder.string() + "' XDG_CONFIG_HOME='" + folder.string() + "' ";
  for (const std::string& line : lines_of(run_command(home + "fish --no-config '" + script.string() + "'"))) {
    if (line.starts_with("> ")) {
      offered.emplace_back();
    } else if (!offered.empty()) {
      offered.back().insert(line.substr(0, line.find('\t')));
    }
  }
  ASSERT_EQ(offered.size(), lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(offered[i], lines[i].offered) << lines[i].line;
}

/// Types lines into an interactive zsh on a terminal of its own.
TEST_F(Completion, OfZshOffersWhatMayFollow) {
  if (run_command("command -v zsh").status != 0) GTEST_SKIP() << "zsh is not installed";
  std::filesystem::create_directory(folder / "train");
  std::ofstream(folder / "traits") << "x";
  const std::vector<Typed> lines = {
      {"windrow tr", {"train", "= windrow train "}},
      {"windrow --h", {"--help", "= windrow --help "}},
      {"windrow train bil", {"bilstm", "bilstm-char", "= windrow train bilstm"}},
      {"windrow explain --seconds 3 tree-f", {"tree-fc", "= windrow explain --seconds 3 tree-fc "}},
      {"windrow train dag --rep", {"--report", "= windrow train dag --report="}},
      {"windrow train dag --optimiser ad", {"adagrad", "adam", "= windrow train dag --optimiser ada"}},
      {"windrow train dag --optimiser=ad", {"adagrad", "adam", "= windrow train dag --optimiser=ada"}},
      {"windrow train dag --hidden ", {"= windrow train dag --hidden "}},
      {"windrow train dag --data tr", {"train", "= windrow train dag --data train/"}},
      {"windrow train dag --trace tr", {"train", "traits", "= windrow train dag --trace trai"}},
      {"windrow eval tr", {"train", "= windrow eval train/"}},
      {"windrow schedule dag --schedule level,a", {"agenda", "= windrow schedule dag --schedule level,agenda,"}},
      {"windrow completion f", {"fish", "= windrow completion fish "}},
  };
  std::filesystem::create_directory(folder / "functions");
  std::ofstream(folder / "functions" / "_windrow") << run("windrow completion zsh").out;
  // compadd is what every completion ends in: -O asks it for the matches alone. The key after each line ends it.
  std::ofstream(folder / "start") << R"(PS1=
unsetopt beep
fpath=("$PWD/functions" $fpath)
autoload -Uz compinit && compinit -u -D
compadd() {
  local -a matches
  [[ $* == *-[OAD]\ * ]] || { builtin compadd -O matches "$@"; print -lr -- $matches >> offered; }
  builtin compadd "$@"
}
report() { print -r -- "= $BUFFER" >> offered; BUFFER=; print -n '@reported@'; }
zle -N report
bindkey '^T' report
bindkey '^I' complete-word
print -n '@reported@'
)";
  std::ofstream out(folder / "script");
  out << "cd '" << folder.string() << "'\nzmodload zsh/zpty && zpty shell 'TERM=dumb zsh -f -i'\n"
      << "answered() { zpty -r shell output '*@reported@*' }\n"
      << "zpty -w shell 'source ./start' && answered\n";
  for (const Typed& typed : lines) out << "zpty -w -n shell '" << typed.line << "'$'\\t\\x14' && answered\n";
  out << "zpty -d shell\n";
  out.close();
  run_command("timeout 30 zsh -f " + in("script"));
  std::vector<std::set<std::string>> offered(1);
  std::ifstream in(folder / "offered");
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) offered.back().insert(line);
    if (line.starts_with("= ")) offered.emplace_back();
  }
  ASSERT_EQ(offered.size(), lines.size() + 1);
  for (std::size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(offered[i], lines[i].offered) << lines[i].line;
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
