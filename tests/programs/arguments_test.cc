// Wrong arguments of the programs end in one line and status 2.
#include "tests/programs/programs.h"

namespace windrow::testing {
namespace {

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
                    "--systems: 'mxnet'; expected one of windrow, windrow-captures, windrow-per-device, openmp, tbb, "
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
