// Records what the engine does and when: a timeline for ui.perfetto.dev, and a summary.
//
//   load 0 ──> square 0 ──┐
//   load 1 ──> square 1 ──┼──> sum
//   load 2 ──> square 2 ──┘
#include <windrow/engine/engine.h>

#include <array>
#include <iostream>

int main() {
  windrow::Engine engine;
  std::array<double, 3> value{};
  std::array<windrow::Var, 3> var;
  double sum = 0;
  const windrow::Var total = engine.new_var("total");

  engine.trace().start();
  for (std::size_t i = 0; i < value.size(); ++i) {
    var[i] = engine.new_var("value");
    engine.push([&, i] { value[i] = static_cast<double>(i + 1); }, {overwrite(var[i])}, {.name = "load"});
    engine.push([&, i] { value[i] *= value[i]; }, {mutate(var[i])}, {.name = "square"});
  }
  engine.push([&] { sum = value[0] + value[1] + value[2]; },
              {read(var[0]), read(var[1]), read(var[2]), overwrite(total)}, {.name = "sum"});
  engine.wait(total);

  engine.trace().stop();
  engine.trace().save("trace_example.json");
  std::cout << engine.trace().summary() << "sum = " << sum << '\n';
}
