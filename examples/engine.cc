// The shortest program: three ops on values. The engine runs the two loads in parallel, and the addition after both.
#include <cstdio>

#include "windrow/engine/value.h"

int main() {
  windrow::Engine engine;
  windrow::Value<int> x(engine, "x"), y(engine, "y"), sum(engine, "sum");

  engine.push([](int& loaded) { loaded = 40; }, overwrite(x), {.name = "load x"});  // these two may run
  engine.push([](int& loaded) { loaded = 2; }, overwrite(y), {.name = "load y"});   // at the same time
  engine.push([](int a, int b, int& total) { total = a + b; }, read(x), read(y), overwrite(sum), {.name = "add"});

  std::printf("sum = %d\n", sum.get());  // waits
}
