#include "pattern.h"

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string_view>

#include "windrow/engine/error.h"

namespace windrow::perf {
namespace {

Task mutating(int cell) { return {.mutates = cell, .counts = cell}; }

void add_read(Task& task, int cell) { task.reads[static_cast<std::size_t>(task.read_count++)] = cell; }

Pattern chain() { return {"A", 1, 1, {mutating(0)}}; }

Pattern independent(int cells = 1024) {
  Pattern pattern{"B", cells, cells, {}};
  for (int i = 0; i < pattern.cells; ++i) pattern.tasks.push_back(mutating(i));
  return pattern;
}

Pattern readers() {
  constexpr int count = 64;
  Pattern pattern{"C", 1, 1 + count, {mutating(0)}};
  for (int i = 1; i <= count; ++i) {
    Task task{.counts = i};
    add_read(task, 0);
    pattern.tasks.push_back(task);
  }
  return pattern;
}

/// Two rows of cells. Ops read one row and write the other, in alternation.
Pattern stencil(int width) {
  if (width < 2) throw MisuseError("a stencil of width " + std::to_string(width) + "; expected 2 or more");
  Pattern pattern{.name = "D", .cells = 2 * width, .counters = 2 * width, .tasks = {}, .width = width};
  for (int row = 0; row < 2; ++row) {
    for (int i = 0; i < width; ++i) {
      Task task = mutating((1 - row) * width + i);
      for (int j = std::max(i - 1, 0); j <= std::min(i + 1, width - 1); ++j) add_read(task, row * width + j);
      pattern.tasks.push_back(task);
    }
  }
  return pattern;
}

Pattern random_dag() {
  Pattern pattern{"E", 256, 256, {}};
  std::mt19937 random(1);
  const auto draw = [&] { return static_cast<int>(random() % 256); };
  for (int i = 0; i < 4096; ++i) {
    Task task = mutating(draw());
    while (task.read_count < 2) {
      const int cell = draw();
      if (cell != task.mutates && cell != task.reads[0]) add_read(task, cell);
    }
    pattern.tasks.push_back(task);
  }
  return pattern;
}

Pattern as_replayed(Pattern pattern) {
  pattern.name = "F" + pattern.name;
  pattern.replayed = true;
  return pattern;
}

}  // namespace

const std::vector<std::string>& Pattern::names() {
  static const std::vector<std::string> all = {"A", "B", "C", "D", "E", "FA", "FD"};
  return all;
}

Pattern Pattern::named(const std::string& name, int width) {
  if (name == "A") return chain();
  if (name == "B") return independent();
  if (name == "C") return readers();
  if (name == "D") return stencil(width);
  if (name == "E") return random_dag();
  if (name == "FA") return as_replayed(chain());
  if (name == "FD") return as_replayed(stencil(width));
  throw MisuseError("pattern '" + name + "'; expected A, B, C, D, E, FA or FD");
}

Pattern Pattern::counted(const std::string& name) {
  for (const auto& [ending, flag] : {std::pair<std::string_view, bool Pattern::*>{"-declared", &Pattern::declared},
                                     {"-captures", &Pattern::captures},
                                     {"-beside-lane", &Pattern::beside_lane},
                                     {"-values", &Pattern::values},
                                     {"-pointers", &Pattern::pointers}}) {
    if (!name.ends_with(ending)) continue;
    Pattern pattern = counted(name.substr(0, name.size() - ending.size()));
    pattern.name = name;
    pattern.*flag = true;
    return pattern;
  }
  const std::size_t digits = name.find_first_of("0123456789");
  if (digits == std::string::npos) return named(name);
  const bool replayed = name.starts_with('F');
  const std::string base = name.substr(replayed, digits - replayed);
  const int ops = std::atoi(name.c_str() + digits);
  Pattern pattern = base == "B" ? independent(ops) : named(base, ops / 2);
  pattern.name = name;
  pattern.replayed = replayed;
  pattern.graph_ops = replayed ? ops : 0;
  return pattern;
}

}  // namespace windrow::perf
