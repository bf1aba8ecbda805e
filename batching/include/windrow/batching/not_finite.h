// The error of a loss that is not finite.
#pragma once
#include "windrow/engine/requirements.h"

#include "windrow/engine/error.h"

namespace windrow {

/// Fails the op that adds up the losses of a minibatch, so it is the root of the OpError that waits for these losses
/// throw: a loss is infinite or NaN. The text names the vertex, and where the first such value comes from.
class NotFiniteError : public Error {
 public:
  using Error::Error;
};

}  // namespace windrow
