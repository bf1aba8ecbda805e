// A first example: three ops, ordered by the variables that they read and change. Start here.
//
//   load a ──┐
//            ├──> add ──> wait
//   load b ──┘
#include <windrow/engine/engine.h>

#include <cstdio>

int main() {
  int x = 0, y = 0, sum = 0;
  windrow::Engine engine;
  windrow::Var a = engine.new_var("a"), b = engine.new_var("b"), s = engine.new_var("s");

  engine.push([&] { x = 40; }, {overwrite(a)}, {.name = "load a"});  // these two may run
  engine.push([&] { y = 2; }, {overwrite(b)}, {.name = "load b"});   // at the same time
  engine.push([&] { sum = x + y; }, {read(a), read(b), overwrite(s)}, {.name = "add"});

  engine.wait(s);
  std::printf("sum = %d\n", sum);
}
