// The front of an engine: describes ops, makes their records, checks their accesses and enters them. push.cc is the hot
// path of a pushing thread.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "core/variables.h"
#include "graph/plan.h"
#include "process/fork.h"
#include "record/op_sites.h"
#include "record/ports.h"
#include "record/record_pool.h"
#include "wait/wait_graph.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

class Core;
class Entry;
struct DeclaredState;

/// Aligned because each push reads the first fields, and other threads write the data in front of this object.
class alignas(64) Front {
 public:
  explicit Front(Core& core);
  Front(const Front&) = delete;
  Front& operator=(const Front&) = delete;

  // ---- pushes ----
  template <class Body>
  void push(OpFunction&& function, AccessList accesses, const PushOptions& how);
  void push_async(AsyncFunction&& function, AccessList accesses, const PushOptions& how);
  std::shared_ptr<DeclaredState> declare(OpFunction&& function, AccessList accesses, const PushOptions& how);
  void push(const std::shared_ptr<DeclaredState>& op);
  using DeclaredOps = std::list<std::shared_ptr<CapturedOp>>;
  /// The declared ops without a handle, for the caller to destroy; none while a pending op may call them.
  DeclaredOps take_dropped() noexcept WINDROW_EXCLUDES(declared_mutex);
  /// `owner` is null, or as in EngineUse::retire().
  void retire(Var var, OpFunction&& last, PushOptions how, const char* owner = nullptr);
  /// Called when a graph ends: retires a variable of the graph, or a variable from outside unless a launch has retired
  /// it.
  void retire_own(const Var& var) noexcept;
  void retire_captured(CapturedOp& op) noexcept;
  void heal(Var var, const PushOptions& how);
  void heal(const OpError& failure, PushOptions how);
  MisuseError without_function(const PushOptions& how);
  /// Wraps the function in the rare options of the push (op_limits.h). Blocks while too many bytes are pending.
  template <class... Args>
  Function<void(Args...)> with_options(Function<void(Args...)>&& function, const PushOptions& how);

  // ---- variables ----
  Var new_var(VarName name);
  /// The variables that carry one of these failures or another failure of the same root.
  std::vector<Poisoned> poisoned(std::span<const FailurePtr> failures);
  void free(VarState& var) { variables.give_back(var); }
  std::uint64_t version(Var var, const PushOptions& how);
  std::uint64_t pushed_version(Var var, const PushOptions& how);
  /// See EngineUse.
  bool is_idle(Var var, const Lane* lane, const PushOptions& how);
  std::uint8_t heals(Var var, const PushOptions& how) { return alive(var, how).heals.load(std::memory_order_relaxed); }
  void watch(Var var, std::span<std::byte> bytes, const PushOptions& how);
  /// Returns false if the variable was retired, unless the call comes from an op that has access to it.
  bool watch_unless_retired(Var var, std::span<std::byte> bytes);
  static Dep::Access access(const Var& var, AccessKind kind) { return {*var.state_, var.generation_, kind}; }
  /// Throws MisuseError if one of the op's variables is retired.
  void refuse_stale(const CapturedOp& op);
  /// Invalidates all handles of the variable, and returns a new one.
  Var take_over(const Var& var);

