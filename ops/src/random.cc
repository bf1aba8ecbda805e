#include "windrow/ops/random.h"

#include <cmath>
#include <numbers>
#include <string>
#include <utility>

namespace windrow {
namespace {

/// The words of one draw: word n of block n / 4.
class Words {
 public:
  Words(PhiloxKey key, std::uint32_t stream, std::uint64_t draw) : key_(key), stream_(stream), draw_(draw) {}

  PhiloxCounter block(std::uint64_t number) const {
    const auto high = static_cast<std::uint32_t>(draw_ >> 32);
    return philox({static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(draw_), high, stream_}, key_);
  }
  std::uint32_t operator[](std::uint64_t number) const { return block(number / 4)[number % 4]; }

 private:
  PhiloxKey key_;
  std::uint32_t stream_;
  std::uint64_t draw_;
};

/// Element n of the draw, row by row, becomes value(n).
template <class T, class Value>
void fill(Matrix<T> out, Value value) {
  std::uint64_t n = 0;
  for (Index r = 0; r < out.rows; ++r) {
    for (Index c = 0; c < out.width; ++c) out.row(r)[c] = value(n++);
  }
}

void require_finite(bool fits, const char* draw, float a, float b, const char* expected) {
  if (fits && std::isfinite(a) && std::isfinite(b)) return;
  throw MisuseError(std::string(draw) + ": " + std::to_string(a) + ", " + std::to_string(b) + "; expected finite " +
                    expected);
}

}  // namespace

Generator::Generator(Engine& engine, std::uint64_t seed, std::uint32_t stream)
    : engine_(&engine),
      var_(engine.new_var("generator")),
      state_(std::make_unique<State>(State{philox_key(seed), stream})) {}

Generator::~Generator() {
  State* state = state_.release();
  if (state == nullptr) return;
  try {
    engine_->retire(var_, [state] { delete state; }, {.name = "end of generator"});
  } catch (...) {
    // Somebody else retired the variable, or there is no memory for the op. Draws may still be to come: keep the state.
  }
}

template <class T, class Value>
void Generator::draw(const TensorOf<T>& out, OpName name, Value value) {
  engine_->push(
      [state = state_.get(), view = out.view(), value] {
        const Words words(state->key, state->stream, state->draws++);
        fill(view.write(), [&](std::uint64_t n) { return value(words, n); });
      },
      {mutate(var_), out.whole() ? overwrite(out.var()) : mutate(out.var())}, {.name = name});
}

void Generator::uniform(const Tensor& out, float low, float high) {
  require_finite(low < high && std::isfinite(high - low), "uniform", low, high, "low < high");
  const float below = std::nextafter(high, low);
  draw(out, "uniform", [low, high, below](const Words& words, std::uint64_t n) {
    return std::min(below, low + (high - low) * unit_uniform(words[n]));  // the sum may round up to high
  });
}

void Generator::normal(const Tensor& out, float mean, float deviation) {
  require_finite(deviation >= 0, "normal", mean, deviation, "mean and deviation >= 0");
  draw(out, "normal", [mean, deviation](const Words& words, std::uint64_t n) {
    const PhiloxCounter w = words.block(n / 2);  // two numbers of each block
    const double radius = std::sqrt(-2 * std::log1p(-static_cast<double>(unit_uniform(w[0]))));
    const double angle = 2 * std::numbers::pi * static_cast<double>(unit_uniform(w[1]));
    const double unit = radius * (n % 2 == 0 ? std::cos(angle) : std::sin(angle));
    return static_cast<float>(mean + deviation * unit);
  });
}

void Generator::dropout_keys(const IntTensor& out) {
  if (out.width() != 3) {
    throw MisuseError("dropout_keys: a tensor of width " + std::to_string(out.width()) + "; expected 3");
  }
  draw(out, "dropout_keys",
       [](const Words& words, std::uint64_t n) { return static_cast<std::int32_t>(words.block(n / 3)[n % 3]); });
}

}  // namespace windrow
