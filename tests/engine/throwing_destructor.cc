// Does not compile: the engine could not catch what such a destructor throws.
#include "windrow/engine/engine.h"

struct Throws {
  ~Throws() noexcept(false) {}
  void operator()() const {}
};

void push(windrow::Engine& engine) { engine.push(Throws(), {}); }
