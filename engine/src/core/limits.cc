// Reasons for ending an op early: a stop token, a deadline, and the end of the engine.
#include "core/core.h"
#include "core/op_limits.h"

namespace windrow {
namespace {

/// The time since the deadline, which may be the earliest possible time.
std::string late_by(std::chrono::steady_clock::time_point deadline) {
  using Clock = std::chrono::steady_clock;
  constexpr Clock::duration most = Clock::duration::max();
  const Clock::time_point now = Clock::now();
  const auto time = deadline < now - most ? most : now - deadline;
  return std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(time).count()) + " us";
}

/// Nests the currently handled exception.
class CalledOff final : public Cancelled, public std::nested_exception {
 public:
  const char* what() const noexcept override { return "called off by shutdown_for"; }
};

bool engine_gives_up(const Running* frame) { return frame != nullptr && frame->core->life.gives_up(); }

}  // namespace

std::exception_ptr called_off_error() {
  try {
    throw Error("shutdown_for has waited in vain");
  } catch (...) {
    return std::make_exception_ptr(CalledOff());
  }
}

void OpLimits::require_begin() const {
  if (stop.stop_requested()) throw Cancelled();
  if (passed()) throw DeadlineError("its deadline had passed by " + late_by(deadline) + " when its turn came");
}

void OpLimits::require_end() const {
  if (passed()) throw DeadlineError("it ended " + late_by(deadline) + " after its deadline");
}

void OpLimits::call(OpFunction& function, OpContext& context) const {
  // Restores the context, since a thread uses it for several ops.
  struct Shown {
    OpContext& to;
    explicit Shown(OpContext& context, const OpLimits* limits) : to(context) { to.limits_ = limits; }
    ~Shown() { to.limits_ = nullptr; }
  };
  {
    const Shown shown(context, this);
    function(context);
  }
  require_end();
}

void OpLimits::call(AsyncFunction& function, OnComplete done) const {
  done.limits_ = this;
  function(std::move(done));
}

void OpContext::throw_if_poisoned() const {
  if (!failure_) return;
  FailureLog::mark_reported({&failure_, 1});
  const Running* const frame = Running::innermost();
  throw OpError({failure_}, frame == nullptr ? nullptr : frame->core->link);
}

bool OpContext::should_stop() const {
  return (limits_ != nullptr && limits_->reached()) || engine_gives_up(Running::innermost());
}

bool OnComplete::should_stop() const {
  return op_ != nullptr && ((limits_ != nullptr && limits_->reached()) || core_->life.gives_up());
}

}  // namespace windrow
