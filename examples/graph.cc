// Ops that run many times: captured once as a graph, then launched.
#include <cstdio>

#include "windrow/engine/engine.h"

int main() {
  double x = 1, y = 0;
  windrow::Engine engine;
  windrow::Var a = engine.new_var("x"), b = engine.new_var("y");

  const windrow::Graph step = engine.capture([&] {
    engine.push([&] { y = 2 / x; }, {read(a), overwrite(b)}, {.name = "divide"});
    engine.push([&] { x = (x + y) / 2; }, {read(b), mutate(a)}, {.name = "average"});
  });
  for (int i = 0; i < 6; ++i) step.launch();

  engine.wait(a);
  std::printf("the root of 2 is %.6f\n", x);
}
