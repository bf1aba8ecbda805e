// Reproducible random numbers.
//
//   windrow::Draw(seed, step).uniform(x, -1, 1);   // the numbers are those of (seed, step), whatever else was drawn
//   windrow::Generator random(engine, seed);
//   random.uniform(y, -1, 1);                      // draw 0 of the generator
//   random.uniform(z, -1, 1);                      // draw 1
//   engine.push([](Draw draw, Tile& tile) { tile[0] = draw.uniform(0); }, mutate(random), mutate(tile));  // draw 2
//
// A number is a function of a key and a counter (philox.h). The key is the seed. A Draw names a part of the counters,
// and is a value without a state. So an op that is repeated draws the same numbers, draws can run concurrently in any
// order, and a failed draw does not affect others. The program numbers the draws, for example by steps or samples. A
// Generator counts draws itself, by ops that mutate its variable. They run in the order of their pushes, and a failed
// one poisons the generator. Each launch of a graph draws new numbers from a Generator, but the same numbers from a
// Draw that the graph has captured.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstdint>
#include <source_location>

#include "windrow/ops/internal/philox.h"
#include "windrow/ops/tensor.h"

namespace windrow {

/// The numbers of one draw. A value. Element n, in row order, of a filled tensor is number n. Draws that differ in
/// seed, number or stream are independent of each other, and of the masks that op::dropout draws with the same seed.
/// Threads: any.
class Draw {
 public:
  using Site = std::source_location;

  /// Throws MisuseError unless number < 2^48.
  explicit Draw(std::uint64_t seed, std::uint64_t number = 0, std::uint32_t stream = 0);

  // Number n, below 2^50, of the draw, inside or outside of ops. Costs about 10 ns.

  /// Uniform in [0, 1).
  float uniform(std::uint64_t n) const;
  /// Standard normal (Box and Muller 1958).
  float normal(std::uint64_t n) const;

  // These push ops, on tensors of any device.

  /// Fills `out` with uniform numbers from [low, high). Throws MisuseError unless low < high and high - low is finite.
  void uniform(const Tensor& out, float low, float high, Site pushed_at = Site::current()) const;
  /// Fills `out` with normal numbers. Throws MisuseError unless deviation >= 0 and both arguments are finite.
  void normal(const Tensor& out, float mean, float deviation, Site pushed_at = Site::current()) const;
  /// Fills `out`, n x 3, with random keys for op::dropout. Throws MisuseError for another width.
  void dropout_keys(const IntTensor& out, Site pushed_at = Site::current()) const;

 private:
  friend class Generator;
  /// Block n provides words 4 n to 4 n + 3. The counters of all blocks and draws below 2^48 differ.
  PhiloxCounter block(std::uint64_t n) const;
  template <class T, class Four>
  void fill(const Matrix<T>& out, Four four) const;
  template <class T, class Four>
  void push(const TensorOf<T>& out, OpName name, Site pushed_at, Four four) const;

  PhiloxKey key_;
  std::uint32_t stream_;
  std::uint64_t number_;
};

/// Owns the state of one sequence of draws: its draw number k, from 0, has the numbers of Draw(seed, k, stream).
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

  /// As the functions of Draw, with the next draw.
  void uniform(const Tensor& out, float low, float high, Site pushed_at = Site::current());
  void normal(const Tensor& out, float mean, float deviation, Site pushed_at = Site::current());
  void dropout_keys(const IntTensor& out, Site pushed_at = Site::current());

  /// For typed pushes: the op receives the next Draw.
  template <AccessKind kind>
  auto access() const {
    static_assert(kind == AccessKind::mutate, "a draw changes the generator; expected mutate(generator)");
    return OneAccess(mutate(var()), Kept{seed_, stream_, draws_.bytes()});
  }

 private:
  struct Kept {
    std::uint64_t seed;
    std::uint32_t stream;
    Bytes draws;
    Draw operator()(OpContext&) const { return next(seed, stream, draws); }
  };

  template <class T, class Four>
  void push(const TensorOf<T>& out, OpName name, Site pushed_at, Four four);
  /// In an op that mutates the variable: counts a draw.
  static Draw next(std::uint64_t seed, std::uint32_t stream, const Bytes& draws);

  std::uint64_t seed_;
  std::uint32_t stream_;
  Buffer draws_;  // a std::uint64_t: the number of draws so far
};

}  // namespace windrow
