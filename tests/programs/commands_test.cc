// Commands of windrow that train nothing: explain, simulate, and completions and the manual page, which are made from
// the flags. Wrong arguments of all programs end in one line and status 2.
#include "tests/programs/programs.h"

namespace windrow::testing {
namespace {

using Explain = Programs;
using Simulate = Programs;
using Manual = Programs;

TEST_F(Explain, SaysWhatMakesBatchesAndWhereTheTimeGoes) {
  const std::string outcome =
      output("windrow explain tree-lstm --samples 64 --batch 32 --hidden 16 --workers 2 --seconds 0.01");
  const std::string number = "[0-9]+\\.[0-9]+";
  const std::string text =
      std::regex_replace(std::regex_replace(outcome, std::regex(number), "N"), std::regex(" +"), " ");
  expect_has_all(
      text,
      {"tree-lstm, generated data: 2 minibatches of 32 trees\nper minibatch: N vertices in N batches, N vertices per "
       "batch\n\nvertex type vertices batches vertices per batch share of work\ntree_lstm, 2 children N N N N "
       "%\ntree_lstm, "
       "no children, with word N N N N %\n\nwhat makes N batches of them\n N vertices of different types",
       "\ncritical path: N of N vertices, with N % of the work, so at most ",
       "\ntraining, 2 workers ms per minibatch share of time achieved per worker machine share of it\nproducts N N "
       "% N GFLOP/s N N %\n matmul",
       "\n matmul N N % N GFLOP/s N N %\n", "\nother arithmetic N N % N GB/s N N %\n ", "\n mul N N % N GB/s N N %\n",
       "\nmoves N N % N GB/s N N %\n ", "\nrest N N % optimiser"});
}

TEST_F(Explain, GivesCountsThatAddUpAsJson) {
  for (const std::string flags : {"listops --schedule agenda", "bilstm-char --batch 8"}) {
    const std::string line =
        line_of(run("windrow explain " + flags + " --samples 40 --hidden 8 --workers 1 --seconds 0.01 --json"));
    const std::string causes = line.substr(line.find("\"causes\""));
    double sum = 0;
    for (const char* const cause : {"types", "dependencies", "schedule", "groups"}) sum += field(causes, cause);
    EXPECT_EQ(sum, field(line, "batches")) << line;
    const double share = field(line, "share_of_work");
    EXPECT_TRUE(0 < share && share < 1) << line;
    double time = 0;
    const std::string shares = line.substr(line.find("\"shares_of_time\""));
    for (const char* const kind : {"products", "arithmetic", "moves", "rest"}) time += field(shares, kind);
    EXPECT_NEAR(time, 1, 1e-6) << line;
    for (const char* const rates : {"\"achieved_per_worker\"", "\"machine_per_worker\""}) {
      const std::string by_kind = line.substr(line.find(rates));
      for (const char* const kind : {"products", "arithmetic", "moves"}) EXPECT_GT(field(by_kind, kind), 0) << rates;
    }
    const std::string op = line.substr(line.find("\"operators\""));
    expect_has_all(op, {"\"kind\": \"products\",\"ms_per_minibatch\"", "\"name\": \"matmul\""});
    EXPECT_GT(field(op, "share_of_time"), 0) << op;
    EXPECT_GT(field(op, "achieved_per_worker"), 0) << op;
  }
}

TEST_F(Explain, SaysOfAModelThatBuildsItsGraphsAsItRunsWhatItDid) {
  const std::string command =
      "windrow explain parser --samples 12 --batch 6 --hidden 8 --embedding 4 --scorer 4 --workers 1 --seconds 0.01";
  const std::string outcome = output(command);
  expect_has_match(outcome,
                   "^parser, generated data: 2 minibatches of 6 sentences\n"
                   "per minibatch: [0-9.]+ vertices in [0-9.]+ batches");
  expect_has(outcome, "\nproducts ");
  const std::string line = line_of(run(command + " --json"));
  EXPECT_GT(field(line, "parts"), 2 * field(line, "minibatches")) << "steps of a sentence follow each other";
  EXPECT_GT(field(line.substr(line.find("\"achieved_per_worker\"")), "moves"), 0) << line;
}

TEST_F(Explain, SaysOfAModelWithoutGraphsWhichOpsTakeTheTime) {
  const std::string command = "windrow explain mlp --samples 8 --batch 4 --hidden 8 --workers 1 --seconds 0.01";
  const std::string outcome = output(command);
  expect_has_match(outcome, "^mlp, generated data: 2 minibatches of 4 images\nper minibatch: [0-9.]+ ops\n");
  for (const char* const part : {"\nmatmul +3\\.0 +[0-9.]+ +[0-9.]+ %\n", "\nall ops +[0-9.]+ +[0-9.]+\n",
                                 "\nproducts, by their formula: [0-9.]+ GFLOP/s, [0-9.]+ % of the "}) {
    expect_has_match(outcome, part);
  }
  expect_lacks(outcome, "builds its graphs");
  const std::string line = line_of(run(command + " --json"));
  EXPECT_GT(field(line, "minibatches"), 0);
  EXPECT_GT(field(line, "products_by_formula"), 0);
}

TEST_F(Simulate, PrintsTheTablesOfTheDocument) {
  const std::string document = read_file(WINDROW_SOURCE_DIR "/docs/scaling.md");
  for (const std::string command :
       {"windrow simulate --devices 16 --bandwidth 11.25,4.5 --compare",
        "windrow simulate --model vgg16 --devices 16 --bandwidth 10 --compare",
        "windrow simulate --devices 16 --layers 200 --parameters 1 --bucket 0.5 --part 0.5 --gap 0.5 --computation 2 "
        "--update 0.05 --compare"}) {
    expect_has(document, command.substr(0, 100));
    const auto lines = lines_of(run(command));
    ASSERT_GE(lines.size(), 10u) << command;
    for (std::size_t i = 4; i < lines.size(); ++i) {
      EXPECT_LE(lines[i].size(), 80u) << lines[i];
      const auto words = words_without_units(lines[i]);  // devices, GB/s, step, network, hidden, efficiency, limit, ...
      ASSERT_GE(words.size(), 7u) << lines[i];
      const std::string row = "| " + words[2] + " | " + words[3] + " | " + words[4] + " % | " + words[6] + " |";
      expect_has(document, row);
    }
  }
}

TEST_F(Simulate, NamesFewLayersAndParameters) {
  const auto first = lines_of(run("windrow simulate --devices 1 --layers 1 --parameters 0.001")).at(0);
  EXPECT_EQ(first, "uniform: 1 layer, 1,000 parameters; 100 ms of computation per step");
}

TEST_F(Simulate, RefusesInOneLine) {
  expect_refusals("windrow simulate",
                  {{"--devices 4,5000", "--devices: '4,5000'; expected whole numbers, 1 to 4096, separated by commas"},
                   {"--bandwidth 1,0", "--bandwidth: '0'; expected a number, 0.001 to 100000"},
                   {"--latency 1e300", "--latency: '1e300'; expected a number, 0 to 10000"},
                   {"--jitter 1", "--jitter: '1'; expected a number from 0 on, less than 1"},
                   {"--model rnn", "--model: 'rnn'; expected one of uniform, vgg16, bert-base"},
                   {"--without overlap --compare", "--without excludes --compare"}},
                  "; see windrow simulate --help");
  expect_refusals(
      "windrow simulate",
      {{"--model vgg16 --layers 5", "--layers: --model vgg16 has its own; expected --model uniform"},
       {"--model bert-base --parameters 5", "--parameters: --model bert-base has its own; expected --model uniform"},
       {"--devices 1,4096 --layers 1000",
        "simulate: 4096 devices x 1000 layers x 3 steps; expected a product of at most 1000000"},
       {"--parameters 100000 --part 0.01",
        "simulate: more than 10000000 parts in all steps; expected larger parts, smaller layers or fewer "
        "steps"}});
}

/// The flags that a help lists.
std::vector<std::string> flags_of(const std::string& help) {
  static const std::regex flag("\n  (--[a-z-]+)");
  return {std::sregex_token_iterator(help.begin(), help.end(), flag, 1), {}};
}

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
  const std::string answers = "\n" + run("windrow complete train dag --").out;
  const std::vector<std::string> flags = flags_of(run("windrow train --help").out);
  for (const std::string& flag : flags) expect_has(answers, "\n" + flag + "\t");
  EXPECT_GT(flags.size(), 20u);
  EXPECT_EQ(run("windrow complete train dag --cell=ch").out, "--cell=child-sum\tCell, for models that offer several\n");
  for (const std::string shell : {"bash", "zsh", "fish"})
    expect_has(output("windrow completion " + shell), " complete ");
  EXPECT_TRUE(run("windrow completion zsh").out.starts_with("#compdef windrow\n"));
}

TEST_F(Manual, NamesEveryFlagAndIsCleanRoff) {
  const std::string manual = output("windrow man");
  const std::string page = std::regex_replace(manual, std::regex("\\\\-"), "-");
  for (const std::string command :
       {"train", "eval", "predict", "sample", "export", "explain", "schedule", "completion"}) {
    for (const std::string& flag : flags_of(run("windrow " + command + " --help").out)) {
      EXPECT_NE(page.find("\\fB" + flag + "\\fR"), std::string::npos) << command << flag;
    }
  }
  std::ofstream(folder / "windrow.1") << manual;
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

using WrongArguments = Programs;

TEST_F(WrongArguments, OfCommands) {
  const std::string train = "unknown command 'trian'; did you mean train? See windrow --help";
  expect_refusals(
      "windrow",
      {{"", "no command; expected one of " COMMANDS "; see windrow --help"},
       {"learn", "unknown command 'learn'; expected one of " COMMANDS "; see windrow --help"},
       {"--fast", "unknown argument '--fast'; expected one of --help, --version; see windrow --help"},
       {"--epochs 1 train tree-lstm", "'--epochs' comes before the command; expected it after 'train'" TRAIN_HELP},
       {"trian", train},
       {"--epochs 3 trian tree-lstm", train},
       {"help trian tree-lstm", train},
       {"help trains", "unknown command 'trains'; did you mean train? See windrow --help"},
       {"schedule rnn", "model: 'rnn'; expected one of " MODELS_WITH_GRAPHS "; see windrow schedule --help"},
       {"schedule --schedule best",
        "--schedule: 'best'; expected one of level, depth, agenda, complete, serial, or several separated "
        "by commas; see windrow schedule --help"}});
  expect_refusals("windrow-perf",
                  {{"trian --model dag", "unknown command 'trian'; did you mean train? See windrow-perf --help"}});
}

TEST_F(WrongArguments, OfTrainings) {
  expect_refusals(
      "windrow train",
      {{"", "no model; expected one of " MODELS},
       {"transformer", "model: 'transformer'; expected one of " MODELS},
       {"tree-lstm bilstm dag", "unknown argument 'bilstm'; expected one of the flags of windrow train"},
       {"tree-lstm --nesterov", "unknown argument '--nesterov'; expected one of the flags of windrow train"},
       {"tree-lstm --samples 3 --data /dev", "--data excludes --samples"},
       {"tree-lstm --epochs", "--epochs: no value; expected 1 to 1048576"},
       {"tree-lstm --batch 0", "--batch: '0'; expected a whole number, 1 to 1048576"},
       {"bilstm --layers 65", "--layers: '65'; expected a whole number, 1 to 64"},
       {"tree-lstm --compare=false", "--compare: has a value; expected none"},
       {"tree-lstm --seed ''", "--seed: ''; expected a whole number, 0 to 4294967295"},
       {"tree-lstm --rate nan", "--rate: 'nan'; expected a number above 0"},
       {"tree-lstm --policy fast", "--policy: 'fast'; expected one of serial, pool, per_device, chaos"},
       {"tree-lstm --device toaster", "--device: 'toaster'; expected cpu or cuda:N; windrow devices lists them"},
       {"tree-lstm --data /nowhere", "--data: '/nowhere' is not a folder; expected an existing folder"},
       {"tree-lstm --cell round", "--cell: 'round'; expected one of binary, child-sum, attention"},
       {"seq2seq --target train.de", "--target: 'train.de'; expected the end of a file's name, such as de"},
       {"dag --rate-schedule step --rate-factor 0", "--rate-factor: '0'; expected a number above 0, less than 1"},
       {"bilstm --train ''", "--train: ''; expected the name of a file in the folder of --data, or its path"}},
      TRAIN_HELP);
  expect_refusals(
      "windrow train",
      {{"tree-lstm --hiden 3", "unknown argument '--hiden'; did you mean --hidden? See windrow train --help"},
       {"tree-lstm --optimizr=adam",
        "unknown argument '--optimizr=adam'; did you mean --optimiser? See windrow train --help"},
       {"tree-lstm --clip 3",
        "unknown argument '--clip'; did you mean --clip-norm or --clip-value? See windrow train --help"},
       {"tree-lstm --data /dev",
        "/dev: no train.txt; expected the training set under such a name, or another file by --train"},
       {"dag --cell binary", "dag: cell 'binary'; expected none, because it has a single cell"},
       {"dag --source de", "dag: a source or target language; expected none, because the model does not translate"},
       {"seq2seq --source de", "seq2seq: a source or target language of generated data; expected a data folder"}});
}

TEST_F(WrongArguments, OfBenchmarks) {
  expect_refusals(
      "windrow-perf train",
      {{"--model all --data /dev", "--data with several models; expected one model, because each has its own files"},
       {"--model rnn", "--model: 'rnn'; expected one of " MODELS ", all, or several separated by commas; see "
                       "windrow-perf train --help"},
       {"--model tree-lstm --without speed",
        "--without: 'speed'; expected one of specialisation, eager, lazy, slots, in-place, sharing, fusion, "
        "streaming, splitting, ahead, or several separated by commas; see windrow-perf train --help"},
       {"--model tree-lstm --workers 1,",
        "--workers: '1,'; expected whole numbers, 1 to 1024, separated by commas; see windrow-perf train --help"}});
  expect_refusals("windrow-perf engine",
                  {{"--systems mxnet",
                    "--systems: 'mxnet'; expected one of windrow, windrow-captures, windrow-per-device, "
                    "windrow-values, windrow-pointers, openmp, tbb, "
                    "tbb-graph, taskflow, taskflow-graph, starpu, all, or several separated by commas"},
                   {"--metg --backlog 10", "--backlog excludes --metg"},
                   {"--backlog 10 --ops 10", "--ops excludes --backlog"},
                   {"--start --pattern A", "--pattern excludes --start"}},
                  ENGINE_HELP);
  expect_refusals("windrow-perf", {{"ablation --model tree-lstm,dag --cell child-sum",
                                    "dag: cell 'child-sum'; expected none, because it has a single cell"},
                                   {"lazy --without fusion",
                                    "unknown argument '--without'; expected one of the flags of "
                                    "windrow-perf lazy; see windrow-perf lazy --help"}});
}

}  // namespace
}  // namespace windrow::testing
