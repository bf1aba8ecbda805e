// Ops that run many times: captured once as a graph, then launched.
#include <cstdio>

#include "windrow/engine/value.h"

int main() {
  windrow::Engine engine;
  windrow::Value<double> x(engine, "x", 1), y(engine, "y");

  const windrow::Graph step = engine.capture([&] {
    engine.push([](double& quotient, double divisor) { quotient = 2 / divisor; }, overwrite(y), read(x));
    engine.push([](double& mean, double other) { mean = (mean + other) / 2; }, mutate(x), read(y));
  });
  for (int i = 0; i < 6; ++i) step.launch();

  std::printf("the root of 2 is %.6f\n", x.get());
}
