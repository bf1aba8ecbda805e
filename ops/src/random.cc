#include "windrow/ops/random.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <new>
#include <numbers>
#include <string>

#include "windrow/engine/parallel.h"
#include "windrow/ops/internal/number.h"

namespace windrow {
namespace {

// Separates the words of draws from those that dropout draws with the same seed.
constexpr std::uint32_t draw_domain = 0x67656e72;

/// Two independent standard normal numbers from two words.
std::array<double, 2> normal_pair(std::uint32_t length, std::uint32_t turn) {
  const double radius = std::sqrt(-2 * std::log1p(-static_cast<double>(unit_uniform(length))));
  const double angle = 2 * std::numbers::pi * static_cast<double>(unit_uniform(turn));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

MisuseError bad_range(const char* draw, float a, float b, const char* expected) {
  return MisuseError(std::string(draw) + ": " + shortest_text(a) + ", " + shortest_text(b) + "; expected finite " +
                     expected);
}

// Four elements from the words of a block.
struct UniformFour {
  float low, high, below;  // below: the largest number that is less than high

  float one(std::uint32_t word) const {
    return std::min(below, low + (high - low) * unit_uniform(word));  // the sum may round up to high
  }
  std::array<float, 4> operator()(const PhiloxCounter& words) const {
    return {one(words[0]), one(words[1]), one(words[2]), one(words[3])};
  }
};
struct NormalFour {
  float mean, deviation;

  std::array<float, 4> operator()(const PhiloxCounter& words) const {
    const auto [a, b] = normal_pair(words[0], words[1]);
    const auto [c, d] = normal_pair(words[2], words[3]);
    const auto scaled = [&](double unit) { return static_cast<float>(mean + deviation * unit); };
    return {scaled(a), scaled(b), scaled(c), scaled(d)};
  }
};
struct KeysFour {
  std::array<std::int32_t, 4> operator()(const PhiloxCounter& words) const {
    return std::bit_cast<std::array<std::int32_t, 4>>(words);
  }
};

UniformFour uniform_four(float low, float high) {
  if (!(low < high && std::isfinite(high - low))) throw bad_range("uniform", low, high, "low < high");
  return {low, high, std::nextafter(high, low)};
}

NormalFour normal_four(float mean, float deviation) {
  if (!(deviation >= 0 && std::isfinite(mean) && std::isfinite(deviation))) {
    throw bad_range("normal", mean, deviation, "mean and deviation >= 0");
  }
  return {mean, deviation};
}

KeysFour keys_four(const IntTensor& out) {
  if (out.width() == 3) return {};
  throw MisuseError("dropout_keys: a tensor of width " + std::to_string(out.width()) + "; expected 3");
}

}  // namespace

Draw::Draw(std::uint64_t seed, std::uint64_t number, std::uint32_t stream)
    : key_(philox_key(seed)), stream_(stream), number_(number) {
  if (number >> 48 != 0) throw MisuseError("draw: number " + std::to_string(number) + "; expected one below 2^48");
  key_[1] ^= draw_domain;
}

PhiloxCounter Draw::block(std::uint64_t n) const {
  const auto high = static_cast<std::uint32_t>(number_ >> 32 << 16 | n >> 32);
  return philox({static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(number_), high, stream_}, key_);
}

float Draw::uniform(std::uint64_t n) const { return unit_uniform(block(n / 4)[n % 4]); }

float Draw::normal(std::uint64_t n) const { return NormalFour{0, 1}(block(n / 4))[n % 4]; }

/// With the help of idle workers.
template <class T, class Four>
void Draw::fill(const Matrix<T>& out, Four four) const {
  constexpr Index elements_a_piece = 1 << 14;  // about 0.1 ms
  const Index rows = std::max<Index>(1, elements_a_piece / std::max<Index>(out.width, 1));
  parallel_for(static_cast<std::size_t>(out.rows), static_cast<std::size_t>(rows),
               [&](std::size_t begin, std::size_t end) {
                 std::uint64_t n = begin * static_cast<std::size_t>(out.width);
                 std::array<T, 4> values = four(block(n / 4));
                 for (std::size_t r = begin; r < end; ++r) {
                   for (Index c = 0; c < out.width; ++c, ++n) {
                     if (n % 4 == 0) values = four(block(n / 4));
                     out.row(static_cast<Index>(r))[c] = values[n % 4];
                   }
                 }
               });
}

template <class T, class Four>
void Draw::push(const TensorOf<T>& out, OpName name, Site pushed_at, Four four) const {
  out.fill([draw = *this, four](const Matrix<T>& to) { draw.fill(to, four); }, {},
           {.name = name, .pushed_at = pushed_at});
}

void Draw::uniform(const Tensor& out, float low, float high, Site pushed_at) const {
  push(out, "uniform", pushed_at, uniform_four(low, high));
}

void Draw::normal(const Tensor& out, float mean, float deviation, Site pushed_at) const {
  push(out, "normal", pushed_at, normal_four(mean, deviation));
}

void Draw::dropout_keys(const IntTensor& out, Site pushed_at) const {
  push(out, "dropout_keys", pushed_at, keys_four(out));
}

Generator::Generator(Engine& engine, std::uint64_t seed, std::uint32_t stream, Site from)
    : seed_(seed),
      stream_(stream),
      draws_(engine, engine.watcher() ? page_allocator() : host_allocator(), sizeof(std::uint64_t), "generator") {
  engine.push([bytes = draws_.bytes()] { ::new (bytes.write()) std::uint64_t(0); }, {overwrite(var())},
              {.name = "seed", .pushed_at = from});
}

Draw Generator::next(std::uint64_t seed, std::uint32_t stream, const Bytes& draws) {
  return Draw(seed, (*std::launder(reinterpret_cast<std::uint64_t*>(draws.update())))++, stream);
}

template <class T, class Four>
void Generator::push(const TensorOf<T>& out, OpName name, Site pushed_at, Four four) {
  out.fill([seed = seed_, stream = stream_, bytes = draws_.bytes(),
            four](const Matrix<T>& to) { next(seed, stream, bytes).fill(to, four); },
           {windrow::mutate(var())}, {.name = name, .pushed_at = pushed_at});
}

void Generator::uniform(const Tensor& out, float low, float high, Site pushed_at) {
  push(out, "uniform", pushed_at, uniform_four(low, high));
}

void Generator::normal(const Tensor& out, float mean, float deviation, Site pushed_at) {
  push(out, "normal", pushed_at, normal_four(mean, deviation));
}

void Generator::dropout_keys(const IntTensor& out, Site pushed_at) {
  push(out, "dropout_keys", pushed_at, keys_four(out));
}

}  // namespace windrow
