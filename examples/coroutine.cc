// A coroutine waits for ops without blocking a thread. What it pushes next depends on the value that it awaited.
#include "windrow/engine/coroutine.h"

#include <coroutine>
#include <cstdio>
#include <exception>

namespace {

/// A coroutine that starts at once and that nothing awaits.
struct Detached {
  struct promise_type {
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() noexcept {
      try {
        throw;
      } catch (const std::exception& e) {  // for example, the awaited variable is poisoned
        std::fprintf(stderr, "%s\n", e.what());
      }
    }
  };
};

// Takes everything as a parameter and captures nothing, because a coroutine outlives the call that started it.
Detached find_root(windrow::Engine& engine, double of, double& x) {
  const windrow::Var var = engine.new_var("x");
  int steps = 0;
  while (x * x - of > 1e-12 || of - x * x > 1e-12) {
    engine.push([of, &x] { x = (x + of / x) / 2; }, {mutate(var)}, {.name = "improve"});
    co_await engine.ready(var);
    ++steps;
  }
  std::printf("the root of %.0f is %.6f, after %d steps\n", of, x, steps);
}

}  // namespace

int main() {
  windrow::Engine engine;
  double x = 1, y = 1;
  find_root(engine, 2, x);
  find_root(engine, 1000, y);
  engine.wait_all();
}