  // ---- for the other parts ----
  [[gnu::always_inline]] const OpInfo& info(Port& port, const PushOptions& how) {
    const OpInfo* known = OpSites::known(port, how);
    return known != nullptr ? *known : describe(port, how);
  }
  /// Throws MisuseError for an empty or foreign variable.
  void check(Var var, const OpInfo& about) const {
    if (!var || var.state_->owner != number_) [[unlikely]]
      refuse(var, about);
  }
  /// Frees the records, none of which was entered, and throws.
  [[noreturn]] void refuse(const OpInfo& about, std::span<OpRecord* const> ops, const Entry& entry);
  [[noreturn]] void refuse(const OpInfo& about, OpRecord* op, const Entry& entry);
  /// Enters ops of one access each in one atomic step; see Dep::join_each. Granted ops go to `ready`. If it throws, it
  /// has called take_back() and freed the records.
  template <class Place, class TakeBack>
  void enter_each(std::span<OpRecord* const> ops, const OpInfo& about, const Entry& entry, ReadyList& ready,
                  Place&& place, TakeBack&& take_back);
  /// Makes a fence for the variable. Throws std::bad_alloc.
  OpRecord& make_fence(Port& port, Dep::Var& var);
  /// Takes a record, but not a node's record, out of the chains; see Back::leave().
  template <class Settle>
  void leave(OpRecord& op, ReadyList& ready, Settle&& settle) {
    RecordPool::Cache& cache = ports.mine().records;
    Dep::leave(
        op, settle, [&](OpRecord& next) { ready.push(next); }, [&](OpRecord& ended) { records.free(cache, &ended); });
  }
  void leave(OpRecord& op, ReadyList& ready) {
    leave(op, ready, [](Dep::Access&) {});
  }
  /// The upper bits of the ids of the ops that this thread pushes.
  OpId thread_number(Port& port) { return port.first_id != Port::unnumbered ? port.first_id : number_thread(port); }
  /// Whether `is` is true for an op that was pushed and has not finished. Needs no memory.
  bool any_pending(const std::function<bool(const OpRecord&)>& is);
  /// The ops and waits that have not finished. No thread can push during the call.
  std::vector<PendingOp> pending_ops();

 private:
  friend class Entry;
  friend class PushScope;
  // The parts of a push: accesses in the form that Dep::place takes, the op's properties, and a body.
  struct Listed;
  struct Canonical;
  struct Single;
  struct Entering {
    const OpInfo& about;
    int priority;
    bool retires = false;
  };

  /// Calls f(op, id, node) for each op, wait and gate that has not finished; `node` is null outside launches. No thread
  /// can push during the call.
  template <class F>
  void for_each_pending(F&& f);
  OpId number_thread(Port& port);
  const OpInfo& describe(Port& port, const PushOptions& how);
  [[noreturn]] void refuse(Var var, const OpInfo& about) const;
  /// The handle's variable. Throws MisuseError if it is empty, foreign or retired.
  VarState& alive(Var var, const PushOptions& how);
  Var make_var(VarName name);
  /// If no thread enters records yet, makes this thread the only one; otherwise switches all threads to lock bits.
  void join_others(Port& port);
  /// Captures or pushes the op. Throws MisuseError after shutdown or for a wrong variable, Error if no thread starts.
  template <class Body>
  void push_listed(Port& port, const Entering& op, AccessList accesses, const Body& body);
  template <class Accesses, class Body>
  void push_op(Port& port, const Entering& op, const Accesses& accesses, const Body& body);
  template <class Accesses, class Body>
  void divert(Port& port, const Entering& op, const Accesses& accesses, const Body& body);
  template <class Accesses>
  static std::shared_ptr<CapturedOp> without_body(const Entering& op, const Accesses& accesses);
  template <class Accesses, class Body>
  void submit(Port& port, const Entering& op, const Accesses& accesses, const Body& body);
  /// Makes the op's record and enters it. Returns the record if the op is ready, else null.
  template <class Accesses, class Body>
  OpRecord* enter(Port& port, const Entering& op, const Accesses& accesses, const Body& body);

  Core& core_;
  const std::uint32_t number_;  // the engine's
  const bool callers_run_;
  /// The first port that entered a record; null before. It is the only one until `several_` is set.
  std::atomic<Port*> lone_{nullptr};
  std::atomic<bool> several_{false};
  std::atomic<std::uint32_t> threads_numbered_{0};
  OpInfo fence_{.name = "a fence"};  // fixed by the constructor

 public:
  OpSites sites;
  RecordPool records;
  mutable Ports ports;
  Variables variables;
  Mutex declared_mutex;

 private:
  DeclaredOps declared_ WINDROW_GUARDED_BY(declared_mutex);
};

}  // namespace windrow
