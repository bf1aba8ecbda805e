// The window that the attributes of convolutions and pooling hold.
#pragma once

#include "windrow/ops/operators.h"

namespace windrow {

inline op::Window2d window_of(const Attributes& sliding) {
  const auto& s = sliding.sizes;
  return {.channels = s[0],
          .height = s[1],
          .width = s[2],
          .window_height = s[3],
          .window_width = s[4],
          .stride = s[5],
          .padding = s[6]};
}

}  // namespace windrow
