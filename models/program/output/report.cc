#include "program/output/report.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "program/output/text.h"

namespace windrow::program {
namespace {

using Epoch = TrainingReport::Epoch;

std::string count_text(std::int64_t number) {
  return grouped(static_cast<std::size_t>(std::max<std::int64_t>(number, 0)));
}
std::int64_t all_of(const StepTimes& times) { return times.product_ns + times.arithmetic_ns + times.move_ns; }

// --- Charts

constexpr std::size_t most_points = 400;

/// At most `most_points` points: means of neighbours.
Chart::Series thinned(const Chart::Series& series) {
  const std::size_t together = series.y.empty() ? 1 : (series.y.size() - 1) / most_points + 1;
  if (together == 1) return series;
  Chart::Series result{.name = series.name, .x = {}, .y = {}};
  for (std::size_t begin = 0; begin < series.y.size(); begin += together) {
    const std::size_t end = std::min(begin + together, series.y.size());
    double x = 0, y = 0;
    for (std::size_t i = begin; i < end; ++i) {
      x += series.x[i];
      y += series.y[i];
    }
    result.x.push_back(x / static_cast<double>(end - begin));
    result.y.push_back(y / static_cast<double>(end - begin));
  }
  return result;
}

/// The value of an epoch in a curve; NaN if it has none.
using Value = std::function<double(const Epoch&)>;

/// Adds a curve over epochs, unless no epoch has a value.
void add_curve(Chart& chart, const TrainingReport& report, const std::string& name, const Value& value) {
  Chart::Series series{.name = name, .x = {}, .y = {}};
  for (const Epoch& epoch : report.epochs) {
    series.x.push_back(static_cast<double>(epoch.number));
    series.y.push_back(value(epoch));
  }
  const bool known = std::ranges::any_of(series.y, [](double y) { return std::isfinite(y); });
  if (known || chart.series.empty()) chart.series.push_back(thinned(series));
}

std::string loss_chart(const TrainingReport& report) {
  Chart chart{.title = "Loss", .x = "epoch", .y = "mean loss per label"};
  add_curve(chart, report, "training", [](const Epoch& epoch) { return epoch.training_loss; });
  add_curve(chart, report, "validation", [](const Epoch& epoch) { return epoch.validation_loss.value_or(NAN); });
  return svg(chart);
}

std::string metric_charts(const TrainingReport& report) {
  std::string charts;
  const auto metrics = report.epochs.empty() ? std::vector<Metric>() : report.epochs.front().metrics;
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    const auto& [name, value, unit] = metrics[i];
    const bool fraction = unit == Metric::Unit::fraction;
    Chart chart{.title = "Validation " + name, .x = "epoch", .y = fraction ? "%" : name};
    add_curve(chart, report, "validation", [&](const Epoch& epoch) {
      return i < epoch.metrics.size() ? epoch.metrics[i].value * (fraction ? 100 : 1) : NAN;
    });
    charts += svg(chart);
  }
  return charts;
}

std::string minibatch_chart(const TrainingReport& report) {
  Chart::Series all{.name = "each minibatch", .x = {}, .y = report.minibatch_losses};
  for (std::size_t i = 0; i < all.y.size(); ++i) all.x.push_back(static_cast<double>(report.first_minibatch + i + 1));
  if (all.y.size() > most_points) all.name = formatted("mean of %zu", (all.y.size() - 1) / most_points + 1);
  return svg(
      {.title = "Training loss by minibatch", .x = "minibatch", .y = "mean loss per label", .series = {thinned(all)}});
}

std::string throughput_chart(const TrainingReport& report) {
  Chart chart{.title = "Training throughput", .x = "epoch", .y = report.unit + "/s"};
  add_curve(chart, report, chart.y, [](const Epoch& epoch) { return epoch.units_per_second; });
  return svg(chart);
}

/// Empty if steps were not timed, as on a device.
std::string time_chart(const TrainingReport& report) {
  if (std::ranges::all_of(report.epochs, [](const Epoch& epoch) { return all_of(epoch.times) == 0; })) return {};
  Chart chart{.title = "Time of the workers while they train", .x = "epoch", .y = "% of the workers' time"};
  const auto share = [&](const Epoch& epoch, std::int64_t ns) {
    return 100 * static_cast<double>(ns) / (epoch.timed_seconds * 1e9 * report.workers);
  };
  for (const auto& [name, ns] :
       {std::pair("products", &StepTimes::product_ns), std::pair("other arithmetic", &StepTimes::arithmetic_ns),
        std::pair("moves", &StepTimes::move_ns)}) {
    add_curve(chart, report, name, [&, of = ns](const Epoch& epoch) { return share(epoch, epoch.times.*of); });
  }
  add_curve(chart, report, "optimiser, scheduling, waiting",
            [&](const Epoch& epoch) { return std::max(100 - share(epoch, all_of(epoch.times)), 0.0); });
  return svg(chart);
}

// --- Tables

std::string row(const std::vector<std::string>& cells, const std::string& tag) {
  std::string text = "<tr>";
  for (const std::string& cell : cells) text += "<" + tag + ">" + escaped(cell) + "</" + tag + ">";
  return text + "</tr>\n";
}

std::string table(const std::string& style, const std::string& rows) {
  return "<table class=\"" + style + "\">\n" + rows + "</table>\n";
}

std::string section(const std::string& title, const std::string& content) {
  return "<section><h2>" + title + "</h2>\n" + content + "</section>\n";
}

std::string fact_table(const std::vector<Fact>& facts) {
  std::string rows;
  for (const Fact& fact : facts) rows += row({fact.name, fact.value}, "td");
  return table("facts", rows);
}

std::string epoch_table(const TrainingReport& report) {
  if (report.epochs.empty()) return "<p>No epoch has ended.</p>\n";
  const Epoch& first = report.epochs.front();
  std::vector<std::string> head = {"epoch", "training loss", "validation loss"};
  for (const Metric& metric : first.metrics) head.push_back("validation " + metric.name);
  head.push_back(report.unit + "/s");
  head.emplace_back("training");
  const bool grouped_members = !report.group.empty();
  if (grouped_members) head.push_back("collectives");
  std::string rows = row(head, "th");
  for (const Epoch& epoch : report.epochs) {
    std::vector<std::string> cells = {std::to_string(epoch.number), loss_text(epoch.training_loss),
                                      epoch.validation_loss ? loss_text(*epoch.validation_loss) : "-"};
    for (const Metric& metric : epoch.metrics) cells.push_back(metric_text(metric));
    cells.push_back(count_text(std::llround(epoch.units_per_second)));
    cells.push_back(seconds_text(epoch.seconds));
    const double collectives = 100 * epoch.collective_seconds / epoch.timed_seconds;
    if (grouped_members) cells.push_back(std::isnan(collectives) ? "-" : formatted("%.1f %%", collectives));
    rows += row(cells, "td");
  }
  constexpr std::size_t few = 30;
  return std::string(report.epochs.size() > few ? "<details>" : "<details open>") + "<summary>" +
         counted(report.epochs.size(), "row") + "</summary>\n" + table("numbers", rows) + "</details>\n";
}

/// Empty for a single member.
std::string group_section(const TrainingReport& report) {
  if (report.group.empty()) return {};
  double collectives = 0, seconds = 0;
  for (const Epoch& epoch : report.epochs) {
    collectives += epoch.collective_seconds;
    seconds += epoch.timed_seconds;
  }
  std::vector<Fact> facts = {{"members", report.group}};
  if (seconds > 0) {
    facts.push_back({"time in collectives", formatted("%.1f %% of the time of training; computation goes on meanwhile",
                                                      100 * collectives / seconds)});
  }
  return section(
      "Group",
      "<p>Throughput and losses by epoch are those of the group; the rest, such as the loss by minibatch, is "
      "of rank 0.</p>\n" +
          fact_table(facts));
}

}  // namespace

