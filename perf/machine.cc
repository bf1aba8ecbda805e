#include "machine.h"

#include <dnnl.h>
#include <sys/resource.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <thread>
#include <vector>

extern "C" void omp_set_num_threads(int);

namespace windrow::perf {
namespace {

struct Shape {
  dnnl_dim_t rows, width, inner;

  double flops() const { return 2.0 * static_cast<double>(rows * width * inner); }
};

/// Square ones, and those of batched cells: many rows times a matrix of parameters.
constexpr Shape shapes[] = {{192, 192, 192}, {384, 384, 384}, {512, 512, 512},  {1024, 1024, 1024}, {256, 512, 256},
                            {256, 768, 512}, {512, 768, 256}, {1024, 768, 512}, {256, 1280, 512},   {512, 1024, 256}};
constexpr double flops_of_a_try = 1e9;  // about 10 ms of a core

/// Multiplies until the try is over; all threads begin together.
void multiply(const Shape& shape, std::barrier<>& together) {
  omp_set_num_threads(1);
  const auto size = [](dnnl_dim_t rows, dnnl_dim_t width) { return static_cast<std::size_t>(rows * width); };
  std::vector<float> a(size(shape.rows, shape.inner), 0.5f), b(size(shape.inner, shape.width), 0.25f);
  std::vector<float> c(size(shape.rows, shape.width));
  const auto once = [&] {
    dnnl_sgemm('N', 'N', shape.rows, shape.width, shape.inner, 1, a.data(), shape.inner, b.data(), shape.width, 0,
               c.data(), shape.width);
  };
  once();
  const auto times = static_cast<int>(flops_of_a_try / shape.flops()) + 1;
  for (int again = 0; again < 3; ++again) {
    together.arrive_and_wait();
    for (int i = 0; i < times; ++i) once();
    together.arrive_and_wait();
  }
}

}  // namespace

void GemmPeak::sample() {
  for (const Shape& shape : shapes) {
    std::barrier together(threads_ + 1);
    std::vector<std::jthread> threads;
    for (int t = 0; t < threads_; ++t) threads.emplace_back([&] { multiply(shape, together); });
    const auto times = static_cast<int>(flops_of_a_try / shape.flops()) + 1;
    for (int again = 0; again < 3; ++again) {
      together.arrive_and_wait();
      const auto began = std::chrono::steady_clock::now();
      together.arrive_and_wait();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
      best_ = std::max(best_, shape.flops() * times * threads_ / took.count() / 1e9);
    }
  }
}

double peak_rss_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

}  // namespace windrow::perf
