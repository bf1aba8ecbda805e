// Programs on values that must not compile, one for each number, and how they are written right (number 0).
#include <array>

#include "windrow/engine/reduction.h"
#include "windrow/engine/value.h"

struct Tile {
  std::array<int, 4> pixels;
};

/// Without a default constructor.
struct Report {
  explicit Report(int n) : lines(n) {}
  int lines;
};

void wrong(windrow::Engine& engine, windrow::Value<Tile>& x, windrow::Value<Tile>& b, windrow::Value<int>& n,
           windrow::Values<Tile>& tiles, const windrow::Value<Tile>& fixed) {
#if CASE == 0
  engine.push([](const Tile& from, Tile& to) { to = from; }, read(x), overwrite(b));
  engine.push([](windrow::OpContext&, Tile from, int& count) { count = from.pixels[0]; }, read(x), mutate(n));
  engine.push([](std::span<const Tile> all, long count) { (void)all, (void)count; }, read(all(tiles)), read(n));
  engine.push([](auto&&...) {}, read(fixed), mutate(tiles[1]), commute(n), {.name = "any"});
  windrow::Value<int> sum = engine.run([](const Tile& t) { return t.pixels[0]; }, read(fixed));
  engine.push([](auto& count) { count = 5; }, overwrite(n));
  engine.push([](auto&... all) { ((all += 1), ...); }, mutate(n), mutate(sum));
  engine.push([](windrow::OpContext&, auto& count) { count = 5; }, windrow::overwrite(n), mutate(x.var()));
  engine.push([] {}, mutate(x.var()), read(b.var()));
  engine.push([](std::int64_t a, double c, short d) { (void)a, (void)c, (void)d; },
              read(engine.run([] { return 1LL; })), read(n), read(engine.run([] { return std::int8_t{1}; })));
#elif CASE == 1   // forgets an access
  engine.push([](const Tile& from, Tile& to) { to = from; }, overwrite(b));
#elif CASE == 2   // does not take what it declares
  engine.push([](Tile& to) { to = {}; }, read(x), overwrite(b));
#elif CASE == 3   // changes what it reads
  engine.push([](Tile& from, Tile& to) { to = from; }, read(x), overwrite(b));
#elif CASE == 4   // changes a copy
  engine.push([](const Tile& from, Tile to) { to = from; }, read(x), overwrite(b));
#elif CASE == 5   // in another order
  engine.push([](const Tile& from, int& count) { count = from.pixels[0]; }, mutate(n), read(x));
#elif CASE == 6   // a generic function
  engine.push([](auto& count, const auto& from) { count = from.pixels[0]; }, read(n), read(x));
#elif CASE == 7   // writes elements of a range that it reads
  engine.push([](std::span<Tile> all) { all[0] = {}; }, read(all(tiles)));
#elif CASE == 8   // writes a constant
  engine.push([](Tile& to) { to = {}; }, mutate(fixed));
#elif CASE == 9   // no result
  engine.run([](const Tile&) {}, read(x));
#elif CASE == 10  // a result that cannot be stored
  engine.run([](int count) { return Report(count); }, read(n));
#elif CASE == 11  // a declared op
  engine.declare([](const Tile&, int&) {}, read(x));
#elif CASE == 12  // a reduction
  windrow::Reduction<int>(engine, 0).add([](int& part, Tile& t) { part += t.pixels[0]; }, read(x));
#elif CASE == 13  // writes elements of constants
  const windrow::Values<Tile>& constants = tiles;
  engine.push([](std::span<Tile> all) { all[0] = {}; }, mutate(all(constants)));
#elif CASE == 14  // has no objects
  windrow::Values<bool>(engine, "flags", 3);
#elif CASE == 15  // a generic function of two values
  engine.push([](auto&, auto& count) { count = 5; }, overwrite(n));
#elif CASE == 16  // a number that may not fit
  engine.push([](int count, long other) { (void)count, (void)other; }, read(engine.run([] { return 0.5; })), read(n));
#elif CASE == 19  // a sign that is lost
  engine.push([](unsigned count) { (void)count; }, read(n));
#elif CASE == 20  // changes a number made of it
  engine.push([](double&& count) { count = 3; }, mutate(n));
#elif CASE == 17  // no access
  engine.push([] {});
#elif CASE == 18  // a value in place of an access
  engine.push([](int& count, const Tile&) { count = 5; }, overwrite(n), x);
#endif
}
