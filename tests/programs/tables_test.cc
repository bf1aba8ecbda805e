// The parts of the tables of perf/batching: rows, plots, files and turns; and the tagger with manual batching.
#include "batching/tables.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "batching/hand_tagger.h"
#include "batching/svg.h"
#include "batching/turns.h"
#include "tests/batching/cells.h"
#include "tests/engine/support.h"
#include "tests/models/training.h"
#include "tests/ops/cases.h"
#include "windrow/models/tagger.h"

namespace windrow::perf {
namespace {

using testing::error_of;
using testing::TextFolder;

Result sample() {
  Result result{.name = "sample",
                .title = "A <title> & more",
                .command = "windrow-perf sample --out \"x\"",
                .about = "What was measured.",
                .table = Table({{"model"}, {"batch", 0}, {"share", 1, " %"}}),
                .plots = {{.title = "A <title> & more",
                           .x = "batch",
                           .y = "share",
                           .places = {"1", "2"},
                           .series = {{"first", {0.5, 120}}, {"second", {NAN, 7}}}}}};
  result.table.add({"a|b", 1.0, 12.345});
  result.table.add({"c", 2.0, NAN});
  return result;
}

TEST(Tables, AreMarkdown) {
  EXPECT_EQ(sample().markdown(),
            "# A <title> & more\n\nWhat was measured.\n\n```\nwindrow-perf sample --out \"x\"\n```\n\n"
            "| model | batch | share |\n"
            "|---|---:|---:|\n"
            "| a\\|b | 1 | 12.3 % |\n"
            "| c | 2 | - |\n"
            "\n![A <title> & more](sample.svg)\n");
}

TEST(Tables, AreJson) {
  EXPECT_EQ(sample().json(),
            R"({"name": "sample", "title": "A <title> & more", "command": "windrow-perf sample --out \"x\"", )"
            R"("about": "What was measured.",
  "rows": [
    {"model": "a|b", "batch": 1, "share": 12.345},
    {"model": "c", "batch": 2, "share": null}
  ]
}
)");
}

TEST(Tables, RefuseRowsThatDoNotFit) {
  Table table({{"one"}, {"two"}});
  EXPECT_EQ(error_of<MisuseError>([&] { table.add({1.0}); }), "a row of 1 entries; expected 2");
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t times = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++times;
  return times;
}

TEST(Svg, ShowsTitlesAxesTicksAndSeries) {
  const std::string text = svg(sample().plots);
  EXPECT_TRUE(text.starts_with("<svg xmlns=")) << text;
  EXPECT_TRUE(text.ends_with("</svg>\n"));
  for (const char* words : {">A &lt;title&gt; &amp; more<", ">batch<", ">share<", ">first<", ">second<", ">1<", ">2<",
                            ">0<", ">50<", ">100<", ">150<"}) {
    EXPECT_EQ(count(text, words), 1u) << words;
  }
  EXPECT_EQ(count(text, "<polyline"), 2u);
  EXPECT_EQ(count(text, "<circle"), 3u) << "what is not finite is left out";
  EXPECT_EQ(count(text, "nan"), 0u);
  EXPECT_EQ(svg(sample().plots), text) << "the same bytes again";
}

TEST(Svg, ShowsBarsBesideAndOnEachOther) {
  Plot plot = sample().plots[0];
  plot.form = Plot::Form::bars;
  const std::size_t legend_and_page = 3;
  EXPECT_EQ(count(svg({plot}), "<rect"), 3u + legend_and_page);
  plot.form = Plot::Form::stacked;
  EXPECT_EQ(count(svg({plot}), "<rect"), 3u + legend_and_page);
  EXPECT_EQ(count(svg({plot, plot}), ">share<"), 2u);
}

TEST(Svg, ShowsPlotsOfNothing) {
  EXPECT_EQ(count(svg({Plot{}}), "nan"), 0u);
  EXPECT_EQ(count(svg({Plot{.title = "",
                            .x = "",
                            .y = "",
                            .places = {"1"},
                            .series = {{"s", {0}}},
                            .scale = Plot::Scale::logarithmic}}),
                  "nan"),
            0u);
}

