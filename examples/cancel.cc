// Cancelled ops: an op that has not started does not run, and ops that need its result are skipped and say why.
#include <cstdio>
#include <stop_token>

#include "windrow/engine/engine.h"

int main() {
  windrow::Engine engine;
  const windrow::Var index = engine.new_var("index"), answer = engine.new_var("answer");
  std::stop_source query;

  engine.push([&] { query.request_stop(); }, {mutate(index)}, {.name = "give up"});
  engine.push([] { std::puts("never seen"); }, {read(index), overwrite(answer)},
              {.name = "search", .stop = query.get_token()});
  engine.push([] { std::puts("nor this"); }, {read(answer)}, {.name = "show"});
  try {
    engine.wait(answer);
  } catch (const windrow::OpError& error) {
    std::printf("%s\n", error.what());
  }
  const windrow::EngineStats stats = engine.stats();
  std::printf("%llu cancelled\n", static_cast<unsigned long long>(stats.cancelled));
  engine.heal(answer);
  engine.wait_all();
}
