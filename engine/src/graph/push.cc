// Launches that push a graph's ops, used if running them as nodes behind gates would cost more; and pushes of declared
// ops, which are graphs of one op.
//
// Each op gets a record of its own in the chains of its variables, as if it had been pushed; what a push has to find
// out first is known from the capture. All records enter in one atomic step. The ops' functions stay with the plan, and
// run there.
#include "core/core.h"
#include "core/entry.h"

namespace windrow {
namespace {

/// One use of a plan, by the body of a pushed op.
struct CapturedUse {
  using owns_nothing = void;  // what the function has captured belongs to the plan

  CapturedUse(CapturedOp& of, PushPlan& by) : op(&of), plan(&by) {}
  CapturedUse(CapturedUse&& other) noexcept : op(other.op), plan(std::exchange(other.plan, nullptr)) {}
  CapturedUse& operator=(CapturedUse&&) = delete;
  ~CapturedUse() {
    if (plan != nullptr) plan->end_use();
  }

  CapturedOp* op;
  PushPlan* plan;
};

struct CapturedCall : CapturedUse {
  using CapturedUse::CapturedUse;
  void operator()(OpContext& context) { op->function(context); }
};

struct CapturedAsyncCall : CapturedUse {
  using CapturedUse::CapturedUse;
  void operator()(OnComplete done) { op->async(std::move(done)); }
};

std::size_t body_bytes(const PushPlan::Op& op) {
  if (op.kind == OpRecord::Body::function) return sizeof(CapturedCall);
  return op.kind == OpRecord::Body::async ? sizeof(AsyncBody) : 0;
}

[[gnu::always_inline]] inline void set_body(OpRecord& record, const PushPlan::Op& op, PushPlan& plan) {
  if (op.kind == OpRecord::Body::function) [[likely]]
    return record.set_call<CapturedCall>(*op.captured, plan);
  if (op.kind == OpRecord::Body::async) record.set_async(AsyncFunction(CapturedAsyncCall(*op.captured, plan)));
}

}  // namespace

PushPlan* Core::replace(std::atomic<PushPlan*>& pushes, PushPlan* by) {
  // Release: a launch sees the whole plan. Launches that have found an earlier plan are inside an Entry; `Stopped`
  // keeps all threads out of entries.
  if (pushes.load(std::memory_order_relaxed) == nullptr) return pushes.exchange(by, std::memory_order_release);
  const Ports::Stopped stopped(ports_);
  return pushes.exchange(by, std::memory_order_release);
}

/// Used inside an Entry.
class Core::Pushing {
 public:
  Pushing(Core& core, PushPlan& plan, const Entry& entry)
      : core_(core), plan_(plan), entry_(entry), port_(entry.port()) {}

  /// Returns false, with no record entered, if a variable was retired.
  bool push_all(ReadyList& ready);
  /// The same for a plan of one op, for which nothing needs to be held or listed. Sets `ready` to the op's record if
  /// the op is ready.
  [[gnu::always_inline]] bool push_one(OpRecord*& ready) {
    // For most ops the compiler knows the number of accesses, as in other pushes.
    return plan_.accesses.size() == 1 ? push_one(std::integral_constant<std::size_t, 1>(), ready)
                                      : push_one(plan_.accesses.size(), ready);
  }

 private:
  template <class Count>
  [[gnu::always_inline]] bool push_one(Count count, OpRecord*& ready);

  [[gnu::always_inline]] OpRecord& make(const PushPlan::Op& op, auto count, const Dep::Access* accesses) {
    if (count == 1 && entry_.joiners() == Dep::Joiners::one) Dep::prefetch_for_join(accesses->var(), port_.last_var);
    OpRecord& record = *core_.records_.make(port_.records, count, body_bytes(op));
    Dep::place(record, count, [&](std::size_t i) -> const Dep::Access& { return accesses[i]; });
    return record;
  }
  [[gnu::always_inline]] void begin(OpRecord& record, const PushPlan::Op& op, OpId id) {
    record.begin(*op.info, op.priority, false);
    set_body(record, op, plan_);
    record.set_id(id);
  }
  void free(OpRecord& record) { core_.records_.free(port_.records, &record); }
  auto drop() {
    return [this](OpRecord& ended) { free(ended); };
  }
  auto make_fence() {
    return [this](Dep::Var& var) -> OpRecord& { return core_.make_fence(port_, var); };
  }

