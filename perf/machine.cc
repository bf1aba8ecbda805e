#include "machine.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <limits>
#include <thread>
#include <vector>

namespace windrow::perf {
namespace {

/// Two of the cores that this process may use; empty if there are fewer than two.
std::vector<int> two_cores() {
  cpu_set_t allowed;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE && cores.size() < 2; ++core) {
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  }
  if (cores.size() < 2) cores.clear();
  return cores;
}

void stay_on(int core) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

}  // namespace

double round_trip_ns() {
  constexpr int trips = 300;
  std::array<double, 7> rounds;
  const std::vector<int> cores = two_cores();
  if (cores.empty()) return std::numeric_limits<double>::quiet_NaN();
  constexpr int all = trips * static_cast<int>(rounds.size());
  alignas(64) std::atomic<int> turn{0};  // even: it is the turn of `ask`
  const auto answer = [&] {
    stay_on(cores[1]);
    for (int i = 0; i < all; ++i) {
      while (turn.load() != 2 * i + 1) {
      }
      turn = 2 * i + 2;
    }
  };
  const auto ask = [&] {
    stay_on(cores[0]);
    int next = 0;
    for (double& round : rounds) {
      const auto began = std::chrono::steady_clock::now();
      for (int i = 0; i < trips; ++i) {
        turn = ++next;
        while (turn.load() != next + 1) {
        }
        ++next;
      }
      round = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - began).count() / trips;
    }
  };
  {
    // Both run on new threads, so that the affinity of the calling thread does not change. The first to start waits for
    // the other.
    std::jthread asks(ask);
    try {
      std::jthread answers(answer);
    } catch (const std::system_error&) {
      answer();
      throw;
    }
  }
  std::nth_element(rounds.begin(), rounds.begin() + rounds.size() / 2, rounds.end());
  return rounds[rounds.size() / 2];
}

double peak_rss_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

}  // namespace windrow::perf
