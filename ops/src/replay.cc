#include "replay.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "windrow/memory/planner.h"

namespace windrow {
namespace {

using Item = RecordedOps::Item;
using Use = RecordedOps::Use;
using Op = RecordedOps::Op;
using Order = StaticOptions::Order;

bool writes(AccessKind kind) { return kind != AccessKind::read; }

/// What the ops of a graph run. Shared by their functions, so the buffers end after the last launch.
struct ReplayedOps {
  std::vector<OpFunction> functions;
  std::vector<std::shared_ptr<Buffer>> buffers;
  std::optional<Buffer> turn;  ///< of size 0: its variable lets the ops of all launches run one at a time
};

/// Functions [first, end) as one op.
struct ReplayOps {
  std::shared_ptr<ReplayedOps> of;
  std::size_t first, end;

  void operator()(OpContext& context) const {
    for (std::size_t i = first; i < end; ++i) of->functions[i](context);
  }
};

class Analysis {
 public:
  Analysis(Engine& engine, RecordedOps recording, const StaticOptions& options, std::source_location from)
      : engine_(engine),
        items_(std::move(recording.items)),
        ops_(std::move(recording.ops)),
        options_(options),
        from_(from) {}

  Replay make();

 private:
  bool parallel() const { return options_.order == Order::parallel; }
  std::string named(const Op& op) const {
    return "op '" + std::string(op.options.name.text()) + "' in the body of a Static ";
  }

  void check_first_uses();
  void insert_clears();
  void find_inner();
  void order_by_depth();
  Replay lay_out();
  MemoryPlan plan_memory_of(const std::vector<std::size_t>& laid) const;
  void keep_apart(const std::vector<std::size_t>& laid, const MemoryPlan& plan);
  void capture_each(const std::shared_ptr<ReplayedOps>& run);
  void capture_by_lane(const std::shared_ptr<ReplayedOps>& run);
  std::vector<Access> accesses(std::size_t first, std::size_t end) const;

  Engine& engine_;
  std::vector<Item> items_;
  std::vector<Op> ops_;
  const StaticOptions& options_;
  const std::source_location from_;
  std::vector<bool> inner_;  ///< by item: whether it has no bytes of its own
};

/// The number of the first op that uses each item; the number of ops if there is none.
std::vector<std::size_t> first_uses(const std::vector<Op>& ops, std::size_t items) {
  std::vector<std::size_t> first(items, ops.size());
  for (std::size_t i = ops.size(); i-- > 0;) {
    for (const Use& use : ops[i].uses) first[use.item] = i;
  }
  return first;
}

const Use& use_of(const Op& op, std::size_t item) { return *std::ranges::find(op.uses, item, &Use::item); }

/// A fresh run would fail for the one, and read another tensor for the other.
void Analysis::check_first_uses() {
  const std::vector<std::size_t> first = first_uses(ops_, items_.size());
  for (std::size_t item = 0; item < items_.size(); ++item) {
    const std::shared_ptr<Buffer>& buffer = items_[item].buffer;
    if (buffer == nullptr || buffer->size() == 0 || first[item] == ops_.size()) continue;
    const Op& op = ops_[first[item]];
    if (use_of(op, item).kind == AccessKind::overwrite || op.overwrites_part_of == item) continue;
    if (items_[item].made) {
      throw MisuseError(named(op) +
                        "reads a tensor that was made there, and that no op has written; expected one "
                        "that is written before");
    }
    if (buffer.use_count() == 1) {
      throw MisuseError(named(op) +
                        "reads a tensor from outside that nobody holds any more; expected the program to "
                        "keep it, and to write it in place, since replays assign no handles");
    }
  }
}

/// Buffers that are first written in part begin each replay with zeros, as they begin a fresh run.
void Analysis::insert_clears() {
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
    }
    all.push_back(std::move(ops_[i]));
  }
  ops_ = std::move(all);
}

