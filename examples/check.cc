// The checking mode finds ops that access a variable without declaring it, and says what to declare. Reads are found in
// whole pages, which page_allocator() gives.
#include <cstdio>

#include "windrow/engine/engine.h"
#include "windrow/memory/buffer.h"

namespace {

float* floats(std::byte* bytes) { return reinterpret_cast<float*>(bytes); }

}  // namespace

int main() {
  windrow::Engine engine({.check = true});
  windrow::Buffer weights(engine, windrow::page_allocator(), 100 * sizeof(float), "weights");
  windrow::Buffer sum(engine, windrow::page_allocator(), sizeof(float), "sum");
  const windrow::Var w = weights.var(), s = sum.var();
  engine.push([all = weights.bytes()] { floats(all.write_cleared())[7] = 1; }, {overwrite(w)}, {.name = "load"});
  engine.push([all = sum.bytes()] { all.write_cleared(); }, {overwrite(s)}, {.name = "begin"});

  const auto add = [all = weights.bytes(), to = sum.bytes()] { *floats(to.update()) += floats(all.update())[7]; };
  const auto take = [all = weights.bytes(), to = sum.bytes()] {
    *floats(to.update()) += floats(all.update())[7];
    floats(all.update())[7] = 0;
  };
  engine.push(add, {read(w), mutate(s)}, {.name = "add"});
  engine.push(add, {mutate(s)}, {.name = "forgets"});
  engine.push(take, {read(w), overwrite(s)}, {.name = "takes"});
  try {
    engine.wait_all();
  } catch (const windrow::OpError& error) {
    for (const windrow::FailurePtr& failure : error.failures()) std::printf("%s\n", failure->describe().c_str());
  }
}
