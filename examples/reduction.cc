// Ops that add to one value: with commute, one at a time in any order; with a Reduction, concurrently and reproducibly.
#include "windrow/engine/reduction.h"

#include <cstdio>

#include "windrow/engine/engine.h"

int main() {
  windrow::Engine engine;

  // One at a time, in any order: an op that is ready does not wait for an earlier op that is not.
  int words = 0;
  const windrow::Var count = engine.new_var("count");
  for (int document = 1; document <= 100; ++document) {
    engine.push([&words, document] { words += document; }, {commute(count)}, {.name = "count"});
  }
  engine.wait(count);

  // Concurrently, then combined in a fixed order: the sum has the same bits with any number of workers.
  windrow::Reduction<float> sum(engine, 0.0f);
  for (int i = 1; i <= 1000; ++i) sum.add([i](float& part) { part += 1.0f / static_cast<float>(i); });
  engine.wait({sum.read()});
  std::printf("%d words, harmonic sum %.4f\n", words, static_cast<double>(sum.value()));
}
