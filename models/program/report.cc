#include "report.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <utility>

#include "about.h"
#include "program.h"

namespace windrow::program {
namespace {

template <class... Values>
std::string cell_text(const char* format, Values... values) {
  std::array<char, 120> text{};
  std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

std::string count_text(std::int64_t number) {
  return grouped(static_cast<std::size_t>(std::max<std::int64_t>(number, 0)));
}
double ratio(std::int64_t part, std::int64_t all) { return static_cast<double>(part) / static_cast<double>(all); }

// --- Charts

using Epoch = TrainingReport::Epoch;

/// A point for each epoch that has a value.
template <class Value>
Chart::Series by_epoch(const std::string& name, const std::vector<Epoch>& epochs, Value value) {
  Chart::Series series{.name = name, .x = {}, .y = {}};
  for (const Epoch& epoch : epochs) {
    series.x.push_back(static_cast<double>(epoch.number));
    series.y.push_back(value(epoch));
  }
  return series;
}

constexpr std::size_t most_bars = 100, most_points = 400;

std::string loss_chart(const TrainingReport& report) {
  Chart chart{.title = "Loss", .x = "epoch", .y = "mean loss per label"};
  chart.series.push_back(by_epoch("training", report.epochs, [](const Epoch& epoch) { return epoch.training_loss; }));
  const auto validated = [](const Epoch& epoch) { return epoch.validation_loss.has_value(); };
  if (std::any_of(report.epochs.begin(), report.epochs.end(), validated)) {
    chart.series.push_back(
        by_epoch("validation", report.epochs, [](const Epoch& epoch) { return epoch.validation_loss.value_or(NAN); }));
  }
  for (Chart::Series& series : chart.series) series = thinned(series, most_points);
  return svg(chart);
}

std::vector<std::string> names_of(const std::vector<Metric>& metrics) {
  std::vector<std::string> names;
  for (const Metric& metric : metrics) names.push_back(metric.name);
  return names;
}

/// Null if there is none.
const Metric* find(const std::vector<Metric>& metrics, const std::string& name) {
  const auto found =
      std::find_if(metrics.begin(), metrics.end(), [&](const Metric& metric) { return metric.name == name; });
  return found == metrics.end() ? nullptr : &*found;
}

/// One of Epoch's lists of metrics.
using MetricsOf = std::vector<Metric> Epoch::*;

/// The curves of a metric: training, then validation, as far as they are known.
std::vector<Chart::Series> metric_curves(const TrainingReport& report, const std::string& name) {
  std::vector<Chart::Series> curves;
  const auto add = [&](const char* set, MetricsOf metrics) {
    if (find(report.epochs.front().*metrics, name) == nullptr) return;
    const auto value = [&](const Epoch& epoch) {
      const Metric* const metric = find(epoch.*metrics, name);
      if (metric == nullptr) return static_cast<double>(NAN);
      return metric->value * (metric->unit == Metric::Unit::fraction ? 100 : 1);
    };
    curves.push_back(thinned(by_epoch(set, report.epochs, value), most_points));
  };
  add("training", &Epoch::training_metrics);
  add("validation", &Epoch::metrics);
  return curves;
}

/// A chart for each metric, and a sentence about metrics that are not known of the training set.
std::string metric_charts(const TrainingReport& report) {
  if (report.epochs.empty()) return {};
  const Epoch& first = report.epochs.front();
  std::string charts;
  for (const Metric& metric : first.metrics.empty() ? first.training_metrics : first.metrics) {
    std::vector<Chart::Series> curves = metric_curves(report, metric.name);
    std::string title = (curves.size() == 1 ? curves.front().name + " " : "") + metric.name;
    title.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(title.front())));
    charts += svg({.title = std::move(title),
                   .x = "epoch",
                   .y = metric.unit == Metric::Unit::fraction ? "%" : metric.name,
                   .series = std::move(curves)});
  }
  return charts;
}

/// Says which curves are missing, and when those of the training set are measured.
std::string metric_note(const TrainingReport& report) {
  if (report.epochs.empty()) return {};
  const Epoch& first = report.epochs.front();
  std::string missing;
  for (const std::string& name : names_of(first.metrics)) {
    if (find(first.training_metrics, name) == nullptr) missing += (missing.empty() ? "" : ", ") + name;
  }
  std::string note;
  if (!first.training_metrics.empty()) {
    note =
        "Training scores are those of the answers from which losses are computed: before the step of their "
        "minibatch, and with dropout.";
  }
  if (!missing.empty() && !note.empty()) note += " ";
  if (!missing.empty()) note += "Not known of the training set, since training does not compute it: " + missing + ".";
  return note.empty() ? "" : "<p>" + escaped(note) + "</p>\n";
}

std::string minibatch_chart(const TrainingReport& report) {
  Chart::Series all{.name = "each minibatch", .x = {}, .y = report.minibatch_losses};
  Chart::Series smooth{.name = "moving average", .x = {}, .y = {}};
  // About the last twentieth of them counts.
  const double keep = 1 - 1 / std::max(1.0, std::min(100.0, static_cast<double>(all.y.size()) / 20));
  double weight = 0, sum = 0;
  for (std::size_t i = 0; i < all.y.size(); ++i) {
    all.x.push_back(static_cast<double>(report.first_minibatch + i + 1));
    sum = keep * sum + all.y[i];
    weight = keep * weight + 1;
    smooth.y.push_back(sum / weight);
  }
  smooth.x = all.x;
  if (all.y.size() > most_points) all.name = "mean of " + std::to_string((all.y.size() - 1) / most_points + 1);
  return svg({.title = "Training loss by minibatch",
              .x = "minibatch",
              .y = "mean loss per label",
              .form = Chart::Form::faint_line,
              .series = {thinned(all, most_points), thinned(smooth, most_points)}});
}

std::string throughput_chart(const TrainingReport& report) {
  return svg({.title = "Training throughput",
              .x = "epoch",
              .y = report.unit + "/s",
              .form = Chart::Form::bars,
              .series = {thinned(by_epoch(report.unit + "/s", report.epochs,
                                          [](const Epoch& epoch) { return epoch.units_per_second; }),
                                 most_bars)}});
}

std::int64_t all_of(const StepTimes& times) { return times.product_ns + times.arithmetic_ns + times.move_ns; }

/// Empty if steps were not timed, as on a device.
std::string time_chart(const TrainingReport& report) {
  const auto timed = [](const Epoch& epoch) { return all_of(epoch.times) > 0; };
  if (std::none_of(report.epochs.begin(), report.epochs.end(), timed)) return {};
  const auto share = [&](const Epoch& epoch, std::int64_t ns) {
    return 100 * static_cast<double>(ns) / (epoch.timed_seconds * 1e9 * report.workers);
  };
  Chart chart{.title = "Time of the workers while they train",
              .x = "epoch",
              .y = "% of the workers' time",
              .form = Chart::Form::stacked,
              .series = {},
              .top = 100};
  chart.series.push_back(
      by_epoch("products", report.epochs, [&](const Epoch& epoch) { return share(epoch, epoch.times.product_ns); }));
  chart.series.push_back(by_epoch("other arithmetic", report.epochs,
                                  [&](const Epoch& epoch) { return share(epoch, epoch.times.arithmetic_ns); }));
  chart.series.push_back(
      by_epoch("moves", report.epochs, [&](const Epoch& epoch) { return share(epoch, epoch.times.move_ns); }));
  chart.series.push_back(by_epoch("optimiser, scheduling, waiting", report.epochs, [&](const Epoch& epoch) {
    return std::max(0.0, 100 - share(epoch, all_of(epoch.times)));
  }));
  for (Chart::Series& series : chart.series) series = thinned(series, most_bars);
  return svg(chart);
}

std::string width_chart(const TrainingReport& report) {
  const BatchFacts& facts = report.batches;
  if (facts.levels.empty()) return {};
  Chart::Series widths{.name = "vertices per batch", .x = {}, .y = {}};
  for (std::size_t level = 0; level < facts.levels.size(); ++level) {
    if (facts.levels[level].batches == 0) continue;
    widths.x.push_back(static_cast<double>(level));
    widths.y.push_back(ratio(facts.levels[level].vertices, facts.levels[level].batches));
  }
  return svg({.title = "Mean width of batches",
              .x = "level (0: vertices without children)",
              .y = "vertices per batch",
              .form = Chart::Form::bars,
              .series = {thinned(widths, most_bars)}});
}

// --- Tables

std::string row(const std::vector<std::string>& cells, const char* tag) {
  std::string text = "<tr>";
  for (const std::string& cell : cells) text += std::string("<") + tag + ">" + escaped(cell) + "</" + tag + ">";
  return text + "</tr>\n";
}

std::string epoch_table(const TrainingReport& report) {
  if (report.epochs.empty()) return "<p>No epoch has ended.</p>\n";
  std::vector<std::string> head = {"epoch", "training loss", "validation loss"};
  const std::vector<std::string> known = names_of(report.epochs.front().training_metrics);
  for (const std::string& name : known) head.push_back("training " + name);
  for (const std::string& name : names_of(report.epochs.front().metrics)) head.push_back("validation " + name);
  head.insert(head.end(), {report.unit + "/s", "training", "validation"});
  const bool grouped_members = !report.group.samples.empty();
  if (grouped_members) head.push_back("collectives");
  constexpr std::size_t few = 30;
  const char* const begin = report.epochs.size() > few ? "<details>" : "<details open>";
  std::string text = std::string(begin) + "<summary>" + count_text(static_cast<std::int64_t>(report.epochs.size())) +
                     (report.epochs.size() == 1 ? " row" : " rows") + "</summary>\n<table class=\"numbers\">\n" +
                     row(head, "th");
  for (const Epoch& epoch : report.epochs) {
    std::vector<std::string> cells = {std::to_string(epoch.number), loss_text(epoch.training_loss),
                                      epoch.validation_loss ? loss_text(*epoch.validation_loss) : "-"};
    for (const std::string& name : known) {
      const Metric* const metric = find(epoch.training_metrics, name);
      cells.push_back(metric == nullptr ? "-" : metric_text(*metric));
    }
    for (const Metric& metric : epoch.metrics) cells.push_back(metric_text(metric));
    cells.insert(cells.end(), {count_text(std::llround(epoch.units_per_second)), seconds_text(epoch.seconds),
                               seconds_text(epoch.evaluation_seconds)});
    if (grouped_members) cells.push_back(cell_text("%.1f %%", 100 * epoch.collective_seconds / epoch.timed_seconds));
    text += row(cells, "td");
  }
  return text + "</table>\n</details>\n";
}

std::vector<Fact> batch_table(const TrainingReport& report) {
  const BatchFacts& facts = report.batches;
  if (facts.batches == 0) {
    return {{"batches", report.has_graphs ? "not known in advance: the model builds its graphs while it runs"
                                          : "none: the model has no graphs, and each operator computes a minibatch"}};
  }
  const auto each = [&](std::int64_t sum) { return cell_text("%.1f", ratio(sum, facts.minibatches)); };
  return {{"minibatches looked at", count_text(facts.minibatches)},
          {"vertices per minibatch", each(facts.vertices)},
          {"batches per minibatch", each(facts.batches)},
          {"vertices per batch", cell_text("%.1f", ratio(facts.vertices, facts.batches))},
          {"groups of samples per minibatch", each(facts.groups)}};
}

/// Empty for models whose vertices are computed in batches.
std::string operator_section(const TrainingReport& report) {
  if (report.ops.empty()) return {};
  const auto seconds = [](std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); };
  std::chrono::nanoseconds all{};
  for (const TraceSummary::Row& op : report.ops) all += op.total;
  std::string rows = row({"op", "calls", "ms", "us a call", "share"}, "th");
  for (const TraceSummary::Row& op : report.ops) {
    rows +=
        row({op.name, count_text(static_cast<std::int64_t>(op.count)), cell_text("%.1f", 1e3 * seconds(op.total)),
             cell_text("%.1f", 1e6 * seconds(op.mean)), cell_text("%.1f %%", 100 * seconds(op.total) / seconds(all))},
            "td");
  }
  return "<section><h2>Operators</h2>\n<p>Ops of the first epoch, at most " + count_text(most_profiled_ops) +
         " of each thread. Work that a device is given by one call is one op.</p>\n<table class=\"numbers\">\n" + rows +
         "</table>\n</section>\n";
}

