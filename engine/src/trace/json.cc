// A trace as JSON.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <locale>
#include <nlohmann/json.hpp>
#include <system_error>

#include "lane/lanes.h"
#include "process/environment.h"
#include "trace/graph.h"

namespace windrow {
namespace {

/// The text as a JSON string literal. Bytes that are not UTF-8 become the replacement character.
std::string quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Microseconds with three decimals.
std::string microseconds(std::int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%lld.%03d", static_cast<long long>(ns / 1000), static_cast<int>(ns % 1000));
  return text;
}

std::string_view to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::ran:
      return "ran";
    case Outcome::failed:
      return "failed";
    case Outcome::cancelled:
      return "cancelled";
    case Outcome::skipped:
      return "skipped";
  }
  return "";
}

std::string push_site(const OpInfo& info) {
  return std::string(info.pushed_at.file_name()) + ":" + std::to_string(info.pushed_at.line());
}

/// The dependences to draw: all of them, or for each op the one for which it waited longest.
std::vector<TraceGraph::Dependence> arrows_of(const TraceGraph& graph) {
  if (graph.all_arrows) return graph.dependences;
  constexpr std::uint32_t unknown = ~std::uint32_t{0};
  std::vector<std::uint32_t> last(graph.ops.size(), unknown);
  for (const auto& [from, to] : graph.dependences) {
    if (last[to] == unknown || graph.ops[last[to]].end <= graph.ops[from].end) last[to] = from;
  }
  std::vector<TraceGraph::Dependence> arrows;
  for (std::uint32_t to = 0; to < last.size(); ++to) {
    if (last[to] != unknown) arrows.push_back({last[to], to});
  }
  std::sort(arrows.begin(), arrows.end());
  return arrows;
}

class JsonWriter {
 public:
  JsonWriter(std::ostream& out, const TraceGraph& graph, std::uint32_t engine)
      : out_(out), graph_(graph), engine_(std::to_string(engine)) {}

  void write() {
    out_ << "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"ops\":" << graph_.ops.size()
         << ",\"left_out\":" << graph_.left_out << ",\"start_unix_us\":"
         << std::chrono::duration_cast<std::chrono::microseconds>(graph_.start.time_since_epoch()).count();
    if (const auto process = process_number()) out_ << ",\"process\":" << *process;
    out_ << "},\"traceEvents\":[\n";
    write_names();
    for (std::uint32_t i = 0; i < graph_.ops.size(); ++i) write_op(i);
    for (const TraceGraph::Span& span : graph_.spans) write_span(span);
    for (const TraceGraph::Work& work : graph_.work) {
      event("X", work.name, work.track) << ",\"cat\":\"device\",\"ts\":" << microseconds(work.begin)
                                        << ",\"dur\":" << microseconds(work.end - work.begin) << ",\"args\":{}}";
    }
    for (const TraceGraph::Count& count : graph_.counts) {
      event("C", graph_.counters[count.counter])
          << ",\"ts\":" << microseconds(count.at) << ",\"args\":{\"value\":" << count.value << "}}";
    }
    if (graph_.left_out > 0) write_end();
    out_ << "\n]}\n";
  }

 private:
  /// Writes the beginning that all events share. The caller continues with a comma, and ends the object.
  std::ostream& event(const char* phase, std::string_view name) {
    out_ << (first_ ? "" : ",\n") << "{\"ph\":\"" << phase << "\",\"name\":" << quoted(name) << ",\"pid\":" << engine_;
    first_ = false;
    return out_;
  }
  std::ostream& event(const char* phase, std::string_view name, std::uint32_t track) {
    return event(phase, name) << ",\"tid\":" << track + 1;
  }

  void write_names() {
    std::string name = "windrow engine " + engine_;
    if (const auto process = process_number()) name = "rank " + std::to_string(*process) + ", " + name;
    event("M", "process_name") << ",\"args\":{\"name\":" << quoted(name) << "}}";
    for (std::uint32_t i = 0; i < graph_.tracks.size(); ++i) {
      event("M", "thread_name", i) << ",\"args\":{\"name\":" << quoted(graph_.tracks[i].name) << "}}";
      event("M", "thread_sort_index", i) << ",\"args\":{\"sort_index\":" << i << "}}";
    }
  }

