// Wrong arguments of the programs.
#include "tests/programs/programs.h"

namespace windrow::testing {
namespace {

struct Wrong {
  const char* command;
  const char* says;
};

class WrongArguments : public Programs, public ::testing::WithParamInterface<Wrong> {};
TEST_P(WrongArguments, EndInOneLineAndStatus2) {
  expect_refused(run(GetParam().command), GetParam().says + std::string("\n"));
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongArguments,
    ::testing::Values(
        Wrong{"windrow", "windrow: no command; expected one of " COMMANDS "; see windrow --help"},
        Wrong{"windrow learn", "windrow: unknown command 'learn'; expected one of " COMMANDS "; see windrow --help"},
        Wrong{"windrow --fast",
              "windrow: unknown argument '--fast'; expected one of --help, --version; see windrow --help"},
        Wrong{"windrow --epochs 1 train tree-lstm",
              "windrow: '--epochs' comes before the command; expected it after 'train'" TRAIN_HELP},
        Wrong{"windrow train", "windrow: no model; expected one of " MODELS TRAIN_HELP},
        Wrong{"windrow train transformer", "windrow: model: 'transformer'; expected one of " MODELS TRAIN_HELP},
        Wrong{"windrow trian", "windrow: unknown command 'trian'; did you mean train? See windrow --help"},
        Wrong{"windrow --epochs 3 trian tree-lstm",
              "windrow: unknown command 'trian'; did you mean train? See windrow --help"},
        Wrong{"windrow help trian tree-lstm",
              "windrow: unknown command 'trian'; did you mean train? See windrow --help"},
        Wrong{"windrow-perf trian --model dag",
              "windrow-perf: unknown command 'trian'; did you mean train? See windrow-perf --help"},
        Wrong{"windrow train tree-lstm bilstm dag",
              "windrow: unknown argument 'bilstm'; expected one of the flags of windrow train" TRAIN_HELP},
        Wrong{"windrow help trains", "windrow: unknown command 'trains'; did you mean train? See windrow --help"},
        Wrong{"windrow train tree-lstm --hiden 3",
              "windrow: unknown argument '--hiden'; did you mean --hidden? See windrow train --help"},
        Wrong{"windrow train tree-lstm --optimizr=adam",
              "windrow: unknown argument '--optimizr=adam'; did you mean --optimiser? See windrow train --help"},
        Wrong{"windrow train tree-lstm --clip 3",
              "windrow: unknown argument '--clip'; did you mean --clip-norm or --clip-value? See windrow train --help"},
        Wrong{"windrow train tree-lstm --nesterov",
              "windrow: unknown argument '--nesterov'; expected one of the flags of windrow train" TRAIN_HELP},
        Wrong{"windrow train tree-lstm --samples 3 --data /dev", "windrow: --data excludes --samples" TRAIN_HELP},
        Wrong{"windrow train tree-lstm --epochs", "windrow: --epochs: no value; expected 1 to 1048576" TRAIN_HELP},
        Wrong{"windrow train tree-lstm --batch 0",
              "windrow: --batch: '0'; expected a whole number, 1 to 1048576" TRAIN_HELP},
        Wrong{"windrow train bilstm --layers 65",
              "windrow: --layers: '65'; expected a whole number, 1 to 64" TRAIN_HELP},
        Wrong{"windrow train tree-lstm --compare=false", "windrow: --compare: has a value; expected none" TRAIN_HELP},
        Wrong{"windrow-perf lazy --without fusion",
              "windrow-perf: unknown argument '--without'; expected one of the flags of windrow-perf lazy; see "
              "windrow-perf lazy --help"},
        Wrong{"windrow train tree-lstm --seed ''",
              "windrow: --seed: ''; expected a whole number, 0 to 4294967295" TRAIN_HELP},
        Wrong{"windrow train tree-lstm --rate nan", "windrow: --rate: 'nan'; expected a number above 0" TRAIN_HELP},
        Wrong{"windrow train tree-lstm --policy fast",
              "windrow: --policy: 'fast'; expected one of serial, pool, per_device, chaos" TRAIN_HELP},
        Wrong{"windrow train tree-lstm --device toaster",
              "windrow: --device: 'toaster'; expected cpu or cuda:N; windrow devices lists them" TRAIN_HELP},
        Wrong{"windrow train tree-lstm --data /nowhere",
              "windrow: --data: '/nowhere' is not a folder; expected an existing folder" TRAIN_HELP},
        Wrong{"windrow train tree-lstm --data /dev",
              "windrow: /dev: no train.txt; expected the training set under such a name, or another file by --train"},
        Wrong{"windrow train tree-lstm --cell round",
              "windrow: --cell: 'round'; expected one of binary, child-sum, attention" TRAIN_HELP},
        Wrong{"windrow train dag --cell binary",
              "windrow: dag: cell 'binary'; expected none, because it has a single cell"},
        Wrong{"windrow train dag --source de",
              "windrow: dag: a source or target language; expected none, because the model does not translate"},
        Wrong{"windrow train seq2seq --source de",
              "windrow: seq2seq: a source or target language of generated data; expected a data folder"},
        Wrong{"windrow train seq2seq --target train.de",
              "windrow: --target: 'train.de'; expected the end of a file's name, such as de" TRAIN_HELP},
        Wrong{"windrow train dag --rate-schedule step --rate-factor 0",
              "windrow: --rate-factor: '0'; expected a number above 0, less than 1" TRAIN_HELP},
        Wrong{"windrow train bilstm --train ''",
              "windrow: --train: ''; expected the name of a file in the folder of --data, or its path" TRAIN_HELP},
        Wrong{"windrow schedule rnn",
              "windrow: model: 'rnn'; expected one of " MODELS_WITH_GRAPHS "; see windrow schedule --help"},
        Wrong{"windrow-perf train --model all --data /dev",
              "windrow-perf: --data with several models; expected one model, because each has its own files"},
        Wrong{"windrow-perf ablation --model tree-lstm,dag --cell child-sum",
              "windrow-perf: dag: cell 'child-sum'; expected none, because it has a single cell"},
        Wrong{"windrow schedule --schedule best",
              "windrow: --schedule: 'best'; expected one of level, depth, agenda, complete, serial, or several "
              "separated by "
              "commas; see windrow schedule --help"},
        Wrong{"windrow-perf train --model rnn",
              "windrow-perf: --model: 'rnn'; expected one of " MODELS ", all, or several separated by commas; see "
              "windrow-perf train --help"},
        Wrong{"windrow-perf engine --systems mxnet",
              "windrow-perf: --systems: 'mxnet'; expected one of windrow, windrow-captures, "
              "windrow-per-device, openmp, tbb, tbb-graph, taskflow, taskflow-graph, starpu, all, or "
              "several separated by commas" ENGINE_HELP},
        Wrong{"windrow-perf engine --metg --backlog 10", "windrow-perf: --backlog excludes --metg" ENGINE_HELP},
        Wrong{"windrow-perf engine --backlog 10 --ops 10", "windrow-perf: --ops excludes --backlog" ENGINE_HELP},
        Wrong{"windrow-perf engine --start --pattern A", "windrow-perf: --pattern excludes --start" ENGINE_HELP},
        Wrong{"windrow-perf train --model tree-lstm --without speed",
              "windrow-perf: --without: 'speed'; expected one of specialisation, eager, lazy, slots, "
              "in-place, sharing, fusion, streaming, splitting, ahead, or several separated by commas; see "
              "windrow-perf train "
              "--help"},
        Wrong{"windrow-perf train --model tree-lstm --workers 1,",
              "windrow-perf: --workers: '1,'; expected whole numbers, 1 to 1024, separated by commas; see windrow-perf "
              "train --help"}));

}  // namespace
}  // namespace windrow::testing
