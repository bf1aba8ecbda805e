// The summary of a trace: times by the names of ops, busy threads, the critical path.
#include <algorithm>
#include <cstdio>
#include <map>
#include <ostream>
#include <unordered_set>

#include "trace/graph.h"

namespace windrow {
namespace {

using std::chrono::nanoseconds;
using SummaryRow = TraceSummary::Row;

/// The time that `percent` of all times do not exceed. `times` is sorted and not empty.
nanoseconds percentile(const std::vector<std::int64_t>& times, int percent) {
  const std::size_t rank = (times.size() * static_cast<std::size_t>(percent) + 99) / 100;
  return nanoseconds(times[std::max<std::size_t>(rank, 1) - 1]);
}

SummaryRow row_of(std::string_view name, std::vector<std::int64_t>& times) {
  std::sort(times.begin(), times.end());
  SummaryRow row{.name = std::string(name), .count = times.size()};
  for (const std::int64_t time : times) row.total += nanoseconds(time);
  row.mean = row.total / static_cast<std::int64_t>(times.size());
  row.p50 = percentile(times, 50);
  row.p99 = percentile(times, 99);
  return row;
}

/// Durations by name; the longest total comes first.
using TimesByName = std::map<std::string_view, std::vector<std::int64_t>>;
std::vector<SummaryRow> rows_of(TimesByName times) {
  std::vector<SummaryRow> rows;
  for (auto& [name, of_name] : times) rows.push_back(row_of(name, of_name));
  std::stable_sort(rows.begin(), rows.end(),
                   [](const SummaryRow& a, const SummaryRow& b) { return a.total > b.total; });
  return rows;
}

std::vector<SummaryRow> rows_of(const TraceGraph& graph, const std::vector<std::uint32_t>& ops) {
  TimesByName times;
  for (const std::uint32_t i : ops) times[graph.ops[i].info->name].push_back(graph.ops[i].end - graph.ops[i].begin);
  return rows_of(std::move(times));
}

std::vector<SummaryRow> rows_of(const std::vector<TraceGraph::Work>& all) {
  TimesByName times;
  for (const TraceGraph::Work& work : all) times[work.name].push_back(work.end - work.begin);
  return rows_of(std::move(times));
}

std::vector<TraceSummary::Track> tracks_of(const TraceGraph& graph, nanoseconds length) {
  std::vector<TraceSummary::Track> tracks(graph.tracks.size());
  for (std::size_t i = 0; i < tracks.size(); ++i) tracks[i].name = graph.tracks[i].name;
  for (const TraceGraph::Op& op : graph.ops) {
    ++tracks[op.track].ops;
    tracks[op.track].busy += nanoseconds(op.end - op.begin);
  }
  // The work of a lane's device is done in order.
  for (const TraceGraph::Work& work : graph.work) {
    ++tracks[work.track].ops;
    tracks[work.track].busy += nanoseconds(work.end - work.begin);
  }
  std::unordered_set<OpId> seen;  // a wait counts only if its op does
  for (const TraceGraph::Op& op : graph.ops) seen.insert(op.id);
  for (const TraceGraph::Span& span : graph.spans) {
    const nanoseconds time(span.end - span.begin);
    if (span.kind == TraceRecord::Kind::call) tracks[span.track].busy += time;
    if (span.kind == TraceRecord::Kind::wait_inside && seen.contains(span.id)) tracks[span.track].busy -= time;
  }
  std::vector<TraceSummary::Track> result;
  for (std::size_t i = 0; i < tracks.size(); ++i) {
    if (graph.tracks[i].of_async_ops) continue;
    tracks[i].busy = std::max(tracks[i].busy, nanoseconds(0));
    if (length.count() > 0) {
      // The clock of a device may differ a little.
      tracks[i].utilisation =
          std::min(1.0, static_cast<double>(tracks[i].busy.count()) / static_cast<double>(length.count()));
    }
    result.push_back(std::move(tracks[i]));
  }
  return result;
}

/// The ops of a longest chain. Each op is visited after all ops that it depends on.
std::vector<std::uint32_t> critical_path(const TraceGraph& graph) {
  constexpr std::uint32_t nobody = ~std::uint32_t{0};
  const std::size_t count = graph.ops.size();
  std::vector<std::uint32_t> missing(count, 0), before(count, nobody), ready;
  std::vector<std::int64_t> ahead(count, 0);  // the length of the longest chain that leads to each op
  for (const TraceGraph::Dependence& d : graph.dependences) ++missing[d.to];
  for (std::uint32_t i = 0; i < count; ++i) {
    if (missing[i] == 0) ready.push_back(i);
  }
  std::uint32_t last = nobody;
  std::int64_t longest = -1;
  for (std::size_t next = 0; next < ready.size(); ++next) {
    const std::uint32_t op = ready[next];
    const std::int64_t through = ahead[op] + graph.ops[op].end - graph.ops[op].begin;
    if (through > longest) {
      longest = through;
      last = op;
    }
    auto d = std::lower_bound(graph.dependences.begin(), graph.dependences.end(), TraceGraph::Dependence{op, 0});
    for (; d != graph.dependences.end() && d->from == op; ++d) {
      if (before[d->to] == nobody || through > ahead[d->to]) {
        ahead[d->to] = through;
        before[d->to] = op;
      }
      if (--missing[d->to] == 0) ready.push_back(d->to);
    }
  }
  std::vector<std::uint32_t> path;
  for (; last != nobody; last = before[last]) path.push_back(last);
  return path;
}

/// A table of text whose columns are as wide as needed: the first is aligned to the left, the others to the right.
class TextTable {
 public:
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  std::string text() const {
    std::vector<std::size_t> width;
    for (const auto& row : rows_) {
      width.resize(std::max(width.size(), row.size()));
      for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], length(row[i]));
    }
    std::string text;
    for (const auto& row : rows_) {
      for (std::size_t i = 0; i < row.size(); ++i) {
        const std::string gap(width[i] - length(row[i]), ' ');
        text += i == 0 ? row[i] + (row.size() == 1 ? "" : gap) : "  " + gap + row[i];
      }
      text += '\n';
    }
    return text;
  }

