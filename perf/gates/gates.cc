// The program `windrow-gates` runs ops on the engine in such a way that their cost can be counted to the instruction.
// scripts/gates runs it and counts. It measures no times.
//
//   windrow-gates OPS PATTERN... [--worse malloc|lock|instructions|bytes]
//
// For each pattern, the program runs OPS ops, and then twice as many. All ops of a run are pushed while an op blocks
// the only worker, and they run while the pushing thread sleeps. So only one thread runs at any time, and the
// difference of the two runs is the cost of OPS ops. Each counted run is one call of windrow_gates_counted, in the
// order of the patterns. `--worse` adds work for each op, for example a malloc, to show that the counts detect it.
#include <malloc.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "engine/system.h"
#include "engine/systems.h"
#include "windrow/engine/error.h"

namespace windrow::perf {
namespace {

using Worse = void (*)();

std::atomic<int> shared_count;
std::vector<std::unique_ptr<char[]>> kept;

void do_nothing() {}
void call_malloc() {
  void* volatile memory = std::malloc(8);  // volatile, so that the call is not optimised away
  std::free(memory);
}
void lock_once() { shared_count.fetch_add(1, std::memory_order_relaxed); }
void count_far() {
  volatile int count = 0;
  while (count < 500) count = count + 1;
}
void keep_bytes() { kept.push_back(std::make_unique<char[]>(48)); }

/// Returns null for an unknown name.
Worse worse_named(const std::string& name) {
  if (name == "malloc") return call_malloc;
  if (name == "lock") return lock_once;
  if (name == "instructions") return count_far;
  if (name == "bytes") return keep_bytes;
  return nullptr;
}

struct CountedRun {
  const Pattern& pattern;
  std::int64_t ops;
  Worse worse;
};

/// Time for the worker to fall asleep after its last op.
constexpr auto rest = std::chrono::milliseconds(20);

std::int64_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<std::int64_t>(info.uordblks + info.hblkhd);
}

/// Returns the growth of the heap, in bytes, once all ops have been pushed.
std::int64_t push_and_run(System& system, const CountedRun& run) {
  std::vector<Counter> counters(static_cast<std::size_t>(run.pattern.counters));
  const std::int64_t before = heap_bytes();
  std::int64_t grown = 0;
  const auto held = [&] {
    for (std::int64_t i = 0; i < run.ops; ++i) run.worse();
    grown = heap_bytes() - before;
    kept.clear();
  };
  system.run({.pattern = run.pattern, .ops = run.ops, .counters = counters.data(), .held = held});
  std::this_thread::sleep_for(rest);
  return grown;
}

std::unique_ptr<System> system_for(const CountedRun& run) {
  const SystemKind& kind = run.pattern.values     ? windrow_values_system
                           : run.pattern.pointers ? windrow_pointers_system
                                                  : windrow_system;
  return kind.make(run.pattern, {.workers = 1, .pending_ops = static_cast<std::uint64_t>(4 * run.ops)});
}

/// Callgrind finds the function by this name.
extern "C" [[gnu::noinline]] void windrow_gates_counted(System& system, const CountedRun& run) {
  push_and_run(system, run);
}

void print_bytes(const CountedRun& once, const CountedRun& twice) {
  if (once.pattern.captures) return;  // their memory outlives an engine, so the second run would use that of the first
  const auto grown = [](const CountedRun& run) { return push_and_run(*system_for(run), run); };
  const auto bytes = static_cast<double>(grown(twice) - grown(once)) / static_cast<double>(once.ops);
  std::printf("%s bytes %.3f\n", once.pattern.name.c_str(), bytes);
}

void measure(const Pattern& pattern, std::int64_t ops, Worse worse) {
  const CountedRun once{pattern, ops, worse}, twice{pattern, 2 * ops, worse};
  print_bytes(once, twice);
  const std::unique_ptr<System> system = system_for(twice);
  // Warm up, so that records, caches and graphs exist.
  push_and_run(*system, twice);
  push_and_run(*system, once);
  windrow_gates_counted(*system, once);
  windrow_gates_counted(*system, twice);
}

int run(std::vector<std::string> arguments) {
  Worse worse = do_nothing;
  if (arguments.size() > 2 && arguments[arguments.size() - 2] == "--worse") {
    worse = worse_named(arguments.back());
    arguments.resize(arguments.size() - 2);
  }
  const std::int64_t ops = arguments.empty() ? 0 : std::atoll(arguments[0].c_str());
  if (ops < 1 || arguments.size() < 2 || worse == nullptr) {
    throw MisuseError("expected OPS PATTERN... [--worse malloc|lock|instructions|bytes]");
  }
  std::printf("compiler %s\n", WINDROW_COMPILER);
  for (std::size_t i = 1; i < arguments.size(); ++i) measure(Pattern::counted(arguments[i]), ops, worse);
  return 0;
}

}  // namespace
}  // namespace windrow::perf

int main(int argc, char** argv) {
  try {
    return windrow::perf::run({argv + 1, argv + argc});
  } catch (const std::exception& e) {
    std::fprintf(stderr, "windrow-gates: %s\n", e.what());
    return 2;
  }
}
