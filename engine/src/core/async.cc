// Async ops, which finish when their OnComplete is called.
#include "core/core.h"
#include "core/entry.h"
#include "core/op_limits.h"

namespace windrow {

OpRecord* Back::run_async(OpRecord& op, const Begin& begin, FailurePtr poison) {
  const auto [slots, begun] = begin;
  AsyncBody& body = op.async();
  body.poison = std::move(poison);
  body.begun = begun;
  if (access_check) begin_check(op);
  Lane* const lane = op.info().lane->ordered.get();
  if (lane != nullptr) {
    body.error = begin_issue(op, body.keeper);
    body.issued = !body.error;
    if (!body.issued) {
      if (access_check) end_check(op, body.error);
      return finish_async(op, slots);  // the function was not called, so no OnComplete exists
    }
  }
  {
    const Running frame(core_, op, slots);
    body.error = invoke(op, body.poison);
    if (lane != nullptr) {
      std::exception_ptr error = lane->leave();
      if (!body.error) body.error = std::move(error);
    }
    if (access_check) end_check(op, body.error);
    if (begun != 0) core_.monitor.record_call(op, begun);
    op.set_stage(OpRecord::Stage::has_returned);
    if (!count_down(body)) return nullptr;  // the call of its OnComplete finishes the op, or has done so
  }
  return finish_async(op, slots);
}

void Back::complete(OpRecord& op, std::exception_ptr outcome) noexcept {
  const Visit visit(core_);
  AsyncBody& body = op.async();
  body.outcome = std::move(outcome);
  if (!count_down(body)) return;  // the function still runs
  if (core_.front.ports.mine_if_any() != nullptr) {
    finish_async(op, nullptr);
    return;
  }
  body.left_to_engine = true;
  policy->add(op);
}

bool Back::count_down(AsyncBody& body) { return body.parts.fetch_sub(1) == 1; }

OpRecord* Back::finish_async(OpRecord& op, Slots* slots) {
  AsyncBody& body = op.async();
  body.left_to_engine = false;
  Ending ending{.outcome = Outcome::ran,
                .poison = std::move(body.poison),
                .begun = body.begun,
                .slots = slots,
                .kind = TraceRecord::Kind::async_op};
  // An exception of the function is more informative than the dropped OnComplete that results from it.
  ending.error = body.error ? std::move(body.error) : std::move(body.outcome);
  {
    const Running frame(core_, op, slots);
    if (body.issued) {
      Lane& lane = *op.info().lane->ordered;
      lane.enter();
      ending.mark = leave_point(op);
      std::exception_ptr error = lane.leave();
      if (!ending.error) ending.error = std::move(error);
      if (OpRecord* const keeper = std::exchange(body.keeper, nullptr)) {
        core_.lanes.keep(*keeper, op.take_captures(), *op.info().lane, ending.mark->point, core_.front.ports.mine());
      }
    }
    op.end_body();
  }
  if (ending.error) ending.outcome = Outcome::failed;
  // Even a serial engine does not wait for the point here, since this may be the lane's own thread.
  if (access_check) {
    access_check->let_go(op, op.info().lane->ordered ? AccessCheck::End::of_issue : AccessCheck::End::of_async);
  }
  return finish(op, ending);
}

OnComplete& OnComplete::operator=(OnComplete&& other) noexcept {
  if (this != &other) {
    drop();
    core_ = std::exchange(other.core_, nullptr);
    op_ = std::exchange(other.op_, nullptr);
    limits_ = other.limits_;
  }
  return *this;
}

OnComplete::~OnComplete() { drop(); }

void OnComplete::operator()(std::exception_ptr error) {
  if (op_ == nullptr) throw MisuseError("OnComplete was called before, or moved from; call each token once");
  if (limits_ != nullptr && !error) {
    try {
      limits_->require_end();
    } catch (...) {
      error = std::current_exception();
    }
  }
  std::exchange(core_, nullptr)->back.complete(*std::exchange(op_, nullptr), std::move(error));
}

Lane* OnComplete::lane() const { return op_ == nullptr ? nullptr : op_->info().lane->ordered.get(); }

FailurePtr OnComplete::failure() const { return op_ == nullptr ? nullptr : op_->async().poison; }

std::exception_ptr dropped_error() {
  return std::make_exception_ptr(Error("its OnComplete was destroyed without being called"));
}

std::exception_ptr Back::dropped() const noexcept {
  try {
    return dropped_error();
  } catch (const std::bad_alloc&) {
    return dropped_;
  }
}

void OnComplete::drop() noexcept {
  if (op_ != nullptr) (*this)(core_->back.dropped());
}

}  // namespace windrow
