// Graphs: ops are captured; launches enter, run and leave.
#include "graph/launches.h"

#include "core/core.h"
#include "core/entry.h"
#include "graph/capture.h"

namespace windrow {

Launches::Launches(Core& core) : core_(core) { end_of_graph_.lane = core.lanes.host; }

// ---- capture ----

std::shared_ptr<GraphState> Launches::capture(const std::function<void()>& body, OpName name,
                                              std::source_location from) {
  auto graph = std::make_shared<GraphState>(core_, core_.link, name.text().empty() ? OpName("graph") : name);
  append(*graph, body, from);
  return graph;
}

void Launches::append(GraphState& graph, const std::function<void()>& body, std::source_location from) {
  core_.life.refuse_unusable();
  if (!body) throw MisuseError("capture was given no function");
  Capture capture(graph, core_.front.ports.mine(), from);
  body();
  capture.finish();
}

void GraphState::refuse() const {
  throw MisuseError("graph '" + std::string(name.text()) + "': its engine is gone; expected one that is there");
}

// ---- launch ----

[[gnu::noinline]] static void divert_launch(const Port& port, GraphState& graph, std::source_location from) {
  if (port.busy == Port::Busy::capturing) return port.capture->add(graph);
  OpInfo about{.pushed_at = from};
  if (!graph.name.text().empty()) about.name = graph.name.text();
  refuse_push(port, about);
}

/// Throws MisuseError if a launch of the graph's ops has retired a variable from outside.
static void refuse_second_launch(const GraphState& graph, const GraphPlan& plan, const OpInfo& about) {
  for (const CapturedOp* const op : plan.retiring()) {
    const void* const by = op->launched_by.load();
    if (by == nullptr) continue;
    const auto& [variable, captured_at, owner] = op->retired;
    throw MisuseError(site(about) + " names variable '" + variable + "', which was retired by " +
                      (by == &graph ? "this graph's first launch" : "the launch of another graph with this retire") +
                      " (captured at " + captured_at.file_name() + ":" + std::to_string(captured_at.line()) + "): " +
                      (owner != nullptr ? "keep " + std::string(owner) + " alive" : "retire it outside the capture"));
  }
}

void Launches::launch(GraphState& graph, std::source_location from) {
  Port& port = core_.front.ports.mine();
  if (port.diverted()) [[unlikely]]
    return divert_launch(port, graph, from);
  const OpInfo& about = core_.front.info(port, {.name = graph.name, .pushed_at = from});
  std::shared_ptr<GraphPlan> plan = graph.plan_now();
  if (const Life::Phase phase = core_.life.phase; phase != Life::Phase::running) core_.life.check_phase(phase, about);
  if (plan->size() == 0) return;
  refuse_second_launch(graph, *plan, about);
  for (LaneState* lane : plan->lanes()) {
    if (!lane->started.load(std::memory_order_acquire)) core_.lanes.start(*lane);
  }
  const std::size_t size = plan->size();
  {
    const PushScope push(core_.front);
    GraphLaunch& launch = plan->take();
    launch.keeps = std::move(plan);
    ReadyList ready;
    try {
      const Entry entry(core_.front, port);
      if (const Life::Phase phase = core_.life.phase; phase != Life::Phase::running)
        core_.life.check_phase(phase, about);
      join_gates(launch, about, entry, ready);
      for (CapturedOp* const op : launch.plan().retiring()) op->launched_by = &graph;
    } catch (...) {
      const std::shared_ptr<GraphPlan> kept = std::move(launch.keeps);
      kept->give_back(launch);
      throw;
    }
    core_.back.release_all(ready);
    begin_roots(launch);
    end_launches(port, nullptr);
  }
  if ((port.pushes_to_look -= static_cast<int>(size)) <= 0) core_.pressure.hold_back(port);
}

void Launches::join_gates(GraphLaunch& launch, const OpInfo& about, const Entry& entry, ReadyList& ready) {
  Port& port = entry.port();
  const GraphPlan& plan = launch.plan();
  const std::span<OpRecord*> records = launch.gate_records();
  std::uint32_t made = 0;
  try {
    for (const PlanGate& gate : plan.gates()) {
      OpRecord* const record = core_.front.records.make(port.records, 1, sizeof(GatePlace));
      Dep::place(
          *record, 1, [&](std::size_t) { return gate.access; }, gate.retires);
      record->begin(about, 0, false);
      record->set_gate({&launch, made});
      records[made++] = record;
    }
  } catch (...) {
    for (OpRecord* record : records.first(made)) core_.front.records.free(port.records, record);
    throw;
  }
  for (OpRecord* record : records) record->set_id(OpRecord::gate_id);
  number_nodes(launch, port);
  auto next = launch.gates().begin();
  const auto place = [&](OpRecord&, std::uint32_t ticket) { (*next++).ticket = ticket; };
  core_.front.enter_each(records, about, entry, ready, place, [&] {
    unlist(launch);
    Port::add(port.pushed, -plan.size());
    core_.waits.tell_if_idle();  // another thread may have counted them
  });
}

void Launches::number_nodes(GraphLaunch& launch, Port& port) {
  const std::uint64_t pushed = port.pushed.load(std::memory_order_relaxed);
  launch.first_id = core_.front.thread_number(port) | (pushed + 1);
  launch.to_come.store(launch.plan().ends() + 1, std::memory_order_relaxed);
  {
    MutexLock lock(mutex);
    launch.previous = nullptr;
    launch.next = first;
    if (first != nullptr) first->previous = &launch;
    first = &launch;
  }
  Port::add(port.pushed, launch.plan().size());
}

void Launches::unlist(GraphLaunch& launch) {
  MutexLock lock(mutex);
  (launch.previous != nullptr ? launch.previous->next : first) = launch.next;
  if (launch.next != nullptr) launch.next->previous = launch.previous;
}

void Launches::begin_roots(GraphLaunch& launch) {
  ReadyList ready;
  for (const std::uint32_t root : launch.plan().roots()) {
    OpRecord& op = launch.record(root);
    op.set_id(launch.first_id + root);
    ready.push(op);
  }
  core_.back.release_all(ready);
  end_part(launch);
}

void Launches::open_gate(OpRecord& gate, ReadyList& ready) {
  const auto [launch, index] = gate.gate();
  const PlanGate& plan = launch->plan().gates()[index];
  if (plan.counts_its_grant) return leave_gate(*launch, index, ready);
  // After the last of these grants the launch may be gone.
  const std::span<const std::uint32_t> opens = plan.opens;
  const std::span<const PlanNode> nodes = launch->plan().nodes();
  for (const std::uint32_t node : opens) {
    if (OpRecord* const op = launch->grant({node, nodes[node].awaits == 1})) ready.push(*op);
  }
}

void Launches::leave_gate(GraphLaunch& launch, std::uint32_t index, ReadyList& ready) {
  GraphLaunch::Gate& gate = launch.gates()[index];
  const PlanGate& plan = launch.plan().gates()[index];
  if (plan.departures > 1) {  // otherwise no other thread counts
    if (gate.departures.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    gate.departures.store(plan.departures, std::memory_order_relaxed);
  }
  OpRecord& record = *launch.gate_records()[index];
  VarState* const ended = plan.retires ? &var_of(plan.access) : nullptr;
  record.end_body();
  record.set_id(0);
  core_.front.leave(record, ready);
  if (ended != nullptr) core_.front.free(*ended);
  end_part(launch);
}

void Launches::leave_node(OpRecord& op, ReadyList& ready) {
  const auto [launch, node] = op.node();
  op.end_node(node->awaits);
  // After the last departure or grant below, the launch and its plan may be gone.
  const std::span<const std::uint32_t> gates(node->gates_to_leave, node->gate_count);
  const std::span<const PlanNode::Successor> successors(node->successors, node->successor_count);
  if (gates.empty() && successors.empty()) return end_part(*launch);
  for (const std::uint32_t gate : gates) leave_gate(*launch, gate, ready);
  for (const PlanNode::Successor successor : successors) {
    if (OpRecord* const next = launch->grant(successor)) ready.push(*next);
  }
}

void Launches::end_part(GraphLaunch& launch) {
  if (launch.to_come.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  unlist(launch);
  Port& port = core_.front.ports.mine();
  launch.next_ended = std::exchange(port.ended, &launch);
}

void Launches::end_launches(Port& port, Slots* slots) {
  while (port.ended != nullptr) {
    GraphLaunch& launch = *std::exchange(port.ended, port.ended->next_ended);
    OpRecord end(0);
    end.begin(end_of_graph_, 0, false);
    end.set_id(launch.first_id);
    const Running frame(core_, end, slots);  // the functions' captures may be destroyed with the plan
    launch.end();
  }
}

// ---- run ----

void Launches::invoke_node(OpRecord& op, const FailurePtr& poison) {
  CapturedOp& captured = *op.node().node->op;
  if (captured.retires == CapturedOp::Retires::foreign) captured.has_retired = true;
  if (captured.kind == OpRecord::Body::async) {
    op.async().parts.store(2, std::memory_order_relaxed);
    captured.async(OnComplete(core_, op));
  } else if (captured.function) {
    OpContext context;
    context.failure_ = poison;
    context.lane_ = captured.info->lane->ordered.get();
    captured.function(context);
  }
}

// ---- Graph ----

GraphState& Graph::state() const {
  if (state_ == nullptr) throw MisuseError("an empty Graph; make it with Engine::capture");
  return *state_;
}

void Graph::launch(std::source_location from) const { state().core_there().launches.launch(state(), from); }

void Graph::append(const std::function<void()>& body, std::source_location from) const {
  state().core_there().launches.append(state(), body, from);
}

std::size_t Graph::size() const { return state().plan_now()->size(); }

}  // namespace windrow
