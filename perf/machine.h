// The machine's peak, measured during a benchmark. Shares of the peak can be compared across machines.
#pragma once

namespace windrow::perf {

/// The best speed, in GFLOP/s, that `threads` threads reach together in oneDNN's matrix products, each thread computing
/// its own products. An owner of the best value so far.
class GemmPeak {
 public:
  explicit GemmPeak(int threads) : threads_(threads) {}

  /// Measures many shapes, then the best one repeatedly, for one second in total. Call it between the passes of a
  /// benchmark, so that other work on the machine affects both.
  void sample();
  /// The best speed of the best shape in all samples. A pass takes longer and reaches at most this.
  double gflops() const { return best_; }

 private:
  const int threads_;
  double best_ = 0;
};

/// The time in ns in which two cores pass a cache line to each other and back, as the median of several rounds. NaN if
/// this process may use only one core. On a virtual machine it changes over time by a factor of four, and the cost of
/// passing anything between threads changes with it.
double round_trip_ns();

/// The peak resident memory of this process so far, in 2^20 bytes.
double peak_rss_mb();

}  // namespace windrow::perf
