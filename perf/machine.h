// What the machine can do at best, measured beside what is benchmarked: shares of it can be compared across machines.
#pragma once

namespace windrow::perf {

/// The most floating point operations a second, in GFLOP/s, that `threads` threads reach together in oneDNN's matrix
/// products, each in products of its own. An owner of what it has seen so far.
class GemmPeak {
 public:
  explicit GemmPeak(int threads) : threads_(threads) {}

  /// Tries many shapes, and the best of them again and again, for a second in all. Between the passes of a benchmark,
  /// so that both see the machine's moods.
  void sample();
  /// Of the best shape in its best moment of all samples: what a pass, which is longer, reaches at most.
  double gflops() const { return best_; }

 private:
  const int threads_;
  double best_ = 0;
};

/// How long two cores take to hand a line of memory to each other and back, in ns: of several rounds the median. NaN if
/// this process may use one core only. Cores of a virtual machine are near to each other at one moment and far at the
/// next, by a factor of four, and all that threads hand to each other costs in proportion.
double round_trip_ns();

/// The most memory this process has had so far, in 2^20 bytes.
double peak_rss_mb();

}  // namespace windrow::perf