  /// Writes the op, the arrows that end at it, and those that begin there: a viewer attaches an arrow to the event that
  /// it last saw on the track.
  void write_op(std::uint32_t index) {
    const TraceGraph::Op& op = graph_.ops[index];
    event("X", op.info->name, op.track) << ",\"cat\":\"op\",\"ts\":" << microseconds(op.begin)
                                        << ",\"dur\":" << microseconds(op.end - op.begin) << ",\"args\":{\"op\":\""
                                        << op.id << "\",\"pushed_at\":" << quoted(push_site(*op.info))
                                        << ",\"outcome\":\"" << to_string(op.outcome)
                                        << "\",\"lane\":" << quoted(op.info->lane->host.name);
    if (!op.changes.empty()) out_ << ",\"changes\":" << quoted(op.changes);
    out_ << "}}";
    for (; arrived_ < arrivals_.size() && arrows_[arrivals_[arrived_]].to == index; ++arrived_) {
      write_arrow("f", arrivals_[arrived_], op.track, op.begin);
    }
    for (; left_ < arrows_.size() && arrows_[left_].from == index; ++left_) {
      // Inside the op and not at its end, where the next op may begin.
      const std::int64_t at = std::min(op.end - 1, graph_.ops[arrows_[left_].to].begin);
      write_arrow("s", left_, op.track, std::max(op.begin, at));
    }
  }

  void write_arrow(const char* phase, std::size_t id, std::uint32_t track, std::int64_t at) {
    event(phase, "dependency", track) << ",\"cat\":\"dependency\",\"id\":" << id << ",\"ts\":" << microseconds(at)
                                      << (*phase == 'f' ? ",\"bp\":\"e\"}" : "}");
  }

  void write_span(const TraceGraph::Span& span) {
    const bool waits = span.kind == TraceRecord::Kind::wait_inside;
    event("X", span.info->name, span.track)
        << ",\"cat\":" << (waits ? "\"wait\"" : "\"call\"") << ",\"ts\":" << microseconds(span.begin)
        << ",\"dur\":" << microseconds(span.end - span.begin) << ",\"args\":{\"op\":\"" << span.id << "\",\""
        << (waits ? "from" : "pushed_at") << "\":" << quoted(push_site(*span.info)) << "}}";
  }

  /// A mark across all tracks at the end of the recorded ops.
  void write_end() {
    std::int64_t end = 0;
    for (const TraceGraph::Op& op : graph_.ops) end = std::max(end, op.end);
    event("i", "the trace was full: " + std::to_string(graph_.left_out) + " more ops are left out", 0)
        << ",\"s\":\"g\",\"ts\":" << microseconds(end) << "}";
  }

  /// The arrows, sorted by the op that they lead to.
  static std::vector<std::uint32_t> by_target(const std::vector<TraceGraph::Dependence>& arrows) {
    std::vector<std::uint32_t> order(arrows.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return arrows[a].to < arrows[b].to; });
    return order;
  }

  std::ostream& out_;
  const TraceGraph& graph_;
  const std::string engine_;
  const std::vector<TraceGraph::Dependence> arrows_ = arrows_of(graph_);
  const std::vector<std::uint32_t> arrivals_ = by_target(arrows_);
  std::size_t arrived_ = 0, left_ = 0;  // arrows written so far
  bool first_ = true;
};

}  // namespace

void write_json(const std::string& path, const TraceGraph& graph, std::uint32_t engine) {
  static std::atomic<unsigned> files{0};
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();  // distinguishes processes
  const std::string part = path + "." + std::to_string(now) + "." + std::to_string(++files) + ".part";
  const auto fail = [&](int reason) {
    throw Error("cannot write the trace '" + path + "': " + std::generic_category().message(reason));
  };
  const auto write_to = [&](const std::string& file) {
    errno = 0;
    std::ofstream out(file, std::ios::binary);
    if (!out) fail(errno);
    out.imbue(std::locale::classic());  // whatever locale the program has, numbers have no separators
    JsonWriter(out, graph, engine).write();
    out.close();
    if (!out) fail(errno);
  };
  struct stat there {};
  if (::stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) return write_to(path);
  struct Remover {
    const char* part;
    ~Remover() { std::remove(part); }  // needs no memory; finds no file if all went well
  } remover{part.c_str()};
  write_to(part);
  if (std::rename(part.c_str(), path.c_str()) != 0) fail(errno);
}

}  // namespace windrow