void Analysis::find_inner() {
  const std::vector<std::size_t> first = first_uses(ops_, items_.size());
  inner_.resize(items_.size());
  for (std::size_t item = 0; item < items_.size(); ++item) {
    const bool used = first[item] < ops_.size();
    inner_[item] = items_[item].made && used && items_[item].buffer.use_count() == 1;
  }
}

void Analysis::order_by_depth() {
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

/// The places of the items in one block. All others are there for the order of the ops, and take no bytes.
MemoryPlan Analysis::plan_memory_of(const std::vector<std::size_t>& laid) const {
  MemoryProgram program{.order = parallel() ? StepOrder::dependences : StepOrder::serial};
  for (std::size_t item = 0; item < items_.size(); ++item) program.add(PlannedBuffer{.held = Held::throughout});
  for (const std::size_t item : laid) {
    program.buffers[item] = {.bytes = items_[item].buffer->size(),
                             .alignment = items_[item].buffer->memory()->alignment()};
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

/// Orders the launches of a graph: where two items have bytes in common, the first op of the former, in the next
/// launch, comes after all ops of the latter, which it is to overwrite.
void Analysis::keep_apart(const std::vector<std::size_t>& laid, const MemoryPlan& plan) {
  const std::vector<std::size_t> first = first_uses(ops_, items_.size());
  const auto overlap = [&](std::size_t a, std::size_t b) {
    return plan.offsets[a] < plan.offsets[b] + items_[b].buffer->size() &&
           plan.offsets[b] < plan.offsets[a] + items_[a].buffer->size();
  };
  for (const std::size_t former : laid) {
    for (const std::size_t latter : laid) {
      if (first[former] >= first[latter] || !overlap(former, latter)) continue;
      std::vector<Use>& uses = ops_[first[former]].uses;
      uses.push_back({latter, AccessKind::overwrite});
    }
  }
}

Replay Analysis::lay_out() {
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

/// Of ops [first, end) as one. A variable that the first of them overwrites is overwritten.
std::vector<Access> Analysis::accesses(std::size_t first, std::size_t end) const {
  std::vector<Use> all;
  for (std::size_t i = first; i < end; ++i) {
    for (const Use& use : ops_[i].uses) {
      if (!parallel() && inner_[use.item]) continue;  // the turn orders them
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

void Analysis::capture_each(const std::shared_ptr<ReplayedOps>& run) {
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    engine_.push(ReplayOps{run, i, i + 1}, accesses(i, i + 1), ops_[i].options);
  }
}

void Analysis::capture_by_lane(const std::shared_ptr<ReplayedOps>& run) {
  for (std::size_t i = 0, end = 0; i < ops_.size(); i = end) {
    const LaneId lane = ops_[i].options.lane;
    while (end < ops_.size() && ops_[end].options.lane == lane) ++end;
    std::vector<Access> of_all = accesses(i, end);
    of_all.push_back(overwrite(run->turn->var()));  // replays overlap nowhere, nor do ops of several lanes
    engine_.push(ReplayOps{run, i, end}, of_all, {.name = options_.name, .lane = lane, .pushed_at = from_});
  }
}

Replay Analysis::make() {
  check_first_uses();
  insert_clears();
  find_inner();
  if (options_.order == Order::breadth_first) order_by_depth();
  Replay made = lay_out();
  const auto run = std::make_shared<ReplayedOps>();
  if (!parallel()) run->turn.emplace(engine_, host_allocator(), 0, OpName("turn"));
  for (Op& op : ops_) run->functions.push_back(std::move(op.function));
  for (const Item& item : items_) {
    if (item.buffer != nullptr) run->buffers.push_back(item.buffer);
  }
  made.graph = engine_.capture([&] { parallel() ? capture_each(run) : capture_by_lane(run); }, options_.name);
  return made;
}

}  // namespace

Replay make_replay(Engine& engine, RecordedOps recording, const StaticOptions& options, std::source_location from) {
  return Analysis(engine, std::move(recording), options, from).make();
}

}  // namespace windrow
