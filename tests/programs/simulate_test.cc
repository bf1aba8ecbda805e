// windrow simulate.
#include <sstream>

#include "tests/programs/programs.h"

namespace windrow::testing {
namespace {

using Simulate = Programs;

/// The words of a line, but for percent signs.
std::vector<std::string> words_without_units(const std::string& line) {
  std::istringstream text(line);
  std::vector<std::string> words;
  for (std::string word; text >> word;) {
    if (word != "%") words.push_back(word);
  }
  return words;
}

TEST_F(Simulate, PrintsTheTablesOfTheDocument) {
  const std::string document = read_file(WINDROW_SOURCE_DIR "/docs/scaling.md");
  for (const std::string command :
       {"windrow simulate --devices 16 --bandwidth 11.25,4.5 --compare",
        "windrow simulate --model vgg16 --devices 16 --bandwidth 10 --compare",
        "windrow simulate --devices 16 --layers 200 --parameters 1 --bucket 0.5 --part 0.5 --gap 0.5 --computation 2 "
        "--update 0.05 --compare"}) {
    EXPECT_NE(document.find(command.substr(0, 100)), std::string::npos) << command;
    const auto lines = lines_of(run(command));
    ASSERT_GE(lines.size(), 10u) << command;
    for (std::size_t i = 4; i < lines.size(); ++i) {
      EXPECT_LE(lines[i].size(), 80u) << lines[i];
      const auto words = words_without_units(lines[i]);  // devices, GB/s, step, network, hidden, efficiency, limit, ...
      ASSERT_GE(words.size(), 7u) << lines[i];
      const std::string row = "| " + words[2] + " | " + words[3] + " | " + words[4] + " % | " + words[6] + " |";
      EXPECT_NE(document.find(row), std::string::npos) << command << "\n" << row;
    }
  }
}

TEST_F(Simulate, NamesFewLayersAndParameters) {
  const auto first = lines_of(run("windrow simulate --devices 1 --layers 1 --parameters 0.001")).at(0);
  EXPECT_EQ(first, "uniform: 1 layer, 1,000 parameters; 100 ms of computation per step");
}

TEST_F(Simulate, RefusesInOneLine) {
  const std::string help = "; see windrow simulate --help\n";
  for (const auto& [flags, says] : std::vector<std::pair<std::string, std::string>>{
           {"--devices 4,5000", "--devices: '4,5000'; expected whole numbers, 1 to 4096, separated by commas" + help},
           {"--bandwidth 1,0", "--bandwidth: '0'; expected a number, 0.001 to 100000" + help},
           {"--latency 1e300", "--latency: '1e300'; expected a number, 0 to 10000" + help},
           {"--jitter 1", "--jitter: '1'; expected a number from 0 on, less than 1" + help},
           {"--model rnn", "--model: 'rnn'; expected one of uniform, vgg16, bert-base" + help},
           {"--without overlap --compare", "--without excludes --compare" + help},
           {"--model vgg16 --layers 5", "--layers: --model vgg16 has its own; expected --model uniform\n"},
           {"--model bert-base --parameters 5",
            "--parameters: --model bert-base has its own; expected --model uniform\n"},
           {"--devices 1,4096 --layers 1000",
            "simulate: 4096 devices x 1000 layers x 3 steps; expected a product of at most 1000000\n"},
           {"--parameters 100000 --part 0.01",
            "simulate: more than 10000000 parts in all steps; expected larger parts, smaller layers or fewer "
            "steps\n"}}) {
    expect_refused(run("windrow simulate " + flags), "windrow: " + says);
  }
}

}  // namespace
}  // namespace windrow::testing
