// The machine's peaks, measured in the same run as the values that are compared with them. Shares of a peak can be
// compared across machines.
#pragma once

#include <cstddef>
#include <memory>

#include "windrow/memory/allocator.h"

namespace windrow::program {

/// The best speed, in GFLOP/s, that `threads` threads reach together in oneDNN's matrix products, each thread computing
/// its own products. An owner of the best value so far.
class ProductPeak {
 public:
  explicit ProductPeak(int threads) : threads_(threads) {}

  /// Measures many shapes (fewer if there is no time for all), then the best one repeatedly, for about `seconds` in
  /// total. Call it between the passes of a benchmark, so that other work on the machine affects both.
  void sample(double seconds = 1);
  /// The best speed of the best shape in all samples. A long computation reaches at most this.
  double gflops() const { return best_; }

 private:
  const int threads_;
  double best_ = 0;
};

/// The bandwidth of memory that `threads` threads reach together, in GB/s: that of a += s * b, which reads each element
/// before it writes it, so that writes cause no further reads. The arrays come from the same allocator as parameters.
/// An owner of two arrays of `elements` floats.
class Bandwidth {
 public:
  Bandwidth(int threads, std::size_t elements);
  ~Bandwidth();
  Bandwidth(const Bandwidth&) = delete;
  Bandwidth& operator=(const Bandwidth&) = delete;

  /// Measures for about `seconds`: bytes read and written per second.
  double measure(double seconds);

 private:
  float* array() const { return reinterpret_cast<float*>(memory_->allocate(bytes_)); }

  const int threads_;
  const std::size_t elements_, bytes_ = elements_ * sizeof(float);
  const std::shared_ptr<Allocator> memory_ = host_allocator();
  float *const a_ = array(), *const b_ = array();
};

}  // namespace windrow::program
