#include "windrow/ops/random.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <string>
#include <utility>

namespace windrow {
namespace {

/// The words of one draw: block n has the numbers 4 n to 4 n + 3.
class Words {
 public:
  Words(PhiloxKey key, std::uint32_t stream, std::uint64_t draw) : key_(key), stream_(stream), draw_(draw) {}

  /// Blocks and draws below 2^48 are all different.
  PhiloxCounter block(std::uint64_t number) const {
    const auto high = static_cast<std::uint32_t>(draw_ >> 32 << 16 | number >> 32);
    return philox({static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(draw_), high, stream_}, key_);
  }

 private:
  PhiloxKey key_;
  std::uint32_t stream_;
  std::uint64_t draw_;
};

// Sets a generator's words apart from those that dropout draws by the same seed.
constexpr std::uint32_t generator_domain = 0x67656e72;

/// Element n of the draw, row by row, becomes value(its word, its neighbour's): the neighbour is n + 1 for even n, else
/// n - 1.
template <class T, class Value>
void fill(Matrix<T> out, const Words& words, Value value) {
  std::uint64_t n = 0;
  PhiloxCounter block{};
  for (Index r = 0; r < out.rows; ++r) {
    for (Index c = 0; c < out.width; ++c, ++n) {
      if (n % 4 == 0) block = words.block(n / 4);
      out.row(r)[c] = value(n, block[n % 4], block[(n % 4) ^ 1]);
    }
  }
}

MisuseError bad_range(const char* draw, float a, float b, const char* expected) {
  return MisuseError(std::string(draw) + ": " + std::to_string(a) + ", " + std::to_string(b) + "; expected finite " +
                     expected);
}

}  // namespace

Generator::Generator(Engine& engine, std::uint64_t seed, std::uint32_t stream) : engine_(&engine) {
  auto state = std::make_unique<State>(State{philox_key(seed), stream});
  state->key[1] ^= generator_domain;
  var_ = engine.new_var("generator");
  state_ = state.release();
}

Generator::~Generator() {
  try {
    engine_->retire(var_, [state = state_] { std::unique_ptr<State> ends(state); }, {.name = "end of generator"});
  } catch (...) {
    // Somebody else retired the variable, or there is no memory for the op. Draws may still be to come: keep the state.
  }
}

template <class T, class Value>
void Generator::draw(const TensorOf<T>& out, OpName name, Site pushed_at, Value value) {
  engine_->push(
      [state = state_, view = out.view(), value] {
        const Matrix<T> to = view.write();
        fill(to, Words(state->key, state->stream, state->draws++), value);
      },
      {mutate(var_), out.whole() ? overwrite(out.var()) : mutate(out.var())}, {.name = name, .pushed_at = pushed_at});
}

void Generator::uniform(const Tensor& out, float low, float high, Site pushed_at) {
  if (!(low < high && std::isfinite(high - low))) throw bad_range("uniform", low, high, "low < high");
  const float below = std::nextafter(high, low);
  draw(out, "uniform", pushed_at, [low, high, below](std::uint64_t, std::uint32_t word, std::uint32_t) {
    return std::min(below, low + (high - low) * unit_uniform(word));  // the sum may round up to high
  });
}

void Generator::normal(const Tensor& out, float mean, float deviation, Site pushed_at) {
  if (!(deviation >= 0 && std::isfinite(mean) && std::isfinite(deviation))) {
    throw bad_range("normal", mean, deviation, "mean and deviation >= 0");
  }
  // Two words make two numbers, the even one by the cosine and the odd one by the sine.
  draw(out, "normal", pushed_at, [mean, deviation](std::uint64_t n, std::uint32_t word, std::uint32_t neighbour) {
    const bool even = n % 2 == 0;
    const double length = unit_uniform(even ? word : neighbour), turn = unit_uniform(even ? neighbour : word);
    const double radius = std::sqrt(-2 * std::log1p(-length)), angle = 2 * std::numbers::pi * turn;
    return static_cast<float>(mean + deviation * radius * (even ? std::cos(angle) : std::sin(angle)));
  });
}

void Generator::dropout_keys(const IntTensor& out, Site pushed_at) {
  if (out.width() != 3) {
    throw MisuseError("dropout_keys: a tensor of width " + std::to_string(out.width()) + "; expected 3");
  }
  draw(out, "dropout_keys", pushed_at,
       [](std::uint64_t, std::uint32_t word, std::uint32_t) { return static_cast<std::int32_t>(word); });
}

}  // namespace windrow
