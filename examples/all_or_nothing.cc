// An update of several values that happens as a whole or not at all: ops that may fail compute fresh values, and one op
// that cannot fail moves them in. After a failure the program heals what it has poisoned, and goes on.
#include <cstdio>
#include <stdexcept>
#include <string>

#include "windrow/engine/value.h"

int withdrawn(int balance, int amount) {
  if (amount > balance) throw std::runtime_error(std::to_string(balance) + " are less than needed");
  return balance - amount;
}

int main() {
  windrow::Engine engine;
  windrow::Value<int> current(engine, "current", 100), savings(engine, "savings", 0);

  const auto transfer = [&](int amount) {
    const auto less =
        engine.run([amount](int balance) { return withdrawn(balance, amount); }, read(current), {.name = "withdraw"});
    const auto more =
        engine.run([amount](int balance) { return balance + amount; }, read(savings), {.name = "deposit"});
    // Runs only if both have succeeded. Otherwise it is skipped, and poisons both balances without having touched them.
    const auto move_in = [](int fresh_current, int fresh_savings, int& c, int& s) {
      c = fresh_current, s = fresh_savings;
    };
    engine.push(move_in, read(less), read(more), overwrite(current), overwrite(savings), {.name = "commit"});
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
  std::printf("current %d, savings %d\n", current.get(), savings.get());
}
