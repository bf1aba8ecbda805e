#include "program/output/peak.h"

#include <dnnl.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <latch>
#include <numeric>
#include <thread>
#include <vector>

#include "windrow/ops/matrix.h"

extern "C" void omp_set_num_threads(int);

namespace windrow::program {
namespace {

struct Shape {
  dnnl_dim_t rows, width, inner;

  double flops() const { return 2.0 * static_cast<double>(rows * width * inner); }
};

/// Square products, and the products of batched cells: many rows times a matrix of parameters. All matrices have the
/// row strides that the runtime uses, which are faster.
constexpr Shape shapes[] = {{192, 192, 192}, {384, 384, 384}, {512, 512, 512},  {1024, 1024, 1024}, {256, 512, 256},
                            {256, 768, 512}, {512, 768, 256}, {1024, 768, 512}, {256, 1280, 512},   {512, 1024, 256}};
constexpr int tries_of_the_best = 10;

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

double seconds_since(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

/// a += s * b, by the widest vectors of the machine.
__attribute__((target_clones("avx512f", "avx2", "default"))) void add_scaled(float* a, const float* b, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) a[i] += 1e-9f * b[i];
}

}  // namespace

void ProductPeak::sample(double seconds) {
  const Shape* best = nullptr;
  double most = 0;
  const auto began = std::chrono::steady_clock::now();
  const auto late = [&] { return best != nullptr && seconds_since(began) > 2 * seconds; };
  const auto measure_one = [&](const Shape& shape) {
    const double rate = measure(shape, threads_, seconds / (std::size(shapes) + tries_of_the_best));
    if (rate > most) {
      most = rate;
      best = &shape;
    }
  };
  for (const Shape& shape : shapes) {
    if (!late()) measure_one(shape);
  }
  for (int again = 0; again < tries_of_the_best && !late(); ++again) measure_one(*best);
  best_ = std::max(best_, most);
}

Bandwidth::Bandwidth(int threads, std::size_t elements) : threads_(threads), elements_(elements) {
  for (float* const array : {a_, b_}) std::fill_n(array, elements, 1.0f);
}

Bandwidth::~Bandwidth() {
  for (float* const array : {a_, b_}) memory_->deallocate(reinterpret_cast<std::byte*>(array), bytes_);
}

double Bandwidth::measure(double seconds) {
  std::vector<std::thread> running;
  std::vector<double> rates(static_cast<std::size_t>(threads_));
  const std::size_t part = elements_ / rates.size();
  for (std::size_t t = 0; t < rates.size(); ++t) {
    running.emplace_back([&, t] {
      const auto began = std::chrono::steady_clock::now();
      float *const a = a_ + t * part, *const b = b_ + t * part;
      int passes = 0;
      for (; passes == 0 || seconds_since(began) < seconds; ++passes) {
        add_scaled(a, b, part);
      }
      rates[t] = passes * 12.0 * static_cast<double>(part) / seconds_since(began) / 1e9;
    });
  }
  double all = 0;
  for (std::size_t t = 0; t < rates.size(); ++t) {
    running[t].join();
    all += rates[t];
  }
  return all;
}

}  // namespace windrow::program
