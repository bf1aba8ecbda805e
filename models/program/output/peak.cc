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

#include "windrow/ops/internal/matrix.h"

extern "C" void omp_set_num_threads(int);

namespace windrow::program {
namespace {

struct ProductShape {
  dnnl_dim_t rows, width, inner;

  double flops() const { return 2.0 * static_cast<double>(rows * width * inner); }
};

/// Square products, and the products of batched cells: many rows times a matrix of parameters. All matrices have the
/// row strides that the runtime uses, which are faster.
constexpr ProductShape shapes[] = {{192, 192, 192},  {384, 384, 384}, {512, 512, 512}, {1024, 1024, 1024},
                                   {256, 512, 256},  {256, 768, 512}, {512, 768, 256}, {1024, 768, 512},
                                   {256, 1280, 512}, {512, 1024, 256}};
constexpr int tries_of_the_best = 10;

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point began) { return std::chrono::duration<double>(Clock::now() - began).count(); }

/// The work of all threads together per second. Each thread calls make(its number), and then calls the result
/// repeatedly for about `seconds`; each of these calls does `work`. All threads begin together.
template <class Make>
double rate_together(int threads, double seconds, double work, Make make) {
  std::latch warm(threads), go(1);
  std::vector<double> rates(static_cast<std::size_t>(threads));
  const auto repeat = [&](int number) {
    auto once = make(number);
    once();
    warm.count_down();
    go.wait();
    const auto began = Clock::now();
    int times = 0;
    double took = 0;
    for (; took < seconds; ++times) {
      once();
      took = seconds_since(began);
    }
    rates[static_cast<std::size_t>(number)] = work * times / took;
  };
  std::vector<std::jthread> running;
  try {
    for (int number = 0; number < threads; ++number) running.emplace_back(repeat, number);
    warm.wait();
  } catch (...) {
    go.count_down();  // threads that have started wait for it
    throw;
  }
  go.count_down();
  running.clear();
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

/// The total GFLOP/s of all threads in products of that shape.
double product_rate(const ProductShape& shape, int threads, double seconds) {
  const auto filled = [](dnnl_dim_t rows, dnnl_dim_t width, float with) {
    return std::vector<float>(static_cast<std::size_t>(rows * row_stride(width)), with);
  };
  return rate_together(threads, seconds, shape.flops() / 1e9, [&](int) {
    omp_set_num_threads(1);
    return [shape, a = filled(shape.rows, shape.inner, 0.5f), b = filled(shape.inner, shape.width, 0.25f),
            c = filled(shape.rows, shape.width, 0)]() mutable {
      dnnl_sgemm('N', 'N', shape.rows, shape.width, shape.inner, 1, a.data(), row_stride(shape.inner), b.data(),
                 row_stride(shape.width), 0, c.data(), row_stride(shape.width));
    };
  });
}

/// a += s * b, by the widest vectors of the machine.
__attribute__((target_clones("avx512f", "avx2", "default"))) void add_scaled(float* a, const float* b, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) a[i] += 1e-9f * b[i];
}

}  // namespace

void ProductPeak::sample(double seconds) {
  const ProductShape* best = nullptr;
  double most = 0;
  const auto began = Clock::now();
  const auto late = [&] { return best != nullptr && seconds_since(began) > 2 * seconds; };
  const auto measure_one = [&](const ProductShape& shape) {
    const double rate = product_rate(shape, threads_, seconds / (std::size(shapes) + tries_of_the_best));
    if (rate > most) {
      most = rate;
      best = &shape;
    }
  };
  for (const ProductShape& shape : shapes) {
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
  const std::size_t part = elements_ / static_cast<std::size_t>(threads_);
  return rate_together(threads_, seconds, 12.0 * static_cast<double>(part) / 1e9, [&](int number) {
    const std::size_t begin = static_cast<std::size_t>(number) * part;
    return [a = a_ + begin, b = b_ + begin, part] { add_scaled(a, b, part); };
  });
}

}  // namespace windrow::program