std::string html(const TrainingReport& report) {
  const std::int64_t bytes = report.parameters * static_cast<std::int64_t>(sizeof(float));
  const std::string memory =
      fact_table({{"parameters", count_text(report.parameters) + " numbers, " + bytes_text(bytes)},
                  {"largest minibatch", bytes_text(report.minibatch_peak)},
                  {"tensors on " + report.device, bytes_text(report.device_peak)},
                  {"kept by the pool of " + report.device + " at the end", bytes_text(report.device_cached)},
                  {"process, with data", bytes_text(report.process_peak)}});
  const std::string body =
      "<h1>" + escaped(report.model) + "</h1>\n<p>" + escaped(report.about) + "</p>\n<div class=\"charts\">\n" +
      loss_chart(report) + metric_charts(report) + minibatch_chart(report) + throughput_chart(report) +
      time_chart(report) + "</div>\n" + section("Epochs", epoch_table(report)) + group_section(report) +
      "<div class=\"tables\">\n<div>\n" + section("Memory, at most", memory) +
      section("Machine", fact_table(report.machine)) + "</div>\n<div>\n" +
      section("Flags", "<p>Those with * were given.</p>\n" + fact_table(report.flags)) + "</div>\n</div>\n";
  return page("windrow: " + report.model, body);
}

}  // namespace windrow::program
