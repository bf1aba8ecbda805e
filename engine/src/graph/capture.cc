#include "graph/capture.h"

#include <utility>

#include "core/core.h"
#include "core/entry.h"

namespace windrow {
namespace {

/// Calls f(engine) when the graph ends, if the engine still exists.
template <class F>
std::shared_ptr<const void> at_end_of_graph(const std::shared_ptr<CoreLink>& link, F f) {
  struct End {
    ~End() { link->use(f); }
    const std::shared_ptr<CoreLink> link;
    const F f;
  };
  return std::make_shared<End>(link, std::move(f));
}

}  // namespace

Capture::Capture(GraphState& graph, Port& port, std::source_location from)
    : graph_(graph), core_(graph.core), port_(port), from_(from) {
  if (port.busy == Port::Busy::refusing) throw MisuseError("a capture: " + std::string(port.refuses_because));
  if (port.busy != Port::Busy::no) throw MisuseError("capture inside a capture, or inside a push, of the same engine");
  if (const std::shared_ptr<GraphPlan> plan = graph.plan_now()) {
    for (const std::shared_ptr<CapturedOp>& op : plan->ops()) {
      if (op->retires != CapturedOp::Retires::nothing) retired_.insert(&op->accesses.front().var());
    }
  }
  port.busy = Port::Busy::capturing;
  port.capture = this;
}

Capture::~Capture() {
  port_.busy = Port::Busy::no;
  port_.capture = nullptr;
  if (finished_) return;
  // These variables would have been retired with the graph.
  for (const std::shared_ptr<CapturedOp>& op : recorded_) {
    if (op->retires == CapturedOp::Retires::foreign) core_.front.retire_captured(*op);
  }
}

void Capture::made(const Var& var) { made_.emplace(&core_.front.access(var, AccessKind::mutate).var(), var); }

void Capture::refuse_retired(const CapturedOp& op) const {
  for (const Dep::Access& access : op.accesses) {
    if (!retired_.contains(&access.var())) continue;
    throw MisuseError(site(*op.info) + " names variable '" + std::string(var_of(access).name) +
                      "', which was retired earlier in the capture");
  }
}

void Capture::add(std::shared_ptr<CapturedOp> op) {
  for (Dep::Access& access : op->accesses) access = in_order(access);
  op->accesses.resize(Dep::canonicalise(op->accesses));
  refuse_retired(*op);
  core_.front.refuse_stale(*op);
  const std::size_t before = ops_.size();
  recorded_.push_back(op);
  try {
    ops_.push_back(op);
    if (op->retires != CapturedOp::Retires::nothing) {
      retired_.insert(&op->accesses.front().var());
      op->retired = {var_of(op->accesses.front()).name, op->info->pushed_at};
    }
  } catch (...) {  // the body may continue without the op
    ops_.resize(before);
    recorded_.pop_back();
    throw;
  }
}

void Capture::last_is_of(const char* owner) {
  recorded_.back()->retired.owner = owner;
  recorded_.back()->retired.captured_at = from_;  // the op was pushed by a destructor
}

void Capture::add(GraphState& graph) {
  MutexLock lock(graph.mutex);
  for (const std::shared_ptr<CapturedOp>& op : graph.plan->ops()) refuse_retired(*op);
  const std::size_t before = ops_.size(), owned_before = owned_.size();
  try {
    owned_.insert(owned_.end(), graph.owned.begin(), graph.owned.end());
    for (const std::shared_ptr<CapturedOp>& op : graph.plan->ops()) {
      ops_.push_back(op);
      if (op->retires == CapturedOp::Retires::foreign) retired_.insert(&op->accesses.front().var());
    }
  } catch (...) {
    ops_.resize(before);
    owned_.resize(owned_before);
    throw;
  }
}

void Capture::take_over_variables() {
  std::unordered_map<const Dep::Var*, Var> own;
  for (const std::shared_ptr<CapturedOp>& op : recorded_) {
    if (op->retires == CapturedOp::Retires::nothing) continue;
    const auto made = made_.find(&op->accesses.front().var());
    if (made == made_.end()) {
      // For a variable from outside: retired when the graph ends, unless a launch has retired it.
      owned_.push_back(at_end_of_graph(core_.link, [op](Core& core) { core.front.retire_captured(*op); }));
      continue;
    }
    op->retires = CapturedOp::Retires::own;
    const Var& now = own.emplace(made->first, core_.front.take_over(made->second)).first->second;
    owned_.push_back(at_end_of_graph(core_.link, [now](Core& core) { core.front.retire_own(now); }));
  }
  if (own.empty()) return;
  for (const std::shared_ptr<CapturedOp>& op : recorded_) {
    for (Dep::Access& access : op->accesses) {
      const auto found = own.find(&access.var());
      if (found != own.end()) access = core_.front.access(found->second, access.kind());
    }
  }
}

void Capture::finish() {
  GraphState& graph = graph_;
  take_over_variables();
  // Destroyed without the lock: destroying captures runs user code.
  std::shared_ptr<GraphPlan> before;
  MutexLock lock(graph.mutex);
  CapturedOps all = graph.plan ? graph.plan->ops() : CapturedOps();
  all.insert(all.end(), ops_.begin(), ops_.end());
  std::vector<std::shared_ptr<const void>> owned = graph.owned;
  owned.insert(owned.end(), owned_.begin(), owned_.end());
  auto plan = std::make_shared<GraphPlan>(std::move(all), owned);
  graph.owned.swap(owned);
  before = std::exchange(graph.plan, std::move(plan));
  finished_ = true;
  lock.unlock();
}

}  // namespace windrow
