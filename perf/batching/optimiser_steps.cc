// Steps of optimisers on large parameters, compared with the bandwidth of the machine's memory.
#include <algorithm>
#include <chrono>

#include "batching/tables.h"
#include "batching/turns.h"
#include "peak.h"
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
    program::Bandwidth bandwidth(workers, static_cast<std::size_t>(parameters_in_all * width * width));
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