  Core& core_;
  PushPlan& plan_;
  const Entry& entry_;
  Port& port_;
};

template <class Count>
[[gnu::always_inline]] inline bool Core::Pushing::push_one(Count count, OpRecord*& ready) {
  const PushPlan::Op& op = plan_.ops.front();
  OpRecord& record = make(op, count, plan_.accesses.data());
  const auto prepare = [&] {
    plan_.begin_uses(port_);
    const std::uint64_t pushed = port_.pushed.load(std::memory_order_relaxed) + 1;
    begin(record, op, core_.thread_number(port_) | pushed);
    port_.pushed.store(pushed, std::memory_order_release);
  };
  Dep::Join joined = Dep::Join::refused;
  try {
    joined = Dep::join(record, count, entry_.joiners(), prepare, drop(), make_fence());
  } catch (...) {
    free(record);
    throw;
  }
  if (joined == Dep::Join::ready) ready = &record;
  if (joined != Dep::Join::refused) return true;
  free(record);
  return false;
}

bool Core::Pushing::push_all(ReadyList& ready) {
  struct Made : ReadyList {
    explicit Made(Pushing& of) : pushing(of) {}
    ~Made() {
      while (OpRecord* record = pop()) pushing.free(*record);
    }
    Pushing& pushing;
  };
  Made records(*this);  // records that do not enter are freed
  const Dep::Access* next = plan_.accesses.data();
  for (const PushPlan::Op& op : plan_.ops) {
    records.push(make(op, op.access_count, next));
    next += op.access_count;
  }
  const auto enter_all = [&] {
    // Nothing here needs memory.
    plan_.begin_uses(port_);
    OpId id = core_.thread_number(port_) | port_.pushed.load(std::memory_order_relaxed);
    Port::add(port_.pushed, plan_.ops.size());
    for (const PushPlan::Op& op : plan_.ops) {
      OpRecord& record = *records.pop();
      begin(record, op, ++id);
      const Dep::Join joined = Dep::join(
          record, op.access_count, Dep::Joiners::one, [] {}, drop(), make_fence());
      if (joined == Dep::Join::ready) ready.push(record);
    }
  };
  return Dep::join_together(plan_.firsts, entry_.joiners(), enter_all, drop(), make_fence());
}

namespace {

/// The lanes that a launch has begun to start. A launch starts each lane once, as a push does: while another thread
/// forks, lanes that were started are not marked as such.
struct LanesBegun {
  const PushPlan* of = nullptr;
  std::size_t count = 0;

  /// The next lane of the plan that has not started; null after the last one.
  [[gnu::noinline, gnu::cold]] LaneState* next(const PushPlan& plan) {
    if (of != &plan) *this = {&plan, 0};
    while (count < plan.lanes.size()) {
      LaneState* const lane = plan.lanes[count++];
      if (!lane->started.load(std::memory_order_acquire)) return lane;
    }
    return nullptr;
  }
};

}  // namespace

bool Core::launch(const DeclaredState& op, std::source_location from) {
  Port& port = ports_.mine();
  return !port.diverted() && launch_by_pushes(port, op.pushes, {op.how.name, from});
}

bool Core::launch_by_pushes(Port& port, const std::atomic<PushPlan*>& plan_now, const LaunchSite& site) {
  LanesBegun begun;
  while (plan_now.load(std::memory_order_relaxed) != nullptr) {
    LaneState* to_start = nullptr;
    std::size_t pushed = 0;
    {
      const Push push(*this);
      ReadyList several;
      OpRecord* one = nullptr;
      {
        const Entry entry(*this, port);
        PushPlan* const plan = plan_now.load(std::memory_order_acquire);
        if (plan == nullptr) break;
        if (const Life life = life_; life != Life::running) [[unlikely]]
          check_life(life, info(port, {.name = site.name, .pushed_at = site.from}));
        for (LaneState* lane : plan->lanes) {
          if (lane->started.load(std::memory_order_acquire)) [[likely]]
            continue;
          to_start = begun.next(*plan);
          break;
        }
        if (to_start == nullptr) [[likely]] {
          Pushing pushing(*this, *plan, entry);
          pushed = plan->ops.size();
          if (!(pushed == 1 ? pushing.push_one(one) : pushing.push_all(several))) [[unlikely]] {
            refuse_retired(info(port, {.name = site.name, .pushed_at = site.from}),
                           name_of_retired(plan->firsts, entry.joiners()));
          }
        }
      }
      if (one != nullptr) release(*one);
      if (!several.empty()) release_all(several);
    }
    if (to_start == nullptr) {
      look_after_pushes(port, pushed);
      return true;
    }
    start(*to_start);
  }
  return false;
}

}  // namespace windrow
