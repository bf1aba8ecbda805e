#include "graph/plan.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "core/core.h"
#include "graph/capture.h"
#include "graph/launch.h"
#include "lane/lanes.h"

namespace windrow {
namespace {

constexpr std::uint32_t none = static_cast<std::uint32_t>(-1);

bool runs_by_a_call(const CapturedOp& op) {
  return op.kind == OpRecord::Body::function && op.retires == CapturedOp::Retires::nothing && op.priority == 0 &&
         op.info->lane->id == host_lane;
}

/// Pieces of one long vector. Pointers to pieces are taken only after the vector has stopped growing.
template <class T>
class Pieces {
 public:
  explicit Pieces(std::vector<T>& all) : all_(all) {}
  void begin_piece() { begins_.push_back(all_.size()); }
  void add(const T& value) { all_.push_back(value); }
  const T* piece(std::size_t i) const { return all_.data() + begins_[i]; }
  std::uint32_t length(std::size_t i) const {
    const std::size_t end = i + 1 < begins_.size() ? begins_[i + 1] : all_.size();
    return static_cast<std::uint32_t>(end - begins_[i]);
  }

 private:
  std::vector<T>& all_;
  std::vector<std::size_t> begins_;
};

}  // namespace

CapturedOp::~CapturedOp() {
  // The use ends before captures are destroyed, which may own the engine.
  if (core != nullptr) core->use([this](Core& engine) { engine.lanes.keep_captures(*this); });
}

/// Computes which op waits for which, as pushing the ops one after the other would.
class GraphPlan::Analysis {
 public:
  explicit Analysis(GraphPlan& plan) : plan_(plan), successors_(plan.ops_.size()), gates_to_leave_(plan.ops_.size()) {
    plan.nodes_.resize(plan.ops_.size());
    for (std::uint32_t i = 0; i < plan.nodes_.size(); ++i) add(i);
    make_gates();
    lay_out();
  }

 private:
  /// How the ops so far have used one variable.
  struct Use {
    std::vector<std::uint32_t> first_reads;  ///< before any write
    std::uint32_t first_write = none, last_write = none;
    std::vector<std::uint32_t> reads;  ///< since the last write
    bool retires = false;
    Dep::Access any;
  };

  void add(std::uint32_t i) {
    CapturedOp& op = *plan_.ops_[i];
    std::vector<std::uint32_t> predecessors;
    for (const Dep::Access& access : op.accesses) {
      const auto [at, fresh] = uses_.try_emplace(&access.var());
      Use& use = at->second;
      // If accesses name two lives of one variable, use the earlier one: that life is over, so no launch is possible.
      const bool earlier = static_cast<std::int32_t>(access.generation() - use.any.generation()) < 0;
      if (fresh || earlier) use.any = access;
      use.retires |= op.retires == CapturedOp::Retires::foreign;
      if (access.exclusive()) {
        predecessors.insert(predecessors.end(), use.reads.begin(), use.reads.end());
        if (use.reads.empty() && use.last_write != none) predecessors.push_back(use.last_write);
        if (use.first_write == none) use.first_write = i;
        use.last_write = i;
        use.reads.clear();
      } else {
        if (use.last_write != none) predecessors.push_back(use.last_write);
        (use.last_write == none ? use.first_reads : use.reads).push_back(i);
        if (use.last_write == none) use.reads.push_back(i);
      }
    }
    std::sort(predecessors.begin(), predecessors.end());
    predecessors.erase(std::unique(predecessors.begin(), predecessors.end()), predecessors.end());
    for (const std::uint32_t predecessor : predecessors) successors_[predecessor].push_back(i);

    PlanNode& node = plan_.nodes_[i];
    node.op = &op;
    node.number = i;
    node.awaits = static_cast<std::uint32_t>(predecessors.size());
    if (runs_by_a_call(op)) node.function = &op.function;
    if (op.retires == CapturedOp::Retires::foreign) plan_.retiring_.push_back(&op);
    if (std::find(plan_.lanes_.begin(), plan_.lanes_.end(), op.info->lane) == plan_.lanes_.end()) {
      plan_.lanes_.push_back(op.info->lane);
    }
  }

  void make_gates() {
    std::unordered_map<const Dep::Var*, std::uint32_t> first_gate;
    for (auto& [var, use] : uses_) {
      first_gate[var] = static_cast<std::uint32_t>(plan_.gates_.size());
      if (!use.first_reads.empty()) add_gate(use, AccessKind::read, use.first_reads, use.first_reads);
      if (use.first_write == none) continue;
      add_gate(use, AccessKind::mutate, {use.first_write}, {use.last_write});
      plan_.gates_.back().retires = use.retires;
      if (use.reads.empty()) continue;
      add_gate(use, AccessKind::read, {}, use.reads);
      plan_.gates_.back().counts_its_grant = true;
      ++plan_.gates_.back().departures;
    }
    for (PlanNode& node : plan_.nodes_) {
      plan_.first_access_.push_back(static_cast<std::uint32_t>(plan_.passages_.size()));
      for (const Dep::Access& access : node.op->accesses) {
        const Use& use = uses_.at(&access.var());
        std::uint32_t gate = first_gate.at(&access.var());
        const bool before = use.first_write == none || node.number < use.first_write;
        if (!before) gate += use.first_reads.empty() ? 0 : 1;
        if (!before && node.number > use.last_write) ++gate;
        plan_.passages_.push_back({gate, plan_.gates_[gate].accesses++});
      }
    }
  }

