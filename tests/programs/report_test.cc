// Parts of the program windrow: its report and charts, checked as text; its line of progress; and what keeps vertices
// from sharing batches, on graphs small enough to count by hand.
#include "report.h"

#include <cmath>
#include <limits>
#include <sstream>

#include "batch_facts.h"
#include "progress.h"
#include "tests/programs/texts.h"

namespace windrow::program {
namespace {

using testing::expect_has;
using testing::expect_has_all;
using testing::expect_lacks;

TrainingReport report() {
  TrainingReport report{.model = "tree-lstm", .about = "Data from <a & b>.", .unit = "trees"};
  for (int i = 1; i <= 3; ++i) {
    report.epochs.push_back(
        {.number = static_cast<std::uint64_t>(i),
         .training_loss = 1.0 / i,
         .validation_loss = 1.5 / i,
         .metrics = {{"root accuracy", 0.5 + 0.1 * i}, {"perplexity", 90.0 / i, Metric::Unit::count}},
         .units_per_second = 1000.0 + i,
         .seconds = 2,
         .timed_seconds = 2,
         .times = {1'000'000'000, 500'000'000, 100'000'000}});
  }
  for (int i = 0; i < 1000; ++i) report.minibatch_losses.push_back(1.0 / (i + 1));
  report.parameters = 12345;
  report.machine = {{"processor", "An \"8-way\" machine"}};
  report.flags = {{"--epochs", "3 *"}};
  return report;
}

/// Whether each tag that opens closes, in order.
bool balanced(const std::string& page) {
  std::vector<std::string> open;
  const std::regex tag("<(/?)([a-z0-9]+)([^>]*)>");
  for (std::sregex_iterator it(page.begin(), page.end(), tag), end; it != end; ++it) {
    const std::string name = (*it)[2], rest = (*it)[3];
    if (name == "meta" || rest.ends_with('/')) continue;
    if ((*it)[1].length() == 0) {
      open.push_back(name);
    } else if (open.empty() || open.back() != name) {
      return false;
    } else {
      open.pop_back();
    }
  }
  return open.empty();
}

TEST(TrainingReports, ArePagesThatNeedNothingElse) {
  const std::string page = html(report());
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>"));
  EXPECT_TRUE(balanced(page));
  for (const char* const outside : {"http", "src=", "href=", "<script", "url(", "@import"}) {
    expect_lacks(page, outside);
  }
  expect_has_all(page, {"Data from &lt;a &amp; b&gt;.", "An &quot;8-way&quot; machine",
                        "<td>3</td><td>0.3333</td><td>0.5000</td>", "<td>80.0 %</td><td>30.0</td>",
                        "validation, epoch 3: 80<", ">Validation perplexity<", "mean of 3", "products, epoch 2: 50<",
                        "12,345 numbers, 48.2 KiB", "<td>--epochs</td><td>3 *</td>", "color-scheme: light dark"});
}

TEST(TrainingReports, OfATrainingThatHasHardlyBegunSaySo) {
  const std::string page = html({.model = "parser", .about = "Stopped.", .unit = "sentences"});
  EXPECT_TRUE(balanced(page));
  expect_has(page, "No epoch has ended.");
  expect_has(page, "nothing to show");
}

TEST(Charts, DrawLargerValuesHigherAndLeaveOutWhatIsNotFinite) {
  const std::string chart =
      svg({.title = "t", .x = "epoch", .y = "loss", .series = {{"a", {1, 2, 3, 4}, {0.5, NAN, 2, 1e6}}}});
  std::smatch points;
  ASSERT_TRUE(std::regex_search(chart, points, std::regex("points=\"([^\"]*)\"")));
  std::istringstream text(points[1].str());
  std::vector<double> x, y;
  char comma = 0;
  for (double one = 0, other = 0; text >> one >> comma >> other;) {
    x.push_back(one);
    y.push_back(other);
  }
  ASSERT_EQ(x.size(), 3u) << chart;
  EXPECT_LT(x[0], x[1]);
  EXPECT_GE(y[0], y[1]);
  EXPECT_GT(y[1], y[2]);
  expect_lacks(chart, "nan");
}

TEST(ProgressLines, FitEveryWidth) {
  const ProgressLine line{.epoch = 3,
                          .epochs = 12,
                          .samples = 50,
                          .of = 100,
                          .loss = 1.25,
                          .units_per_second = 12345,
                          .unit = "trees",
                          .seconds_left = 3723};
  EXPECT_EQ(to_string(line, 200), "epoch 3/12  50 %  1:02:03 left  loss 1.2500  12,345 trees/s");
  EXPECT_EQ(to_string(line, 50), "epoch 3/12  50 %  1:02:03 left  loss 1.2500");
  EXPECT_EQ(to_string(line, 30), "epoch 3/12  50 %  1:02:03 left");
  EXPECT_EQ(to_string(line, 29), "epoch 3/12  50 %");
  for (std::size_t width = 0; width < 100; ++width) EXPECT_LE(to_string(line, width).size(), width);
  ProgressLine large = line;
  large.loss = 1e300;
  large.seconds_left = std::numeric_limits<double>::infinity();
  EXPECT_EQ(to_string(large, 79), "epoch 3/12  50 %  loss 1.0000e+300  12,345 trees/s");
}

TEST(ProgressLines, AreNotCutInsideACharacter) {
  EXPECT_EQ(fitted("größer", 4), "größ");
  EXPECT_EQ(fitted("größer", 6), "größer");
  EXPECT_EQ(fitted("größer", 9), "größer");
  EXPECT_EQ(fitted("\xf0\x9f\x8c\xbe", 0), "");
}

/// A chain of two vertices of type 1 above a leaf of type 0, and a second leaf.
TypedGraph chain_and_leaf() {
  return {.types = 3, .type = {0, 1, 1, 0}, .child_begin = {0, 0, 1, 2, 2}, .children = {0, 1}, .costs = {10, 30, 7}};
}

TEST(BatchFacts, CountWhyThereAreSoManyBatches) {
  const GroupedMinibatch minibatch{.types = {"leaf", "inner", "rare"}, .groups = {chain_and_leaf(), chain_and_leaf()}};
  BatchFacts facts;
  add(facts, minibatch, SchedulePolicy::level);
  EXPECT_EQ(facts.vertices, 8);
  EXPECT_EQ(facts.groups, 2);
  EXPECT_EQ(facts.batches, 6) << "leaves, and two levels of inner vertices, in each group";
  EXPECT_EQ(facts.causes.types, 2) << "the third type does not occur";
  EXPECT_EQ(facts.causes.dependencies, 1);
  EXPECT_EQ(facts.causes.schedule, 0);
  EXPECT_EQ(facts.causes.groups, 3);
  ASSERT_EQ(facts.types.size(), 2u);
  EXPECT_EQ(facts.types[1].name, "inner");
  EXPECT_EQ(facts.types[1].vertices, 4);
  EXPECT_EQ(facts.types[1].batches, 4);
  EXPECT_EQ(facts.path_vertices, 3);
  EXPECT_EQ(facts.path_flops, 70);
  EXPECT_EQ(facts.flops, 160);

  BatchFacts one_by_one;
  add(one_by_one, minibatch, SchedulePolicy::serial);
  EXPECT_EQ(one_by_one.batches, 8);
  EXPECT_EQ(one_by_one.causes.schedule, 5);
  EXPECT_EQ(one_by_one.causes.groups, 0);
}

}  // namespace
}  // namespace windrow::program
