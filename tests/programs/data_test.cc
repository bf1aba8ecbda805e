// The data of the programs: which files they read, and what they say about those that they cannot read.
#include "tests/programs/programs.h"
#include "windrow/models/datasets.h"

namespace windrow::testing {
namespace {

using Data = Programs;

TEST_F(Data, ThatAreWrongAreReportedByFileLineAndColumn) {
  const auto& data = folder;
  std::ofstream(data / "train.txt") << "(3 (2 It) (4 works))\n(3 (2 It) (7 works))\n";
  std::ofstream(data / "dev.txt") << "(2 Yes)\n";
  expect_refused(run("windrow train tree-lstm --data " + data.string()),
                 "windrow: " + (data / "train.txt").string() + ":2:12: label '7'; expected a label from 0 to 4\n");
  EXPECT_EQ(read_file(data / "train.txt"), "(3 (2 It) (4 works))\n(3 (2 It) (7 works))\n");
}

TEST_F(Data, MustHoldAtLeastOnePieceOfText) {
  for (const char* part : {"train.txt", "valid.txt"}) std::ofstream(folder / part) << "a\n";
  const std::string why = ": " + (folder / "train.txt").string() +
                          ": 2 words including sentence ends; expected at least 64, the length of a piece\n";
  for (const std::string command :
       {"windrow schedule fixed-lstm", "windrow train fixed-lstm", "windrow-perf train --model fixed-lstm",
        "windrow-perf schedules --model fixed-lstm"}) {
    expect_refused(run(command + " --data " + folder.string()), command.substr(0, command.find(' ')) + why);
  }
}

/// So that nobody validates on a test set without knowing it.
TEST_F(Data, AreNamedAndOtherPartsAreReadOnlyWhenAskedFor) {
  const std::string sentence = "1\ta\t_\tX\t_\t_\t0\troot\t_\t_\n2\tb\t_\tX\t_\t_\t1\tdep\t_\t_\n\n";
  const std::string crossed =
      "1\ta\t_\tX\t_\t_\t3\tdep\t_\t_\n2\tb\t_\tX\t_\t_\t4\tdep\t_\t_\n"
      "3\tc\t_\tX\t_\t_\t0\troot\t_\t_\n4\td\t_\tX\t_\t_\t3\tdep\t_\t_\n\n";
  std::ofstream(folder / "dev.conllu") << sentence << crossed << sentence;
  std::ofstream(folder / "test.conllu") << sentence << crossed;
  const std::string train = "windrow train parser --hidden 8 --embedding 8 --epochs 1 --data " + folder.string();
  expect_refused(run(train),
                 "windrow: " + folder.string() +
                     ": no train.conllu or *-ud-train.conllu; expected the training set under such a name, or "
                     "another file by --train\n");
  const std::string model = in("model");
  const auto lines = lines_of(run(train + " --train dev.conllu --valid test.conllu --save " + model));
  EXPECT_EQ(lines[0], "parser, data from " + folder.string() +
                          ": training on 2 sentences of dev.conllu, validating on 2 of test.conllu");
  EXPECT_EQ(lines[1], "left out of the training set: 1 not projective");
  expect_has(run("windrow eval " + model + "--data " + folder.string()).out,
             " on 2 validation sentences of test.conllu\n");
  // Without --data, and as shells complete paths.
  const std::string paths = " --train '" + (folder / "dev.conllu").string() + "' --valid " + in("test.conllu");
  EXPECT_EQ(lines_of(run("windrow train parser --hidden 8 --embedding 8 --epochs 1" + paths))[1], lines[1]);
}

TEST_F(Data, OfWordVectorsMayComeThroughAPipeOrBeShortened) {
  for (const char* part : {"train.txt", "dev.txt"}) std::ofstream(folder / part) << "(3 (2 It) (4 works))\n";
  std::ofstream(folder / "v.txt") << "2519370 4\nIt 1 2 3 4\nbad 1 2\nworks 1 2 3 4\n";
  const std::string train = " train tree-lstm --hidden 4 --embedding 4 --epochs 1 --data '" + folder.string() + "'";
  const std::string file = (folder / "v.txt").string();
  expect_has(output("windrow" + train + " --vectors " + in("v.txt")),
             file + ": vectors of 0 of the 0 words; 2 in the file\n" + file +
                 ": the first line says 2,519,370 words\nleft out of the vectors: 1 line, the first one is " + file +
                 ":3:1: 2 numbers; expected 4, the width of the table\n");
  const std::string pipe = in("pipe"), write = "mkfifo " + pipe + "; cat " + in("v.txt") + " > " + pipe + " & ";
  expect_has(output_of(run_command(write + "'" WINDROW_BIN "/windrow'" + train + " --vectors " + pipe)),
             " 2 in the file\n");
}

/// And not after the first epoch.
TEST_F(Data, ThatNoCheckpointCanKeepAreRefusedBeforeTheTraining) {
  for (const char* part : {"train.txt", "valid.txt"}) std::ofstream(folder / part) << "caf\xe9 a\n";
  const std::string train = "windrow train var-lstm --hidden 4 --embedding 4 --epochs 1 --data " + folder.string();
  expect_refused(
      run(train + " --save " + in("model")),
      "windrow: var-lstm: cannot be saved: a record with the text 'caf\xe9', which is not UTF-8; expected UTF-8\n");
  EXPECT_EQ(run(train).err, "") << "without --save, words are bytes";
}

TEST_F(Data, MayLackAValidationSet) {
  std::ofstream(folder / "all.txt") << "A|B-X b|O\n";  // every tenth sentence would be for validation
  const std::string data = " --hidden 8 --embedding 8 --data " + folder.string();
  const auto lines = lines_of(run("windrow train bilstm --epochs 1" + data));
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_TRUE(lines[0].ends_with("training on 1 sentence of all.txt, validating on 0 of all.txt")) << lines[0];
  expect_match(lines[3], " +1 +[0-9.]+ +- +- +\\d+");
  expect_refused(run("windrow-perf train --model bilstm --inference" + data),
                 "windrow-perf: bilstm: no validation sentences in " + folder.string() +
                     "; expected at least one for --inference\n");
}

TEST_F(Data, AreScheduledByEveryPolicy) {
  const auto& data = folder;
  std::ofstream(data / "train.txt") << "(3 (2 It) (4 works))\n(2 Yes)\n(3 (2 It) (4 (2 does) (2 not)))\n";
  std::ofstream(data / "dev.txt") << "(2 Yes)\n";
  const std::string outcome = output("windrow schedule --batch 2 --data " + data.string());
  const std::string out = std::regex_replace(outcome, std::regex(" +[0-9.]+\n"), " N\n");
  EXPECT_EQ(out, "tree-lstm, data from " + data.string() +
                     ": 3 training trees of train.txt in 2 minibatches\n\n"
                     "policy       batches per minibatch  vertices per batch  scheduling ns per vertex\n"
                     "level                          2.5                 1.8 N\n"
                     "depth                          2.5                 1.8 N\n"
                     "agenda                         2.5                 1.8 N\n"
                     "complete                       2.5                 1.8 N\n"
                     "serial                         4.5                 1.0 N\n"
                     "lower bound N\n");
}

TEST_F(Data, OfEveryModelAreScheduled) {
  for (const std::string model : {"fixed-lstm --steps 12", "bilstm-char", "listops", "dag"}) {
    const auto lines = lines_of(run("windrow schedule " + model + " --samples 20 --batch 10 --hidden 8"));
    EXPECT_EQ(lines.size(), 9u) << model;
  }
}

}  // namespace
}  // namespace windrow::testing
