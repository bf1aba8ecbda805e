// A fixture with an engine, its host device, and tensors with random elements.
#pragma once

#include "tests/engine/support.h"
#include "windrow/ops/random.h"

namespace windrow::testing {

class DrawnTensors : public ::testing::Test {
 protected:
  Tensor drawn(Index rows, Index width, OpName name = "drawn") {
    const Tensor tensor(host_, rows, width, name);
    draws_.uniform(tensor, -1, 1);
    return tensor;
  }

  Engine engine_;
  const Device host_ = host_device(engine_);
  Generator draws_{engine_, 5};
};

}  // namespace windrow::testing
