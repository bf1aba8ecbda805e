#include "machine.h"

#include <dnnl.h>
#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <latch>
#include <limits>
#include <numeric>
#include <thread>
#include <vector>

#include "windrow/ops/matrix.h"

extern "C" void omp_set_num_threads(int);

namespace windrow::perf {
namespace {

struct Shape {
  dnnl_dim_t rows, width, inner;

  double flops() const { return 2.0 * static_cast<double>(rows * width * inner); }
};

/// Square products, and the products of batched cells: many rows times a matrix of parameters. All matrices have the
/// row strides that the runtime uses, which are faster.
constexpr Shape shapes[] = {{192, 192, 192}, {384, 384, 384}, {512, 512, 512},  {1024, 1024, 1024}, {256, 512, 256},
                            {256, 768, 512}, {512, 768, 256}, {1024, 768, 512}, {256, 1280, 512},   {512, 1024, 256}};
constexpr double seconds_of_a_try = 0.05;

/// The total GFLOP/s of all threads in products of that shape, measured for about `seconds`. All threads start
/// together.
double measure(const Shape& shape, int threads, double seconds) {
  const auto size = [](dnnl_dim_t rows, dnnl_dim_t width) {
    return static_cast<std::size_t>(rows * row_stride(width));
  };
  std::latch warm(threads), go(1);
  std::vector<double> rates(static_cast<std::size_t>(threads));
  const auto multiply = [&](double& rate) {
    omp_set_num_threads(1);
    const std::vector<float> a(size(shape.rows, shape.inner), 0.5f), b(size(shape.inner, shape.width), 0.25f);
    std::vector<float> c(size(shape.rows, shape.width));
    const auto once = [&] {
      dnnl_sgemm('N', 'N', shape.rows, shape.width, shape.inner, 1, a.data(), row_stride(shape.inner), b.data(),
                 row_stride(shape.width), 0, c.data(), row_stride(shape.width));
    };
    once();
    warm.count_down();
    go.wait();
    const auto began = std::chrono::steady_clock::now();
    std::chrono::duration<double> took{};
    int times = 0;
    for (; took.count() < seconds; ++times) {
      once();
      took = std::chrono::steady_clock::now() - began;
    }
    rate = shape.flops() * times / took.count() / 1e9;
  };
  std::vector<std::jthread> running;
  try {
    for (double& rate : rates) running.emplace_back([&] { multiply(rate); });
    warm.wait();
  } catch (...) {
    go.count_down();  // threads that have started wait for it
    throw;
  }
  go.count_down();
  running.clear();
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

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

void GemmPeak::sample() {
  const Shape* best = nullptr;
  double most = 0;
  const auto measure_one = [&](const Shape& shape) {
    const double rate = measure(shape, threads_, seconds_of_a_try);
    if (rate > most) {
      most = rate;
      best = &shape;
    }
  };
  for (const Shape& shape : shapes) measure_one(shape);
  for (int again = 0; again < 10; ++again) measure_one(*best);
  best_ = std::max(best_, most);
}

double peak_rss_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

}  // namespace windrow::perf
