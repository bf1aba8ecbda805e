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

/// The random words of one draw. Block n provides words 4 n to 4 n + 3.
class Words {
 public:
  Words(PhiloxKey key, std::uint32_t stream, std::uint64_t draw) : key_(key), stream_(stream), draw_(draw) {}

  /// The counters differ for all blocks and draws below 2^48.
  PhiloxCounter block(std::uint64_t number) const {
    const auto high = static_cast<std::uint32_t>(draw_ >> 32 << 16 | number >> 32);
    return philox({static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(draw_), high, stream_}, key_);
  }

 private:
  PhiloxKey key_;
  std::uint32_t stream_;
  std::uint64_t draw_;
};

// Separates the words of a generator from those that dropout draws with the same seed.
constexpr std::uint32_t generator_domain = 0x67656e72;

/// Fills rows [begin, end) of a draw. In row order, each block of words provides the four elements four(words).
template <class T, class Four>
void fill(Matrix<T> out, const Words& words, Four four, Index begin, Index end) {
  auto n = static_cast<std::uint64_t>(begin * out.width);
  std::array<T, 4> values = four(words.block(n / 4));
  for (Index r = begin; r < end; ++r) {
    for (Index c = 0; c < out.width; ++c, ++n) {
      if (n % 4 == 0) values = four(words.block(n / 4));
      out.row(r)[c] = values[n % 4];
    }
  }
}

/// Fills all rows, with the help of idle workers.
template <class T, class Four>
void fill(Matrix<T> out, const Words& words, Four four) {
  constexpr Index elements_a_piece = 1 << 14;  // about 0.1 ms
  const Index rows = std::max<Index>(1, elements_a_piece / std::max<Index>(out.width, 1));
  parallel_for(static_cast<std::size_t>(out.rows), static_cast<std::size_t>(rows),
               [&](std::size_t begin, std::size_t end) {
                 fill(out, words, four, static_cast<Index>(begin), static_cast<Index>(end));
               });
}

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

}  // namespace

Generator::Generator(Engine& engine, std::uint64_t seed, std::uint32_t stream, Site from)
    : key_(philox_key(seed)),
      stream_(stream),
      draws_(engine, engine.watcher() ? page_allocator() : host_allocator(), sizeof(std::uint64_t), "generator") {
  key_[1] ^= generator_domain;
  engine.push([bytes = draws_.bytes()] { ::new (bytes.write()) std::uint64_t(0); }, {overwrite(var())},
              {.name = "seed", .pushed_at = from});
}

template <class T, class Four>
void Generator::draw(const TensorOf<T>& out, OpName name, Site pushed_at, Four four) {
  out.fill(
      [key = key_, stream = stream_, bytes = draws_.bytes(), four](const Matrix<T>& to) {
        auto& draws = *std::launder(reinterpret_cast<std::uint64_t*>(bytes.update()));
        windrow::fill(to, Words(key, stream, draws++), four);
      },
      {mutate(var())}, {.name = name, .pushed_at = pushed_at});
}

void Generator::uniform(const Tensor& out, float low, float high, Site pushed_at) {
  if (!(low < high && std::isfinite(high - low))) throw bad_range("uniform", low, high, "low < high");
  const float below = std::nextafter(high, low);
  draw(out, "uniform", pushed_at, [low, high, below](const PhiloxCounter& words) {
    std::array<float, 4> values{};
    for (std::size_t i = 0; i < 4; ++i) {
      values[i] = std::min(below, low + (high - low) * unit_uniform(words[i]));  // the sum may round up to high
    }
    return values;
  });
}

void Generator::normal(const Tensor& out, float mean, float deviation, Site pushed_at) {
  if (!(deviation >= 0 && std::isfinite(mean) && std::isfinite(deviation))) {
    throw bad_range("normal", mean, deviation, "mean and deviation >= 0");
  }
  draw(out, "normal", pushed_at, [mean, deviation](const PhiloxCounter& words) {
    const auto [a, b] = normal_pair(words[0], words[1]);
    const auto [c, d] = normal_pair(words[2], words[3]);
    const auto scaled = [&](double unit) { return static_cast<float>(mean + deviation * unit); };
    return std::array{scaled(a), scaled(b), scaled(c), scaled(d)};
  });
}

void Generator::dropout_keys(const IntTensor& out, Site pushed_at) {
  if (out.width() != 3) {
    throw MisuseError("dropout_keys: a tensor of width " + std::to_string(out.width()) + "; expected 3");
  }
  draw(out, "dropout_keys", pushed_at,
       [](const PhiloxCounter& words) { return std::bit_cast<std::array<std::int32_t, 4>>(words); });
}

}  // namespace windrow