/// Empty for a single member.
std::string group_section(const TrainingReport& report) {
  const TrainingReport::Group& group = report.group;
  if (group.samples.empty()) return {};
  std::string samples;
  for (const double each : group.samples) samples += (samples.empty() ? "" : ", ") + cell_text("%.1f", each);
  double collectives = 0, seconds = 0;
  for (const Epoch& epoch : report.epochs) {
    collectives += epoch.collective_seconds;
    seconds += epoch.timed_seconds;
  }
  std::vector<Fact> facts = {{"members", group.members},
                             {"samples per minibatch, by rank", samples + " on average; dealt out by vertices"}};
  if (seconds > 0) {
    facts.push_back({"time in collectives", cell_text("%.1f %%", 100 * collectives / seconds) +
                                                " of the time of training; computation goes on meanwhile"});
  }
  return "<section><h2>Group</h2>\n<p>Throughput and losses by epoch are those of the group; the rest, "
         "such as the loss by minibatch, is of rank 0.</p>\n" +
         fact_table(facts) + "</section>\n";
}

std::string cards(const TrainingReport& report) {
  std::string text = "<div class=\"cards\">\n";
  const auto card = [&](const std::string& value, const std::string& name) {
    text += "<div class=\"card\"><b>" + escaped(value) + "</b><span>" + escaped(name) + "</span></div>\n";
  };
  if (!report.epochs.empty()) {
    const Epoch& last = report.epochs.back();
    for (const Metric& metric : last.metrics) card(metric_text(metric), "validation " + metric.name + ", last epoch");
    card(loss_text(last.training_loss), "training loss, last epoch");
    double best = 0, seconds = 0;
    for (const Epoch& epoch : report.epochs) {
      best = std::max(best, epoch.units_per_second);
      seconds += epoch.seconds + epoch.evaluation_seconds;
    }
    card(count_text(std::llround(best)), report.unit + "/s, fastest epoch");
    card(seconds_text(seconds), "training and validation, " +
                                    count_text(static_cast<std::int64_t>(report.epochs.size())) +
                                    (report.epochs.size() == 1 ? " epoch" : " epochs"));
  }
  card(bytes_text(report.process_peak), "peak memory of the process");
  return text + "</div>\n";
}

}  // namespace

