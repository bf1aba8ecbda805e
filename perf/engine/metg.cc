#include <cmath>
#include <memory>

#include "benchmark.h"
#include "trial.h"

namespace windrow::perf {
namespace {

constexpr double shortest_ns = 50, longest_ns = 204'800, step = M_SQRT2;
constexpr double most_seconds = 0.02;  // time of the tasks of one repetition, shared by all workers
constexpr double kept = 0.5;           // as a share of the peak

std::vector<double> swept_lengths() {
  std::vector<double> lengths;
  for (double length = shortest_ns; length < longest_ns * step; length *= step) lengths.push_back(std::round(length));
  return lengths;
}

struct SweepPoint {
  double length = 0;               // in nanoseconds
  std::vector<double> efficiency;  // by repetition
};

/// One system and its efficiency curve.
class MetgSweep {
 public:
  MetgSweep(const EngineBenchmark& options, const Contest& contest, const std::string& system)
      : options_(options), trial_(system, contest.pattern, {.workers = options.workers}) {
    for (const double length : swept_lengths()) points_.push_back({length, {}});
    trial_.run({.ops = options.ops / 10 + 1});
  }

  void repeat(std::size_t point) {
    SweepPoint& at = points_[point];
    const double shared = at.length / options_.workers;  // the best possible time per op
    const auto ops = std::clamp<std::int64_t>(std::llround(most_seconds * 1e9 / shared), 1, options_.ops);
    const Times times = trial_.run({.ops = ops, .task_ns = std::llround(at.length)});
    at.efficiency.push_back(static_cast<double>(ops) * shared / (times.total * 1e9));
  }

  /// Computes the curve and returns its highest efficiency. Call it after the last repetition, before record().
  double best() {
    double most = 0;
    for (SweepPoint& point : points_) {
      curve_.push_back({point.length, percentile(point.efficiency, 0.5)});
      most = std::max(most, curve_.back().share);
    }
    return most;
  }

  Record record(double peak) const {
    Record record = record_of(options_, trial_.pattern(), trial_.system());
    record.update({{"metg_ns", metg_of(curve_, kept * peak)},
                   {"shortest_efficiency", curve_.front().share},
                   {"longest_efficiency", curve_.back().share},
                   {"peak_efficiency", peak},
                   {"ops", options_.ops}});
    return record;
  }

 private:
  const EngineBenchmark& options_;
  Trial trial_;
  std::vector<SweepPoint> points_;
  std::vector<Efficiency> curve_;  // medians of the points
};

}  // namespace

double metg_of(const std::vector<Efficiency>& curve, double enough) {
  std::size_t first = curve.size();  // the first of the points that all have enough, up to the longest length
  while (first > 0 && curve[first - 1].share >= enough) --first;
  if (first == 0 || first == curve.size()) return NAN;
  const Efficiency &below = curve[first - 1], &above = curve[first];
  const double part = (enough - below.share) / (above.share - below.share);
  return below.length_ns * std::pow(above.length_ns / below.length_ns, part);
}

void find_metg(const EngineBenchmark& options, const Report& report) {
  for (const Contest& contest : contests_of(options, {"D"})) {
    std::vector<std::unique_ptr<MetgSweep>> sweeps;
    for (const std::string& system : contest.systems) {
      sweeps.push_back(std::make_unique<MetgSweep>(options, contest, system));
    }
    for (int i = 0; i < options.repetitions; ++i) {
      for (std::size_t point = 0; point < swept_lengths().size(); ++point) {
        for (const auto& sweep : sweeps) sweep->repeat(point);
      }
    }
    double peak = 0;
    for (const auto& sweep : sweeps) peak = std::max(peak, sweep->best());
    for (const auto& sweep : sweeps) report(sweep->record(peak));
  }
}

}  // namespace windrow::perf
