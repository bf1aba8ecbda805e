// The report of a training and its charts, checked as text.
#include "report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <sstream>

namespace windrow::program {
namespace {

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
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
  for (const char* const part :
       {"Data from &lt;a &amp; b&gt;.", "An &quot;8-way&quot; machine", "<td>3</td><td>0.3333</td><td>0.5000</td>",
        "<td>80.0 %</td><td>30.0</td>", "validation, epoch 3: 80<", ">Validation perplexity<", "mean of 3",
        "products, epoch 2: 50<", "12,345 numbers, 48.2 KiB", "<td>--epochs</td><td>3 *</td>",
        "color-scheme: light dark"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
}

TEST(TrainingReports, OfATrainingThatHasHardlyBegunSaySo) {
  const std::string page = html({.model = "parser", .about = "Stopped.", .unit = "sentences"});
  EXPECT_TRUE(balanced(page));
  EXPECT_NE(page.find("No epoch has ended."), std::string::npos);
  EXPECT_NE(page.find("nothing to show"), std::string::npos);
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
  EXPECT_EQ(chart.find("nan"), std::string::npos);
}

}  // namespace
}  // namespace windrow::program
