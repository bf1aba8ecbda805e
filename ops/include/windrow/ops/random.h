// Reproducible random numbers.
//
// A number is a function of a key and a counter (philox.h). A Generator's key is its seed; its counter is state behind
// a variable. Draws are engine ops that mutate this variable, so they happen in the order of their pushes.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstdint>
#include <source_location>

#include "windrow/ops/internal/philox.h"
#include "windrow/ops/tensor.h"

namespace windrow {

/// Owns the state of one sequence. Different streams of one seed are independent of each other, and of the masks that
/// op::dropout draws with the same seed.
///
/// The numbers depend only on the seed, the stream and the order of the draws: not on the policy, the number of
/// workers, or the shapes of earlier draws. A draw that fails or is skipped poisons the generator; heal its variable to
/// continue.
/// Threads: any thread; draws of several threads happen in the order of their pushes.
class Generator {
 public:
  using Site = std::source_location;

  Generator(Engine& engine, std::uint64_t seed, std::uint32_t stream = 0, Site from = Site::current());

  Var var() const { return draws_.var(); }

  /// Fills `out` with uniform numbers from [low, high). Throws MisuseError unless low < high and high - low is finite.
  void uniform(const Tensor& out, float low, float high, Site pushed_at = Site::current());
  /// Fills `out` with normal numbers (Box and Muller 1958). Throws MisuseError unless deviation >= 0 and both arguments
  /// are finite.
  void normal(const Tensor& out, float mean, float deviation, Site pushed_at = Site::current());
  /// Fills `out`, n x 3, with random keys for op::dropout. Throws MisuseError for another width.
  void dropout_keys(const IntTensor& out, Site pushed_at = Site::current());

 private:
  template <class T, class Four>
  void draw(const TensorOf<T>& out, OpName name, Site pushed_at, Four four);

  PhiloxKey key_;
  std::uint32_t stream_;
  Buffer draws_;  // a std::uint64_t: the number of draws so far
};

}  // namespace windrow