std::string metric_text(const Metric& metric) {
  return metric.unit == Metric::Unit::fraction ? cell_text("%.1f %%", 100 * metric.value)
                                               : cell_text(metric.value < 1e6 ? "%.1f" : "%.3e", metric.value);
}

std::string loss_text(double loss) { return cell_text(std::abs(loss) < 1e6 ? "%.4f" : "%.4e", loss); }

Chart::Series thinned(const Chart::Series& series, std::size_t most) {
  const std::size_t together = series.y.empty() ? 1 : (series.y.size() - 1) / most + 1;
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

std::string html(const TrainingReport& report) {
  const auto titled = [](const char* title, const std::string& content) {
    return std::string("<section><h2>") + title + "</h2>\n" + content + "</section>\n";
  };
  const std::string memory =
      fact_table({{"parameters", count_text(report.parameters) + " numbers, " +
                                     bytes_text(report.parameters * static_cast<std::int64_t>(sizeof(float)))},
                  {"largest minibatch", bytes_text(report.minibatch_peak)},
                  {"process, with data", bytes_text(report.process_peak)}});
  const std::string body =
      "<h1>" + escaped(report.model) + "</h1>\n<p>" + escaped(report.about) + "</p>\n" + cards(report) +
      "<div class=\"charts\">\n" + loss_chart(report) + metric_charts(report) + minibatch_chart(report) +
      throughput_chart(report) + time_chart(report) + width_chart(report) + "</div>\n" + metric_note(report) +
      titled("Epochs", epoch_table(report)) + operator_section(report) + group_section(report) +
      "<div class=\"tables\">\n<div>\n" + titled("Batches", fact_table(batch_table(report))) +
      titled("Memory, at most", memory) + titled("Machine", fact_table(report.machine)) + "</div>\n<div>\n" +
      titled("Flags", "<p>Those with * were given.</p>\n" + fact_table(report.flags)) + "</div>\n</div>\n";
  return page("windrow: " + report.model, body);
}

}  // namespace windrow::program
