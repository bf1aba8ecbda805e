// Random numbers that are the same whoever draws them, and when.
//
// A number is a function of a key and a counter (philox.h). A Generator's key is its seed, and its counter is a state
// behind a variable: draws are engine ops that mutate it, so that they come in the order in which they were pushed.
#pragma once

#include <cstdint>
#include <memory>

#include "windrow/ops/philox.h"
#include "windrow/ops/tensor.h"

namespace windrow {

/// An owner of the state of one sequence. Streams of one seed are independent. Must end before its engine does.
///
/// The numbers depend on seed, stream, and the order of the draws alone: not on the policy, the workers or the shape of
/// what was drawn before. A draw that fails poisons the generator: heal its variable to go on.
/// Threads: any, one at a time; draws of several threads would come in no fixed order.
class Generator {
 public:
  Generator(Engine& engine, std::uint64_t seed, std::uint32_t stream = 0);
  Generator(Generator&&) noexcept = default;
  Generator& operator=(Generator&&) = delete;
  ~Generator();

  Var var() const { return var_; }

  /// Fills `out` with numbers from [low, high). Throws MisuseError unless low < high, and high - low is finite.
  void uniform(const Tensor& out, float low, float high);
  /// Fills `out` with normal numbers (Box and Muller 1958). Throws MisuseError unless deviation >= 0, both finite.
  void normal(const Tensor& out, float mean, float deviation);
  /// Fills `out`, n x 3, with keys for op::dropout: each row its own, no two draws alike.
  void dropout_keys(const IntTensor& out);

 private:
  struct State {
    PhiloxKey key;
    std::uint32_t stream;
    std::uint64_t draws = 0;  // done so far; changed by ops that mutate the variable
  };

  template <class T, class Value>
  void draw(const TensorOf<T>& out, OpName name, Value value);

  Engine* engine_;
  Var var_;
  std::unique_ptr<State> state_;  // empty when moved from
};

}  // namespace windrow
