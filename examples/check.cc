// The checking mode finds an op that changes a variable without declaring it, and names the op and the variable.
#include <cstdio>
#include <span>
#include <vector>

#include "windrow/engine/engine.h"

int main() {
  std::vector<float> weights(100, 1.0f), sum(1);  // must outlive the engine and its variables
  windrow::Engine engine({.check = true});
  const windrow::Var w = engine.new_var("weights"), s = engine.new_var("sum");
  engine.watch(w, std::as_writable_bytes(std::span(weights)));
  engine.watch(s, std::as_writable_bytes(std::span(sum)));

  engine.push([&] { sum[0] += weights[7], weights[7] = 0; }, {read(w), mutate(s)}, {.name = "add"});
  try {
    engine.wait(s);
  } catch (const windrow::OpError& error) {
    std::printf("%s\n", error.what());
  }
}
