// An image in tiles: each tile is blurred as soon as its neighbours are loaded, and a sum needs all of them.
#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>
#include <span>

#include "windrow/engine/value.h"

namespace {

constexpr std::size_t size = 64;
using Tile = std::array<double, size>;

void load(std::size_t number, Tile& tile) { tile.fill(static_cast<double>(number)); }

void blur(const Tile& left, const Tile& own, const Tile& right, Tile& blurred) {
  for (std::size_t i = 0; i < size; ++i) blurred[i] = (left[i] + 2 * own[i] + right[i]) / 4;
}

}  // namespace

int main() {
  windrow::Engine engine;
  constexpr std::size_t n = 8;
  windrow::Values<Tile> raw(engine, "raw", n), blurred(engine, "blurred", n);
  for (std::size_t i = 0; i < n; ++i) {
    engine.push([i](Tile& tile) { load(i, tile); }, overwrite(raw[i]), {.name = "load"});
  }
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t left = i == 0 ? i : i - 1, right = std::min(i + 1, n - 1);
    engine.push(blur, read(raw[left]), read(raw[i]), read(raw[right]), overwrite(blurred[i]), {.name = "blur"});
  }
  const auto total = [](std::span<const Tile> tiles) {
    double sum = 0;
    for (const Tile& tile : tiles) sum = std::accumulate(tile.begin(), tile.end(), sum);
    return sum;
  };
  windrow::Value<double> brightness = engine.run(total, read(all(blurred)), {.name = "total"});
  std::printf("brightness %.1f\n", brightness.get());
}
