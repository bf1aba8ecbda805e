// A fixture with an engine, its host device, and tensors of given and of random elements.
#pragma once

#include "tests/ops/cases.h"
#include "windrow/ops/random.h"

namespace windrow::testing {

class HostTensors : public ::testing::Test {
 protected:
  explicit HostTensors(const EngineOptions& options = {.policy = Policy::pool, .workers = 2}) : engine(options) {}

  Tensor tensor(Index rows, Index width, Floats values, OpName name = "tensor") const {
    const Tensor made(host, rows, width, name);
    made.set(std::move(values));
    return made;
  }
  Tensor filled(Index rows, Index width, float value) const {
    return tensor(rows, width, Floats(static_cast<std::size_t>(rows * width), value));
  }
  IntTensor ints(Index rows, Index width, std::vector<std::int32_t> values) const {
    const IntTensor made(host, rows, width, "ints");
    made.set(std::move(values));
    return made;
  }
  Tensor drawn(Index rows, Index width, OpName name = "drawn") {
    const Tensor made(host, rows, width, name);
    draws.uniform(made, -1, 1);
    return made;
  }

  Engine engine;
  Device host = host_device(engine);
  Generator draws{engine, 7};
};

}  // namespace windrow::testing