TEST(Ticks, AreRoundAndFew) {
  EXPECT_EQ(linear_ticks(0), (std::vector<double>{0, 1}));
  EXPECT_EQ(linear_ticks(7), (std::vector<double>{0, 2, 4, 6, 8}));
  EXPECT_EQ(linear_ticks(30), (std::vector<double>{0, 10, 20, 30}));
  for (double most = 1e-3; most < 1e6; most *= 1.07) {
    const std::vector<double> ticks = linear_ticks(most);
    EXPECT_GE(ticks.size(), 4u) << most;
    EXPECT_LE(ticks.size(), 6u) << most;
    EXPECT_GE(ticks.back(), most * (1 - 1e-6));
    const std::vector<double> powers = logarithmic_ticks(most, 30 * most);
    EXPECT_LE(powers.front(), most * (1 + 1e-6));
    EXPECT_GE(powers.back(), 30 * most * (1 - 1e-6));
    EXPECT_LE(powers.size(), 11u);
  }
  EXPECT_EQ(logarithmic_ticks(1, 10), (std::vector<double>{1, 2, 5, 10}));
}

TEST(ResultFolder, IsMadeAndHoldsThreeFiles) {
  const TextFolder folder(std::map<std::string, std::string>{});
  ResultFolder(folder.path / "a" / "b", "sample").write(sample());
  EXPECT_EQ(read_text(folder.path / "a" / "b" / "sample.md"), sample().markdown());
  EXPECT_EQ(read_text(folder.path / "a" / "b" / "sample.json"), sample().json());
  EXPECT_EQ(read_text(folder.path / "a" / "b" / "sample.svg"), svg(sample().plots));
}

TEST(ResultFolder, SaysIfItCannotBeWritten) {
  const std::map<std::string, std::string> files = {{"file", "x"}};
  const TextFolder folder(files);
  const std::string in = (folder.path / "file").string();
  EXPECT_EQ(error_of<Error>([&] { ResultFolder(in, "sample"); }),
            in + "/sample.md: cannot be written: Not a directory; expected a writable folder for the results");
  const ResultFolder there(folder.path, "sample");
  EXPECT_FALSE(std::filesystem::exists(folder.path / "sample.md")) << "nothing was measured yet";
}

TEST(ResultFolder, WritesAllOrNothing) {
  const std::map<std::string, std::string> old = {{"sample.md", "old"}, {"sample.json", "old"}};
  const TextFolder folder(old);
  const ResultFolder results(folder.path, "sample");
  std::filesystem::create_directory(folder.path / "sample.svg");  // after it was looked at
  EXPECT_EQ(error_of<Error>([&] { results.write(sample()); }),
            (folder.path / "sample.svg").string() + ": not a regular file; expected a regular file or none");
  EXPECT_EQ(read_text(folder.path / "sample.md"), "old");
  EXPECT_EQ(read_text(folder.path / "sample.json"), "old");
  const std::filesystem::directory_iterator files(folder.path);
  EXPECT_EQ(std::distance(begin(files), end(files)), 3) << "none is left beside them";
}

TEST(ResultFolder, FollowsLinksToRegularFilesOnly) {
  const std::map<std::string, std::string> files = {{"elsewhere", "old"}};
  const TextFolder folder(files);
  const auto link = [&](const char* to) {
    std::filesystem::remove(folder.path / "sample.svg");
    std::filesystem::create_symlink(to, folder.path / "sample.svg");
  };
  ASSERT_EQ(mkfifo((folder.path / "pipe").c_str(), 0600), 0);
  for (const char* to : {"pipe", "nowhere", "sample.svg", "."}) {
    link(to);
    EXPECT_EQ(error_of<Error>([&] { ResultFolder(folder.path, "sample"); }),
              (folder.path / "sample.svg").string() + ": not a regular file; expected a regular file or none")
        << to;
  }
  link("elsewhere");
  ResultFolder(folder.path, "sample").write(sample());
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path / "sample.svg"));
  EXPECT_EQ(read_text(folder.path / "elsewhere"), svg(sample().plots));
}

