// Groups within a process: the cost of a call, and the bandwidth of sums.
#include <thread>

#include "batching/interleaved_runs.h"
#include "comm/comm.h"
#include "peak.h"
#include "windrow/comm/local.h"

namespace windrow::perf {
namespace {

/// Two members on one engine.
struct Pair {
  explicit Pair(Index elements, int tensors = 1) {
    for (int i = 0; i < tensors; ++i) {
      for (auto* of : {&first, &second}) {
        of->push_back(Tensor(of == &first ? group[0].device() : group[1].device(), 1, elements));
        of->back().set(std::vector<float>(static_cast<std::size_t>(elements), 0.0f));
      }
    }
    engine.wait_all();
  }
  void sum(std::size_t i) const {
    group[0].all_reduce(first[i]);
    group[1].all_reduce(second[i]);
  }

  Engine engine;
  const LocalGroup group{std::vector<Device>{host_device(engine), host_device(engine)}};
  std::vector<Tensor> first, second;
};

double microseconds_of_a_call() {
  constexpr int tensors = 64, rounds = 100;
  const Pair pair(call_bytes / sizeof(float), tensors);
  const auto round = [&] {
    for (std::size_t i = 0; i < tensors; ++i) pair.sum(i);
  };
  round();
  pair.group[0].device().engine->wait_all();
  const double began = clock_seconds();
  for (int i = 0; i < rounds; ++i) round();
  pair.group[0].device().engine->wait_all();
  return (clock_seconds() - began) / (tensors * rounds) * 1e6;
}

}  // namespace

void measure_local(const CommOptions& options, const Report& report) {
  constexpr Index elements = Index{1} << 24;  // more than caches hold
  const int threads = default_workers();
  const Pair pair(elements);
  program::Bandwidth memory(threads, static_cast<std::size_t>(elements));
  std::vector<double> calls, sums, peaks;
  for (int i = 0; i < options.repetitions; ++i) {
    calls.push_back(microseconds_of_a_call());
    peaks.push_back(memory.measure(0.3));
    const double began = clock_seconds();
    int rounds = 0;
    for (; clock_seconds() < began + 0.3; ++rounds) {
      pair.sum(0);
      pair.group[0].device().engine->wait_all();
    }
    // Both tensors are read and written once.
    sums.push_back(4.0 * sizeof(float) * elements * rounds / (clock_seconds() - began) / 1e9);
  }
  report({{"measurement", "local"}, {"members", 2}, {"bytes", call_bytes}, {"us_per_call", median_of(calls)}});
  report({{"measurement", "sums"},
          {"threads", threads},
          {"gb_per_s", median_of(sums)},
          {"memory_gb_per_s", median_of(peaks)},
          {"share", median_of(sums) / median_of(peaks)}});
}

}  // namespace windrow::perf