  void add_gate(const Use& use, AccessKind kind, std::vector<std::uint32_t> opens,
                const std::vector<std::uint32_t>& departures) {
    const auto number = static_cast<std::uint32_t>(plan_.gates_.size());
    for (const std::uint32_t node : opens) ++plan_.nodes_[node].awaits;
    for (const std::uint32_t node : departures) gates_to_leave_[node].push_back(number);
    plan_.gates_.push_back({.access = Dep::Access(use.any.var(), use.any.generation(), kind),
                            .departures = static_cast<std::uint32_t>(departures.size()),
                            .opens = std::move(opens)});
  }

  void lay_out() {
    Pieces<PlanNode::Successor> successors(plan_.successors_);
    Pieces<VarState*> written(plan_.written_);
    Pieces<std::uint32_t> gates(plan_.gates_to_leave_);
    for (const PlanNode& node : plan_.nodes_) {
      successors.begin_piece();
      for (const std::uint32_t next : successors_[node.number]) {
        successors.add({next, plan_.nodes_[next].awaits == 1});
      }
      written.begin_piece();
      for (const Dep::Access& access : node.op->accesses) {
        if (access.exclusive()) written.add(&var_of(access));
      }
      gates.begin_piece();
      for (const std::uint32_t gate : gates_to_leave_[node.number]) gates.add(gate);
    }
    plan_.ends_ = static_cast<std::int32_t>(plan_.gates_.size());
    for (PlanNode& node : plan_.nodes_) {
      const std::uint32_t i = node.number;
      node.successors = successors.piece(i);
      node.successor_count = successors.length(i);
      if (node.successor_count > 0) node.first_successor = node.successors[0];
      node.written = written.piece(i);
      node.written_count = written.length(i);
      node.gates_to_leave = gates.piece(i);
      node.gate_count = gates.length(i);
      if (node.awaits == 0) plan_.roots_.push_back(i);
      plan_.ends_ += node.successor_count == 0 && node.gate_count == 0;
    }
  }

  GraphPlan& plan_;
  std::map<const Dep::Var*, Use> uses_;
  std::vector<std::vector<std::uint32_t>> successors_, gates_to_leave_;
};

GraphPlan::GraphPlan(CapturedOps ops, std::vector<std::shared_ptr<const void>> owned)
    : ops_(std::move(ops)), owned_(std::move(owned)) {
  Analysis(*this);
}

GraphPlan::~GraphPlan() = default;

GraphLaunch& GraphPlan::take() {
  MutexLock lock(mutex_);
  if (free_.empty()) {
    // So that giving back needs no memory.
    if (free_.capacity() <= launches_.size()) free_.reserve(2 * launches_.size() + 1);
    launches_.push_back(std::make_unique<GraphLaunch>(*this));
    free_.push_back(launches_.back().get());
  }
  GraphLaunch& launch = *free_.back();
  free_.pop_back();
  return launch;
}

void GraphPlan::give_back(GraphLaunch& launch) noexcept {
  MutexLock lock(mutex_);
  free_.push_back(&launch);
}

// ---- GraphLaunch ----

GraphLaunch::GraphLaunch(const GraphPlan& plan)
    : plan_(plan),
      records_(static_cast<std::byte*>(::operator new(plan.size() * record_bytes, std::align_val_t(64)))),
      gates_(std::make_unique<Gate[]>(plan.gates().size())),
      gate_records_(std::make_unique<OpRecord*[]>(plan.gates().size())) {
  static_assert(sizeof(OpRecord) + sizeof(NodePlace) <= record_bytes);
  for (const PlanNode& node : plan.nodes()) {
    auto* record = ::new (records_.get() + node.number * record_bytes) OpRecord(0);
    record->begin(*node.op->info, node.op->priority, false);
    record->set_node({this, &node});
    record->pending.store(static_cast<std::int32_t>(node.awaits), std::memory_order_relaxed);
    if (node.op->kind != OpRecord::Body::async) continue;
    asyncs_.resize(plan.size());
    asyncs_[node.number] = std::make_unique<AsyncBody>(nullptr);
  }
  for (std::size_t i = 0; i < plan.gates().size(); ++i) gates_[i].departures = plan.gates()[i].departures;
}

GraphLaunch::~GraphLaunch() = default;

VarPlace GraphLaunch::place(const PlanNode& node, std::size_t access) const {
  const GraphPlan::Passage& passage = plan_.passage(node, access);
  const Dep::Access& of = node.op->accesses[access];
  return {.var = &var_of(of),
          .ticket = gates_[passage.gate].ticket,
          .within = passage.within,
          .last = passage.within + 1 == plan_.gates()[passage.gate].accesses,
          .exclusive = of.exclusive()};
}

}  // namespace windrow