 private:
  /// The number of characters of a UTF-8 text.
  static std::size_t length(const std::string& text) {
    return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
  }

  std::vector<std::vector<std::string>> rows_;
};

std::string formatted(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

/// The time in the unit that is easiest to read.
std::string readable(nanoseconds t) {
  const auto ns = static_cast<double>(t.count());
  if (ns < 1e3) return formatted("%.0f ns", ns);
  if (ns < 1e6) return formatted("%.2f us", ns / 1e3);
  if (ns < 1e9) return formatted("%.2f ms", ns / 1e6);
  return formatted("%.2f s", ns / 1e9);
}

void add_rows(TextTable& table, const std::string& title, const std::vector<SummaryRow>& rows) {
  table.add({title, "count", "total", "mean", "p50", "p99"});
  for (const SummaryRow& row : rows) {
    table.add({"  " + row.name, std::to_string(row.count), readable(row.total), readable(row.mean), readable(row.p50),
               readable(row.p99)});
  }
}

}  // namespace

TraceSummary summarise(const TraceGraph& graph) {
  TraceSummary summary{.left_out = graph.left_out};
  std::vector<std::uint32_t> all;
  std::int64_t last_end = 0;
  for (std::uint32_t i = 0; i < graph.ops.size(); ++i) {
    all.push_back(i);
    last_end = std::max(last_end, graph.ops[i].end);
    summary.failed += graph.ops[i].outcome == Outcome::failed;
    summary.cancelled += graph.ops[i].outcome == Outcome::cancelled;
    summary.skipped += graph.ops[i].outcome == Outcome::skipped;
  }
  for (const TraceGraph::Work& work : graph.work) last_end = std::max(last_end, work.end);
  // The work of a device begins after its op.
  if (!all.empty()) summary.length = nanoseconds(last_end - graph.ops.front().begin);
  summary.device_work = rows_of(graph.work);
  summary.ops = rows_of(graph, all);
  summary.tracks = tracks_of(graph, summary.length);
  summary.critical_ops = rows_of(graph, critical_path(graph));
  for (const SummaryRow& row : summary.critical_ops) summary.critical_path += row.total;
  return summary;
}

std::string to_string(const TraceSummary& summary) {
  std::uint64_t ops = 0;
  for (const SummaryRow& row : summary.ops) ops += row.count;
  std::string text = std::to_string(ops) + " ops in " + readable(summary.length) + ", " +
                     std::to_string(summary.failed) + " failed, " + std::to_string(summary.cancelled) + " cancelled, " +
                     std::to_string(summary.skipped) + " skipped";
  if (summary.left_out > 0) text += "; " + std::to_string(summary.left_out) + " more were left out";
  TextTable table;
  add_rows(table, "op", summary.ops);
  table.add({"lane or thread", "ops", "busy", "share"});
  for (const TraceSummary::Track& track : summary.tracks) {
    table.add({"  " + track.name, std::to_string(track.ops), readable(track.busy),
               formatted("%.1f %%", 100 * track.utilisation)});
  }
  if (!summary.device_work.empty()) add_rows(table, "work of devices", summary.device_work);
  add_rows(table, "critical path, " + readable(summary.critical_path), summary.critical_ops);
  return text + '\n' + table.text();
}

std::ostream& operator<<(std::ostream& out, const TraceSummary& summary) { return out << to_string(summary); }

}  // namespace windrow
