// Rare push options: a byte count and a stop token. They travel inside the op's callable, so that plain ops pay
// nothing.
#pragma once

#include <stop_token>
#include <utility>

#include "core/pending_bytes.h"
#include "windrow/engine/error.h"
#include "windrow/engine/function.h"

namespace windrow {

/// An owner. Callable like the function that it contains.
template <class... Args>
struct Adorned {
  PendingBytes::Share bytes;  // first, so that it ends after the function and its captures
  std::stop_token stop;
  Function<void(Args...)> function;

  void operator()(Args... args) {
    if (stop.stop_requested()) throw Cancelled();
    function(std::forward<Args>(args)...);
  }
};

}  // namespace windrow
