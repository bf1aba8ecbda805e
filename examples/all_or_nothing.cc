// An update of several variables that happens as a whole or not at all: ops that may fail compute fresh values, and one
// op that cannot fail moves them in. After a failure the program heals what it has poisoned, and goes on.
#include <cstdio>
#include <stdexcept>
#include <string>

#include "windrow/engine/engine.h"

int main() {
  int current = 100, savings = 0;  // must outlive the engine
  int new_current = 0, new_savings = 0;
  windrow::Engine engine;
  const windrow::Var c = engine.new_var("current"), s = engine.new_var("savings");
  const windrow::Var nc = engine.new_var("new current"), ns = engine.new_var("new savings");

  const auto transfer = [&](int amount) {
    engine.push([&, amount] { new_savings = savings + amount; }, {read(s), overwrite(ns)}, {.name = "deposit"});
    engine.push(
        [&, amount] {
          if (amount > current) throw std::runtime_error(std::to_string(current) + " are less than needed");
          new_current = current - amount;
        },
        {read(c), overwrite(nc)}, {.name = "withdraw"});
    // Runs only if both have succeeded. Otherwise it is skipped, and poisons both balances without having touched them.
    engine.push([&] { current = new_current, savings = new_savings; }, {read(nc), read(ns), overwrite(c), overwrite(s)},
                {.name = "commit"});
  };

  for (const int amount : {30, 300, 20}) {
    transfer(amount);
    try {
      engine.wait_all();
    } catch (const windrow::OpError& error) {
      std::printf("no transfer of %d: %s\n", amount, error.what());
      for (const windrow::Poisoned& one : error.poisoned()) std::printf("heals '%s'\n", one.name.c_str());
      engine.heal(error);
    }
  }
  engine.wait({read(c), read(s)});
  std::printf("current %d, savings %d\n", current, savings);
}
