// Two ops write one int and do not say so: a race, on purpose.
#include <windrow/engine/engine.h>

#include <atomic>
#include <cstdio>
#include <thread>

int main() {
  volatile int x = 0;
  std::atomic<int> inside{0};
  // Relaxed, so that meeting orders nothing; bounded, so that nothing hangs.
  const auto meet = [&] {
    inside.fetch_add(1, std::memory_order_relaxed);
    for (int i = 0; i < 1000000 && inside.load(std::memory_order_relaxed) < 2; ++i) std::this_thread::yield();
  };
  // Many times: of two writes at the very same instant the sanitizer may miss both.
  const auto increment = [&] {
    for (int i = 0; i < 1000; ++i) x = x + 1;
  };
  {
    windrow::Engine engine({.workers = 2});
    const windrow::Var a = engine.new_var(), b = engine.new_var();
    engine.push([&] { meet(), increment(); }, {mutate(a)});
    engine.push([&] { meet(), increment(); }, {mutate(b)});
  }
  std::printf("done\n");
}
