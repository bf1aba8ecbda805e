// Shared by tests of the programs: runs through the shell, and the output of a run.
#pragma once

#include <sys/wait.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include "tests/folder.h"
#include "tests/programs/texts.h"

// What the messages of windrow list. All of it is spelled out, so that a change is seen.
#define COMMANDS "train, resume, eval, predict, sample, export, explain, schedule, simulate, devices, completion, man"
#define TRAIN_HELP "; see windrow train --help"
#define ENGINE_HELP "; see windrow-perf engine --help"
#define MODELS_WITH_GRAPHS \
  "tree-lstm, tree-fc, fixed-lstm, var-lstm, bilstm, bilstm-char, listops, dag, lattice-lstm, seq2seq"
#define MODELS MODELS_WITH_GRAPHS ", parser, mlp, cnn"

namespace windrow::testing {

struct Outcome {
  std::string out, err;
  int status;
};

/// What a program printed. Expects that it succeeded and printed no errors.
inline std::string output_of(const Outcome& outcome) {
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.status, 0);
  return outcome.out;
}

/// The line on standard error with which a program refused, and ended with status 2.
inline std::string refusal_of(const Outcome& outcome) {
  EXPECT_EQ(outcome.status, 2) << outcome.out;
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
  return outcome.err;
}

/// The program ended with status 2 and with this on standard error.
inline void expect_failed(const Outcome& outcome, const std::string& error) {
  EXPECT_EQ(outcome.err, error);
  EXPECT_EQ(outcome.status, 2);
}
/// The same, before it printed anything else.
inline void expect_refused(const Outcome& outcome, const std::string& error) {
  expect_failed(outcome, error);
  EXPECT_EQ(outcome.out, "");
}

class Programs : public FileTest {
 protected:
  /// Runs a program through the shell. `to` may redirect its output.
  Outcome run(const std::string& command, const std::string& to = {}) const {
    return run_from("'" WINDROW_BIN "'/", command, to);
  }
  /// What it printed. Expects that it succeeded and printed no errors.
  std::string output(const std::string& command) const { return output_of(run(command)); }
  /// Runs one of the scripts through the shell.
  Outcome run_script(const std::string& command) const {
    return run_from("'" WINDROW_SOURCE_DIR "'/scripts/", command);
  }

  /// Expects that the program refuses each of the flags with "PROGRAM: ", what is said of them, and `end`.
  void expect_refusals(const std::string& command, const std::vector<std::pair<std::string, std::string>>& all,
                       const std::string& end = {}) const {
    for (const auto& [flags, says] : all) {
      SCOPED_TRACE(command + " " + flags);
      expect_refused(run(command + " " + flags), command.substr(0, command.find(' ')) + ": " + says + end + "\n");
    }
  }
  /// Runs a command of the shell.
  Outcome run_command(const std::string& command) const { return run_from("", command); }

  /// Runs windrow in the test's folder, where names of files are relative to it.
  Outcome windrow_there(const std::string& command) const {
    return run_command("cd '" + folder.string() + "' && '" WINDROW_BIN "'/windrow " + command);
  }

  /// Runs a program in the test's folder through the shell.
  Outcome run_there(const std::string& command) const { return run_from("'" + folder.string() + "'/", command); }

  /// The flag that saves a training in the test's folder.
  std::string saving() const { return " --save '" + (folder / "run").string() + "' "; }
  /// The path of a file in the test's folder, as a word for the shell.
  std::string in(const std::string& name) const { return "'" + (folder / name).string() + "' "; }

  /// Trains a model, saves it in the test's folder, and returns in(name).
  std::string saved_model(const std::string& model, const std::string& name = "run") const {
    EXPECT_EQ(run("windrow train " + model + " --save " + in(name)).err, "");
    return in(name);
  }

 private:
  Outcome run_from(const std::string& where, const std::string& command, const std::string& to = {}) const {
    const auto out = folder / "out", err = folder / "err";
    const std::string target = to.empty() ? ">'" + out.string() + "'" : to;
    const int status = std::system((where + command + " " + target + " 2>'" + err.string() + "'").c_str());
    return {read_file(out), read_file(err), WEXITSTATUS(status)};
  }
};

/// The lines that a program printed. Expects that it succeeded and printed no errors.
inline std::vector<std::string> lines_of(const Outcome& outcome) {
  std::istringstream text(output_of(outcome));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}
/// The same of a program that prints one line.
inline std::string line_of(const Outcome& outcome) {
  const std::vector<std::string> lines = lines_of(outcome);
  EXPECT_EQ(lines.size(), 1u) << outcome.out;
  return lines.size() == 1 ? lines[0] : "";
}

/// The words of a line, but for percent signs.
inline std::vector<std::string> words_without_units(const std::string& line) {
  std::istringstream text(line);
  std::vector<std::string> words;
  for (std::string word; text >> word;) {
    if (word != "%") words.push_back(word);
  }
  return words;
}

/// The lines of epochs that windrow train printed, without the throughput, which differs.
inline std::vector<std::string> epochs_of(const std::string& out) {
  std::vector<std::string> epochs;
  const std::regex line("( +[0-9]+ .* %) +[0-9]+");
  std::smatch match;
  for (const std::string& one : lines_of({out, "", 0})) {
    if (std::regex_match(one, match, line)) epochs.push_back(match[1]);
  }
  return epochs;
}

/// The number in the field `name` of a line of JSON.
inline double field(const std::string& line, const std::string& name) {
  const std::size_t at = line.find("\"" + name + "\": ");
  EXPECT_NE(at, std::string::npos) << name << " in " << line;
  return at == std::string::npos ? 0 : std::atof(line.c_str() + at + name.size() + 4);
}

}  // namespace windrow::testing
