#include "record/replay.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "windrow/memory/internal/planner.h"

namespace windrow {
namespace {

using Item = RecordedOps::Item;
using Use = RecordedOps::Use;
using Op = RecordedOps::Op;
using Order = StaticOptions::Order;

void run_all(OpContext& op, std::span<OpFunction> functions) {
  for (OpFunction& function : functions) function(op);
}

bool writes(AccessKind kind) { return kind != AccessKind::read; }

/// Whether the op's own options decide if it runs, so that it cannot become a part of a larger op.
bool runs_alone(const Op& op) {
  const PushOptions& how = op.options;
  return how.run_always || how.stop.stop_possible() || how.deadline.time_since_epoch().count() != 0;
}

/// The number of the first op that uses each item; the number of ops if there is none.
std::vector<std::size_t> first_uses(const std::vector<Op>& ops, std::size_t items) {
  std::vector<std::size_t> first(items, ops.size());
  for (std::size_t i = ops.size(); i-- > 0;) {
    for (const Use& use : ops[i].uses) first[use.item] = i;
  }
  return first;
}

const Use& use_of(const Op& op, std::size_t item) { return *std::ranges::find(op.uses, item, &Use::item); }

class Analysis {
 public:
  Analysis(Engine& engine, RecordedOps recording, const HeldBuffers& held, const StaticOptions& options,
           std::source_location from)
      : engine_(engine),
        items_(std::move(recording.items)),
        ops_(std::move(recording.ops)),
        held_(held),
        options_(options),
        from_(from) {}

  Replay make() {
    check_first_uses();
    insert_clears();
    find_inner();
    if (options_.order == Order::breadth_first) order_by_depth();
    Replay made = lay_out();
    const std::vector<OpRun> parts = groups();
    find_listed(parts);
    const auto run = std::make_shared<ReplayedOps>();
    if (!parallel()) run->turn.emplace(engine_, host_allocator(), 0, OpName("turn"));
    for (Op& op : ops_) run->functions.push_back(std::move(op.function));
    made.graph = engine_.capture([&] { capture(parts, run, made); }, options_.name);
    run->items = std::move(items_);
    made.run = run;
    return made;
  }

 private:
  /// Ops [first, end), which become one op of the graph.
  struct OpRun {
    std::size_t first, end;
  };

  bool parallel() const { return options_.order == Order::parallel; }
  std::string named(const Op& op) const {
    return "op '" + std::string(op.options.name.text()) + "' in the body of a Static ";
  }

  /// Refuses a tensor of the body that no op has written: a fresh run fails for it. Refuses a tensor from outside that
  /// nobody holds: a fresh run would read another one instead.
  void check_first_uses() {
    const std::vector<std::size_t> first = first_uses(ops_, items_.size());
    for (std::size_t item = 0; item < items_.size(); ++item) {
      const std::shared_ptr<Buffer>& buffer = items_[item].buffer;
      if (buffer == nullptr || buffer->size() == 0 || first[item] == ops_.size()) continue;
      const Op& op = ops_[first[item]];
      if (use_of(op, item).kind == AccessKind::overwrite) continue;
      if (items_[item].made) {
        if (op.overwrites_part_of == item) continue;  // insert_clears() gives it contents
        throw MisuseError(named(op) +
                          "reads a tensor that was made there, and that no op has written; expected one "
                          "that is written before");
      }
      const auto elsewhere = held_.find(buffer.get());
      if (buffer.use_count() == 1 + (elsewhere == held_.end() ? 0 : elsewhere->second)) {
        throw MisuseError(named(op) + (op.overwrites_part_of == item ? "writes a part of" : "reads") +
                          " a tensor from outside that nobody holds any more; expected the program to "
                          "keep it, and to write it in place, since replays assign no handles");
      }
    }
  }

  /// A buffer whose first write is partial begins each replay with zeros, as in a fresh run.
  void insert_clears() {
    const std::vector<std::size_t> first = first_uses(ops_, items_.size());
    std::vector<Op> all;
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      const std::optional<std::size_t> part = ops_[i].overwrites_part_of;
      if (part && first[*part] == i && items_[*part].made) {
        const Buffer& buffer = *items_[*part].buffer;
        const auto clear = [bytes = buffer.bytes(), size = buffer.size()](OpContext& op) {
          bytes.memory().clear(op.lane(), bytes.write(op.lane()), size);
        };
        const PushOptions how{.name = "clear", .lane = buffer.lane(), .pushed_at = ops_[i].options.pushed_at};
        Op& added = all.emplace_back();
        added.function = clear;
        added.uses = {{*part, AccessKind::overwrite}};
        added.options = how;
        added.captured = true;
      }
      all.push_back(std::move(ops_[i]));
    }
    ops_ = std::move(all);
  }

