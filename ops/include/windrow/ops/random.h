// Random numbers that are the same whoever draws them, and when.
//
// A number is a function of a key and a counter (philox.h). A Generator's key is its seed, and its counter is a state
// behind a variable: draws are engine ops that mutate it, so that they come in the order in which they were pushed.
#pragma once

#include <cstdint>
#include <source_location>

#include "windrow/ops/philox.h"
#include "windrow/ops/tensor.h"

namespace windrow {

/// An owner of the state of one sequence. Streams of one seed are independent, and so are the masks that op::dropout
/// draws by that seed.
///
/// The numbers depend on seed, stream, and the order of the draws alone: not on the policy, the workers or the shape of
/// what was drawn before. A draw that fails or is skipped poisons the generator: heal its variable to go on.
/// Threads: any; draws of several threads come in the order of their pushes.
class Generator {
 public:
  Generator(Engine& engine, std::uint64_t seed, std::uint32_t stream = 0);

  Var var() const { return draws_.var(); }

  using Site = std::source_location;
  /// Fills `out` with numbers from [low, high). Throws MisuseError unless low < high, and high - low is finite.
  void uniform(const Tensor& out, float low, float high, Site pushed_at = Site::current());
  /// Fills `out` with normal numbers (Box and Muller 1958). Throws MisuseError unless deviation >= 0, both finite.
  void normal(const Tensor& out, float mean, float deviation, Site pushed_at = Site::current());
  /// Fills `out`, n x 3, with random keys for op::dropout. Throws MisuseError for another width.
  void dropout_keys(const IntTensor& out, Site pushed_at = Site::current());

 private:
  template <class T, class Four>
  void draw(const TensorOf<T>& out, OpName name, Site pushed_at, Four four);

  PhiloxKey key_;
  std::uint32_t stream_;
  Buffer draws_;  // a std::uint64_t: how many are done
};

}  // namespace windrow
