// Rare push options: a byte count, a stop token and a deadline. They travel inside the op's callable, so that plain ops
// pay nothing.
#pragma once

#include <chrono>
#include <stop_token>
#include <utility>

#include "core/pending_bytes.h"
#include "windrow/engine/engine.h"

namespace windrow {

/// The limits that end an op early. A value; should_stop() of the running op reads it.
struct OpLimits {
  std::stop_token stop;
  std::chrono::steady_clock::time_point deadline;  ///< {} for none

  bool passed() const { return deadline.time_since_epoch().count() != 0 && Clock::now() >= deadline; }
  bool reached() const { return stop.stop_requested() || passed(); }
  /// Throw Cancelled or DeadlineError.
  void require_begin() const;
  void require_end() const;

  /// Calls the function of an op, which sees the limits.
  void call(OpFunction& function, OpContext& context) const;
  /// The same for an asynchronous op, which has not finished when its function returns.
  void call(AsyncFunction& function, OnComplete done) const;

 private:
  using Clock = std::chrono::steady_clock;
};

/// Owns a function, and is callable like it.
template <class... Args>
struct LimitedFunction {
  PendingBytes::Share bytes;  // first, so that it ends after the function and its captures
  OpLimits limits;
  Function<void(Args...)> function;

  void operator()(Args... args) {
    limits.require_begin();
    limits.call(function, std::forward<Args>(args)...);
  }
};

}  // namespace windrow
