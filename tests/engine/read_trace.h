// Reads a saved trace back for tests, and checks the properties that every trace must have.
#pragma once

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "support.h"
#include "tests/folder.h"

namespace windrow::testing {

/// From and to ops, by their names.
using Arrows = std::set<std::pair<std::string, std::string>>;

struct ReadTrace {
  /// Times are in nanoseconds.
  struct Slice {
    std::string name, category, outcome, pushed_at, op, lane, changes;
    int track = 0;
    std::int64_t begin = 0, end = 0;
  };
  std::vector<Slice> ops;     ///< of category "op"
  std::vector<Slice> others;  ///< waits, calls of asynchronous ops, and work of devices
  Arrows arrows;              ///< ops with equal names are not distinguished
  std::map<int, std::string> tracks;
  struct Count {
    std::int64_t at = 0;
    double count = 0;
  };
  std::map<std::string, std::vector<Count>> counters;
  double left_out = 0;

  const Slice& op(const std::string& name) const {
    const auto found = std::find_if(ops.begin(), ops.end(), [&](const Slice& s) { return s.name == name; });
    if (found == ops.end()) throw std::runtime_error("no op '" + name + "' in the trace");
    return *found;
  }
  std::string track_of(const std::string& name) const { return tracks.at(op(name).track); }
};

using nlohmann::json;

inline std::int64_t nanoseconds_of(const json& microseconds) { return std::llround(1000 * microseconds.get<double>()); }

/// Each arrow has a begin and an end. Each of them lies within the op whose slice precedes it in the file.
class ArrowReader {
 public:
  void add(const json& event, const ReadTrace::Slice& op) {
    const std::int64_t at = nanoseconds_of(event.at("ts"));
    EXPECT_EQ(event.at("tid"), op.track);
    EXPECT_LE(op.begin, at);
    EXPECT_LE(at, op.end);
    auto& ends = event.at("ph") == "s" ? from_ : to_;
    EXPECT_TRUE(ends.emplace(event.at("id"), End{op.name, op.op, at}).second) << "an end of an arrow comes twice";
  }
  Arrows take() {
    EXPECT_EQ(from_.size(), to_.size());
    Arrows arrows, numbers;
    for (const auto& [id, from] : from_) {
      const auto to = to_.find(id);
      if (to == to_.end()) {
        ADD_FAILURE() << "an arrow from '" << from.op << "' leads nowhere";
        continue;
      }
      EXPECT_LE(from.at, to->second.at) << from.op << " -> " << to->second.op;
      EXPECT_TRUE(numbers.emplace(from.number, to->second.number).second)
          << from.op << " -> " << to->second.op << " twice";
      arrows.emplace(from.op, to->second.op);
    }
    return arrows;
  }

 private:
  struct End {
    std::string op, number;
    std::int64_t at;
  };
  std::map<double, End> from_, to_;
};

/// Whether `slice` lies within a wait of `below`.
inline bool is_above_a_wait(const ReadTrace& trace, const ReadTrace::Slice& slice, const ReadTrace::Slice& below) {
  return std::any_of(trace.others.begin(), trace.others.end(), [&](const auto& wait) {
    return wait.category == "wait" && wait.op == below.op && wait.begin <= slice.begin && slice.end <= wait.end;
  });
}

/// Expects that one op at a time runs on each track, except for ops that run while another op waits.
inline void expect_no_overlap(const ReadTrace& trace) {
  std::map<int, std::vector<ReadTrace::Slice>> by_track;
  for (const auto& op : trace.ops) by_track[op.track].push_back(op);
  for (const auto& slice : trace.others) {
    if (slice.category == "call") by_track[slice.track].push_back(slice);
  }
  for (auto& [track, ops] : by_track) {
    EXPECT_TRUE(trace.tracks.contains(track)) << "a track without a name";
    std::sort(ops.begin(), ops.end(),
              [](const auto& a, const auto& b) { return std::pair(a.begin, -a.end) < std::pair(b.begin, -b.end); });
    std::vector<ReadTrace::Slice> stack;
    for (const auto& op : ops) {
      while (!stack.empty() && stack.back().end <= op.begin) stack.pop_back();
      if (!stack.empty()) {
        EXPECT_TRUE(is_above_a_wait(trace, op, stack.back())) << stack.back().name << " and " << op.name << " overlap";
      }
      stack.push_back(op);
    }
  }
}

inline ReadTrace::Slice slice_of(const json& event) {
  const json& args = event.at("args");
  const std::int64_t begin = nanoseconds_of(event.at("ts")), length = nanoseconds_of(event.at("dur"));
  EXPECT_GE(begin, 0);
  EXPECT_GE(length, 0);
  return {.name = event.at("name"),
          .category = event.at("cat"),
          .outcome = args.value("outcome", ""),
          .pushed_at = args.value("pushed_at", ""),
          .op = args.value("op", ""),
          .lane = args.value("lane", ""),
          .changes = args.value("changes", ""),
          .track = event.at("tid"),
          .begin = begin,
          .end = begin + length};
}

inline ReadTrace read_trace_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << "no file " << path;
  const json all = json::parse(in);
  ReadTrace trace;
  ArrowReader arrows;
  std::set<std::string> numbers;
  for (const json& event : all.at("traceEvents")) {
    const std::string phase = event.at("ph"), name = event.value("name", "");
    if (phase == "X") {
      auto& slices = event.at("cat") == "op" ? trace.ops : trace.others;
      slices.push_back(slice_of(event));
      if (slices.back().category == "op") {
        EXPECT_TRUE(numbers.insert(slices.back().op).second) << "an op comes twice";
      }
    } else if (phase == "s" || phase == "f") {
      arrows.add(event, trace.ops.back());
    } else if (phase == "C") {
      trace.counters[name].push_back({nanoseconds_of(event.at("ts")), event.at("args").at("value")});
    } else if (name == "thread_name") {
      trace.tracks.emplace(event.at("tid"), event.at("args").at("name"));
    }
  }
  trace.arrows = arrows.take();
  trace.left_out = all.at("otherData").at("left_out");
  EXPECT_EQ(all.at("otherData").at("ops"), trace.ops.size());
  expect_no_overlap(trace);
  return trace;
}

/// Saves the engine's trace and reads it back.
inline ReadTrace read_trace(Engine& engine) {
  const TestFolder folder;
  engine.trace().save(folder.file("run.json"));
  EXPECT_EQ(folder.files(), std::set<std::string>{"run.json"}) << "it leaves something behind";
  return read_trace_file(folder.file("run.json"));
}

/// The trace of all that is pending, after its end.
inline ReadTrace end_trace(Engine& engine) {
  engine.wait_all();
  engine.trace().stop();
  return read_trace(engine);
}

/// Ops run on the threads that push them.
class SerialTrace : public ::testing::Test {
 protected:
  Engine engine{{.policy = Policy::serial}};
  const TestFolder folder;
};

}  // namespace windrow::testing