  void find_inner() {
    const std::vector<std::size_t> first = first_uses(ops_, items_.size());
    inner_.resize(items_.size());
    for (std::size_t item = 0; item < items_.size(); ++item) {
      const bool used = first[item] < ops_.size();
      inner_[item] = items_[item].made && used && items_[item].buffer.use_count() == 1;
    }
  }

  void order_by_depth() {
    // By item: the least depth of an op that writes it next, and of one that reads it next.
    std::vector<std::size_t> to_write(items_.size(), 0), to_read(items_.size(), 0), depth(ops_.size(), 0);
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      for (const Use& use : ops_[i].uses) {
        depth[i] = std::max(depth[i], writes(use.kind) ? to_write[use.item] : to_read[use.item]);
      }
      for (const Use& use : ops_[i].uses) {
        to_write[use.item] = std::max(to_write[use.item], depth[i] + 1);
        if (writes(use.kind)) to_read[use.item] = depth[i] + 1;
      }
    }
    std::vector<std::size_t> order(ops_.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return depth[i]; });
    std::vector<Op> sorted;
    for (const std::size_t i : order) sorted.push_back(std::move(ops_[i]));
    ops_ = std::move(sorted);
  }

  Replay lay_out() {
    Replay made{.ops = ops_.size()};
    std::vector<bool> done(items_.size());
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (!inner_[i] || done[i]) continue;
      const Buffer& first = *items_[i].buffer;
      std::vector<std::size_t> laid;
      for (std::size_t k = i; k < items_.size(); ++k) {
        if (!inner_[k] || items_[k].buffer->memory() != first.memory() || items_[k].buffer->lane() != first.lane())
          continue;
        done[k] = true;
        if (items_[k].buffer->size() > 0) laid.push_back(k);
      }
      const MemoryPlan plan = plan_memory_of(laid);
      Arena arena(engine_, first.memory(), plan.bytes, first.lane());
      for (const std::size_t item : laid) arena.lay(*items_[item].buffer, plan.offsets[item]);
      made.planned_bytes += plan.bytes;
      made.unshared_bytes += plan.unshared_bytes;
      if (parallel()) keep_apart(laid, plan);
    }
    return made;
  }

  /// The places of the `laid` items in one block. All other items only order the ops, and take no bytes.
  MemoryPlan plan_memory_of(const std::vector<std::size_t>& laid) const {
    MemoryProgram program{.order = parallel() ? StepOrder::dependences : StepOrder::serial};
    for (std::size_t item = 0; item < items_.size(); ++item) program.add(PlannedBuffer{.held = Held::throughout});
    for (const std::size_t item : laid) {
      program.buffers[item] = {.bytes = items_[item].buffer->size()};
      program.alignment = items_[item].buffer->memory()->alignment();
    }
    const auto is_laid = [&](std::size_t item) { return program.buffers[item].bytes > 0; };
    for (const Op& op : ops_) {
      PlannedStep step;
      for (const auto& [item, kind] : op.uses) {
        const auto number = static_cast<std::uint32_t>(item);
        if (kind != AccessKind::overwrite) step.reads.push_back(number);
        if (writes(kind)) step.writes.push_back(number);
      }
      for (const std::size_t operand : op.in_place) {
        if (!is_laid(operand) || !is_laid(op.result) || operand == op.result) continue;
        step.in_place.push_back({static_cast<std::uint32_t>(operand), static_cast<std::uint32_t>(op.result)});
      }
      program.add(std::move(step));
    }
    return plan_memory(program);
  }

  /// Orders the launches of a graph. Items that share a byte are already ordered within a launch. So it suffices that
  /// the first op of the first such item, in the next launch, comes after all ops of the last one.
  void keep_apart(const std::vector<std::size_t>& laid, const MemoryPlan& plan) {
    const std::vector<std::size_t> first = first_uses(ops_, items_.size());
    const auto end = [&](std::size_t item) { return plan.offsets[item] + items_[item].buffer->size(); };
    std::set<std::size_t> bounds;  // between two neighbours, all bytes belong to the same items
    for (const std::size_t item : laid) bounds.insert({plan.offsets[item], end(item)});
    std::set<std::pair<std::size_t, std::size_t>> ordered;
    for (const std::size_t byte : bounds) {
      std::vector<std::size_t> there;
      std::ranges::copy_if(laid, std::back_inserter(there),
                           [&](std::size_t item) { return plan.offsets[item] <= byte && byte < end(item); });
      if (there.size() < 2) continue;
      const auto [former, latter] = std::ranges::minmax(there, {}, [&](std::size_t item) { return first[item]; });
      if (!ordered.insert({former, latter}).second) continue;
      ops_[first[former]].uses.push_back({latter, AccessKind::overwrite});
    }
  }

  /// With `parallel` each op by itself; otherwise neighbours of one lane together.
  std::vector<OpRun> groups() const {
    std::vector<OpRun> all;
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      const bool begins = all.empty() || parallel() || ops_[i].options.lane != ops_[i - 1].options.lane ||
                          runs_alone(ops_[i]) || runs_alone(ops_[i - 1]);
      if (begins) all.push_back({i, i});
      all.back().end = i + 1;
    }
    return all;
  }

  /// ReplayedOps::turn orders the groups, so they list an inner item only if a failure must pass from one group to
  /// another.
  void find_listed(const std::vector<OpRun>& groups) {
    listed_.assign(items_.size(), parallel());
    std::vector<std::size_t> last(items_.size(), groups.size());  // by item: a group that uses it
    for (std::size_t g = 0; g < groups.size(); ++g) {
      for (std::size_t i = groups[g].first; i < groups[g].end; ++i) {
        for (const auto& [item, kind] : ops_[i].uses) {
          const std::size_t before = std::exchange(last[item], g);
          if (!inner_[item] || (before != groups.size() && before != g)) listed_[item] = true;
        }
      }
    }
  }

  /// A variable that the first op of the group overwrites is overwritten.
  std::vector<Access> accesses(const OpRun& group) const {
    std::vector<Use> all;
    for (std::size_t i = group.first; i < group.end; ++i) {
      for (const Use& use : ops_[i].uses) {
        if (!listed_[use.item]) continue;
        const auto same = std::ranges::find(all, use.item, &Use::item);
        if (same == all.end()) {
          all.push_back(use);
        } else if (same->kind == AccessKind::read && writes(use.kind)) {
          same->kind = AccessKind::mutate;
        }
      }
    }
    std::vector<Access> accesses;
    for (const auto& [item, kind] : all) accesses.push_back({items_[item].var, kind});
    return accesses;
  }

  /// Of several ops, the highest priority.
  PushOptions options_of(const OpRun& group) const {
    PushOptions options = ops_[group.first].options;
    if (parallel() || runs_alone(ops_[group.first])) return options;
    for (std::size_t i = group.first; i < group.end; ++i) {
      options.priority = std::max(options.priority, ops_[i].options.priority);
    }
    options.name = options_.name;
    options.pushed_at = from_;
    return options;
  }

  /// On a lane that captures, adds each run of operators of the group. Other ops may copy from host memory, which must
  /// not be captured.
  void capture_runs(const OpRun& group, std::vector<CapturedRun>& runs) const {
    Lane* const lane = engine_.lane(ops_[group.first].options.lane);
    if (parallel() || !options_.capture || dynamic_cast<CapturingLane*>(lane) == nullptr) return;
    for (std::size_t i = group.first; i < group.end; ++i) {
      const std::size_t first = i;
      while (i < group.end && ops_[i].captured) ++i;
      if (i - first > 1) runs.emplace_back(first, i);
    }
  }

  void capture(const std::vector<OpRun>& groups, const std::shared_ptr<ReplayedOps>& run, Replay& made) {
    for (const OpRun& group : groups) {
      std::vector<Access> of_all = accesses(group);
      if (run->turn) of_all.push_back(overwrite(run->turn->var()));  // neither replays nor groups may overlap
      made.accesses += of_all.size();
      const std::size_t first_run = run->captured.size();
      capture_runs(group, run->captured);
      engine_.push(ReplayedGroup{run, group.first, group.end, first_run, run->captured.size()}, of_all,
                   options_of(group));
    }
  }

  Engine& engine_;
  std::vector<Item> items_;
  std::vector<Op> ops_;
  const HeldBuffers& held_;
  const StaticOptions& options_;
  const std::source_location from_;
  std::vector<bool> inner_;   ///< by item: whether it has no bytes of its own
  std::vector<bool> listed_;  ///< by item: whether the ops of the graph list it
};

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

Replay make_replay(Engine& engine, RecordedOps recording, const HeldBuffers& held, const StaticOptions& options,
                   std::source_location from) {
  return Analysis(engine, std::move(recording), held, options, from).make();
}

}  // namespace windrow
