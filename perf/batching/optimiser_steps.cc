// Steps of optimisers on large parameters, compared with the bandwidth of the machine's memory.
#include <algorithm>
#include <chrono>
#include <thread>

#include "batching/tables.h"
#include "batching/turns.h"
#include "windrow/training/optimiser.h"

namespace windrow::perf {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point began) { return std::chrono::duration<double>(Clock::now() - began).count(); }

constexpr int parameters_in_all = 4;

/// Several square parameters, each with a dense gradient, and an optimiser.
class LargeStep {
 public:
  LargeStep(int workers, Index width, const Method& method)
      : engine_({.policy = Policy::pool, .workers = workers}), optimiser_(parameters_, method, {.rate = 1e-4}) {
    std::vector<Parameter> all;
    for (int i = 0; i < parameters_in_all; ++i) {
      all.push_back(parameters_.add("w" + std::to_string(i), width, width, Initial::uniform(-1, 1)));
    }
    const VertexFunction function("sum", {}, [&](Vertex& v) {
      const Expr x = v.pull("x", width);
      for (const Parameter& w : all) v.loss(row_sum(matmul(x, w)));
    });
    GraphData data{.child_begin = {0, 0}};
    data.values["x"].assign(static_cast<std::size_t>(width), 0.01f);
    const InputGraph graph(function, data);
    Runner(host_, function, parameters_).differentiate(std::vector{&graph});
    optimiser_.step();  // makes the states
    engine_.wait_all();
    bytes_ = 4.0 * parameters_in_all * static_cast<double>(width * width) *
             static_cast<double>(3 + 2 * method.step->states);  // gradient and value are read, the value is written
  }

  /// A turn, in GB/s.
  double step(double seconds) {
    const auto began = Clock::now();
    int steps = 0;
    for (; steps == 0 || since(began) < seconds; ++steps) {
      optimiser_.step();
      engine_.wait_all();
    }
    return steps * bytes_ / since(began) / 1e9;
  }

 private:
  Engine engine_;
  const program::ToldOnce once_{engine_};
  const Device host_ = host_device(engine_);
  Parameters parameters_{host_, 1};
  Optimiser optimiser_;
  double bytes_ = 0;
};

/// a += s * b, by the widest vectors of the machine.
__attribute__((target_clones("avx512f", "avx2", "default"))) void add_scaled(float* a, const float* b, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) a[i] += 1e-9f * b[i];
}

/// The bandwidth of memory that so many threads reach together, in GB/s: that of a += s * b, in which each element that
/// is written has been read, so that no write needs a read of its own. In memory from the same allocator as parameters.
class Bandwidth {
 public:
  Bandwidth(int threads, std::size_t elements) : threads_(threads), elements_(elements) {
    for (float* const array : {a_, b_}) std::fill_n(array, elements, 1.0f);
  }
  ~Bandwidth() {
    for (float* const array : {a_, b_}) memory_->deallocate(reinterpret_cast<std::byte*>(array), bytes_);
  }
  Bandwidth(const Bandwidth&) = delete;
  Bandwidth& operator=(const Bandwidth&) = delete;

  double measure(double seconds) {
    std::vector<std::thread> running;
    std::vector<double> rates(static_cast<std::size_t>(threads_));
    const std::size_t part = elements_ / rates.size();
    for (std::size_t t = 0; t < rates.size(); ++t) {
      running.emplace_back([&, t] {
        const auto began = Clock::now();
        float *const a = a_ + t * part, *const b = b_ + t * part;
        int passes = 0;
        for (; passes == 0 || since(began) < seconds; ++passes) {
          add_scaled(a, b, part);
        }
        rates[t] = passes * 12.0 * static_cast<double>(part) / since(began) / 1e9;
      });
    }
    double all = 0;
    for (std::size_t t = 0; t < rates.size(); ++t) {
      running[t].join();
      all += rates[t];
    }
    return all;
  }

 private:
  float* array() const { return reinterpret_cast<float*>(memory_->allocate(bytes_)); }

  const int threads_;
  const std::size_t elements_, bytes_ = elements_ * sizeof(float);
  const std::shared_ptr<Allocator> memory_ = host_allocator();
  float *const a_ = array(), *const b_ = array();
};

std::vector<std::pair<std::string, Method>> methods() {
  return {{"sgd", Method::sgd()},
          {"momentum", Method::momentum()},
          {"adagrad", Method::adagrad()},
          {"rmsprop", Method::rmsprop()},
          {"adam", Method::adam()}};
}

}  // namespace

Result optimiser_steps(const TableOptions& options) {
  const Index width = options.hidden.front();
  const double seconds = options.turn_ms / 1e3;
  Result result{
      .name = "optimisers",
      .title = "Steps of optimisers on large parameters",
      .command = {},
      .about = "Steps on " + std::to_string(parameters_in_all) + " dense parameters of " + std::to_string(width) +
               " x " + std::to_string(width) +
               ": bytes read and written per second, as a share of the bandwidth that as many threads reach "
               "with a += s * b on as much memory; medians of repetitions in which all variants took turns.",
      .table = Table({{"workers", 0}, {"method"}, {"GB/s", 1}, {"memory GB/s", 1}, {"share of bandwidth", 0, " %"}}),
      .plots = {}};
  Plot plot{.title = "share of the memory bandwidth",
            .x = "method",
            .y = "%",
            .places = {},
            .series = {},
            .form = Plot::Form::bars};
  for (const auto& [name, method] : methods()) plot.places.push_back(name);
  for (const int workers : options.worker_counts) {
    Turns turns;
    Bandwidth bandwidth(workers, static_cast<std::size_t>(parameters_in_all * width * width));
    const std::size_t peak = turns.add([&] { return bandwidth.measure(seconds); });
    std::vector<std::unique_ptr<LargeStep>> steps;
    for (const auto& [name, method] : methods()) {
      LargeStep& one = *steps.emplace_back(std::make_unique<LargeStep>(workers, width, method));
      turns.add([&one, seconds] { return one.step(seconds); });
    }
    turns.take(options.repetitions);
    Plot::Series& series = plot.series.emplace_back(Plot::Series{std::to_string(workers) + " workers", {}});
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const std::size_t variant = peak + 1 + i;
      const double share = 100 * turns.ratio(variant, peak);
      result.table.add(
          {static_cast<double>(workers), plot.places[i], turns.median(variant), turns.median(peak), share});
      series.values.push_back(share);
    }
  }
  result.plots.push_back(std::move(plot));
  return result;
}

}  // namespace windrow::perf