TEST(CommandLines, AreQuotedForAShell) {
  EXPECT_EQ(
      command_line("windrow-perf", {"serial", "--batch", "1,2", "--out=a/b.c", "", "two words", "it's", "$x", "*"}),
      "windrow-perf serial --batch 1,2 --out=a/b.c '' 'two words' 'it'\\''s' '$x' '*'");
}

TEST(Turns, AreTakenInEachRepetition) {
  Turns turns;
  std::string order;
  double speed = 1;
  const std::size_t a = turns.add([&] { return order += 'a', speed *= 2; });
  const std::size_t b = turns.add([&] { return order += 'b', 3 * speed; });
  turns.take(3);
  EXPECT_EQ(order, "ababbaab") << "once unmeasured, then beginning with another one each time";
  EXPECT_EQ(turns.median(a), 8);
  EXPECT_EQ(turns.ratio(b, a), 3) << "whatever the machine's mood";
  EXPECT_TRUE(std::isnan(median_of({})));
  EXPECT_EQ(median_of({4, 1, 2, 3}), 2.5);
}

/// Minibatches of the same sentences, by hand and as a vertex function.
TEST(HandTagger, ComputesWhatTheVertexFunctionDoes) {
  Engine engine({.workers = 2});
  const Device host = host_device(engine);
  Parameters parameters(host, 1);
  const Tagger tagger(parameters, {.vocabulary = 9, .tags = 4, .embedding = 5, .hidden = 6, .layers = 2});
  const VertexFunction function = tagger.function();
  std::mt19937 random(7);
  constexpr std::size_t length = 5, sentences = 3;
  std::vector<TaggerInput> inputs(sentences);
  std::vector<std::int32_t> words, tags;
  for (std::size_t word = 0; word < length; ++word) {
    for (TaggerInput& input : inputs) {
      input.words.push_back(words.emplace_back(static_cast<std::int32_t>(random() % 9)));
      input.tags.push_back(tags.emplace_back(static_cast<std::int32_t>(random() % 4)));
      input.characters.emplace_back();
    }
  }
  std::vector<GraphData> data;
  for (const TaggerInput& input : inputs) data.push_back(tagger.graph(input));
  const testing::Graphs graphs(function, data);
  Runner runner(host, function, parameters);
  const double loss = runner.differentiate(graphs.pointers).loss();

  HandTagger by_hand(host, parameters, 6, 2);
  const TensorSentences minibatch = to_tensors(host, words, tags, sentences);
  for (int again = 0; again < 2; ++again) EXPECT_NEAR(by_hand.differentiate(minibatch).get()[0], loss, 1e-4);
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const std::string& name = parameters.name(parameters[p]);
    SCOPED_TRACE(name);
    const std::vector<double> expected = testing::dense(parameters, parameters[p]);
    const std::vector<float> found = by_hand.gradient(name).get();
    std::vector<double> sums(found.begin(), found.end());
    if (name == "words") {
      sums.assign(expected.size(), 0);
      for (std::size_t i = 0; i < found.size(); ++i) {
        sums[static_cast<std::size_t>(words[i / 5]) * 5 + i % 5] += static_cast<double>(found[i]);
      }
    }
    testing::expect_close(sums, expected, 1e-4);
  }
  parameters.sgd(0.1);
  std::vector<std::vector<float>> stepped;
  for (std::size_t p = 0; p < parameters.size(); ++p) stepped.push_back(parameters.value(parameters[p]).get());
  parameters.sgd(-0.1);
  by_hand.sgd(0.1);
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const std::vector<float> found = parameters.value(parameters[p]).get();
    testing::expect_close({found.begin(), found.end()}, {stepped[p].begin(), stepped[p].end()}, 1e-4);
  }
}

}  // namespace
}  // namespace windrow::perf
