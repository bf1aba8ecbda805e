#include "record/replayed_ops.h"

namespace windrow {
namespace {

void run_all(OpContext& op, std::span<OpFunction> functions) {
  for (OpFunction& function : functions) function(op);
}

}  // namespace

void CapturedRun::run(OpContext& op, std::span<OpFunction> functions) {
  const auto own = functions.subspan(first_, end_ - first_);
  if (work_ == nullptr && has_memory_ && !refused_) {
    workspaces_.clear();  // of a capture that failed
    const KeepWorkspaces keep(workspaces_);
    work_ = dynamic_cast<CapturingLane&>(*op.lane()).capture_work([&] { run_all(op, own); });
    refused_ = work_ == nullptr;
  }
  if (work_ != nullptr) return work_->issue();
  run_all(op, own);
  has_memory_ = true;
}

void ReplayedGroup::operator()(OpContext& op) const {
  const std::span<OpFunction> functions = of->functions;
  std::size_t next = first;
  for (std::size_t k = first_run; k < end_run; ++k) {
    CapturedRun& run = of->captured[k];
    run_all(op, functions.subspan(next, run.first() - next));
    run.run(op, functions);
    next = run.end();
  }
  run_all(op, functions.subspan(next, end - next));
}

}  // namespace windrow
