#include "capture.h"

#include <algorithm>
#include <utility>

#include "core.h"
#include "entry.h"

namespace windrow {

Capture::Capture(Core& core, Port& port) : core_(core), port_(port) {
  if (port.busy != Port::Busy::no) throw MisuseError("capture inside a capture, or inside a push, of the same engine");
  port.busy = Port::Busy::capturing;
  port.capture = this;
}

Capture::~Capture() {
  port_.busy = Port::Busy::no;
  port_.capture = nullptr;
}

void Capture::add(std::shared_ptr<CapturedOp> op) {
  op->accesses.resize(Dep::canonicalise(op->accesses));
  for (const Dep::Access& access : op->accesses) {
    if (!retired_.contains(&access.var())) continue;
    throw MisuseError(site(*op->info) + " names variable '" + std::string(var_of(access).name) +
                      "', which was retired earlier in the capture");
  }
  if (op->retires != CapturedOp::Retires::nothing) retired_.insert(&op->accesses.front().var());
  recorded_.push_back(op.get());
  ops_.push_back(std::move(op));
}

void Capture::add(GraphState& graph) {
  MutexLock lock(graph.mutex);
  for (const std::shared_ptr<CapturedOp>& op : graph.plan->ops()) {
    for (const Dep::Access& access : op->accesses) {
      if (retired_.contains(&access.var())) {
        throw MisuseError("launch inside a capture names variable '" + std::string(var_of(access).name) +
                          "', which was retired earlier in the capture");
      }
    }
  }
  for (const std::shared_ptr<CapturedOp>& op : graph.plan->ops()) {
    if (op->retires == CapturedOp::Retires::foreign) retired_.insert(&op->accesses.front().var());
    ops_.push_back(op);
  }
  owned_.insert(owned_.end(), graph.owned.begin(), graph.owned.end());
}

void Capture::take_over_variables() {
  for (const Var& var : made_) {
    const auto retired = std::find_if(recorded_.begin(), recorded_.end(), [&](const CapturedOp* op) {
      return op->retires == CapturedOp::Retires::foreign && core_.is(var, op->accesses.front());
    });
    if (retired == recorded_.end()) continue;
    (*retired)->retires = CapturedOp::Retires::own;
    const Var own = core_.take_over(var);
    owned_.push_back(core_.retire_at_end_of_life(own));
    for (CapturedOp* op : recorded_) {
      for (Dep::Access& access : op->accesses) {
        if (core_.is(var, access)) access = core_.access(own, access.kind());
      }
    }
  }
}

void Capture::finish(GraphState& graph) {
  take_over_variables();
  std::shared_ptr<GraphPlan> before;  // goes without the lock: captures are user code
  MutexLock lock(graph.mutex);
  CapturedOps all = graph.plan ? graph.plan->ops() : CapturedOps();
  all.insert(all.end(), ops_.begin(), ops_.end());
  std::vector<std::shared_ptr<const void>> owned = graph.owned;
  owned.insert(owned.end(), owned_.begin(), owned_.end());
  auto plan = std::make_shared<GraphPlan>(std::move(all), owned);
  graph.owned.swap(owned);
  before = std::exchange(graph.plan, std::move(plan));
  lock.unlock();
}

}  // namespace windrow
