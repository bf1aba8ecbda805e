// The engine's records: one for each pushed op, one for each variable.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "record/dependency.h"
#include "trace/clock.h"
#include "wait/once_signal.h"
#include "windrow/engine/engine.h"

namespace windrow {

class LaneState;
class GraphLaunch;
class OpRecord;
class Slots;
struct PlanNode;

using Dep = Dependency<StdAtomics, OpRecord>;

/// The description of an op for errors and schedulers, shared by all ops that are pushed at one place in the program. A
/// value; the engine keeps the ones that records refer to (op_sites.h).
struct OpInfo {
  std::string_view name = "op";  ///< lives as long as the process
  std::source_location pushed_at{};
  LaneState* lane = nullptr;
  bool run_always = false;
};

/// The op's name and where it was pushed, as it appears in messages.
std::string site(const OpInfo& op);

/// A point and the op that left it.
struct Mark {
  Point point;
  OpId op = 0;
  const OpInfo* info = nullptr;
};

/// A mark whose point an access must wait for.
struct Awaited {
  Mark mark;
  IfFailed if_failed;
};

/// Connects a thread that waits for an access with the record of that access. Shared by the thread and the queued
/// record, since either may end first.
struct Waiter {
  Signal granted;
  // Written before `granted` is set, in memory reserved before the wait was entered:
  FailurePtr failure;
  std::vector<Awaited> points;  ///< the points that the thread still has to wait for

  /// The Slots object in which the thread's op has freed its slot, else null. Either the waiting thread or the thread
  /// that grants the wait exchanges this pointer for null, and then takes the slot back. If the granting thread does
  /// so, the slot is taken before any thread can conclude that no thread is left.
  std::atomic<Slots*> left{nullptr};
};

/// The function of an op on an ordered lane, after its call. The device may still use its captures.
using Captures = std::variant<OpFunction, AsyncFunction>;

/// Captures that their lane keeps until it reaches a point.
struct Kept {
  Captures captures;
  std::uint64_t point;       ///< its serial
  OpRecord* next = nullptr;  ///< the next kept op of the lane, or of those that end together
};

struct AsyncBody {
  explicit AsyncBody(AsyncFunction f) : function(std::move(f)) {}

  AsyncFunction function;
  /// The poison that prevents the op from running, unless the op is marked run_always.
  FailurePtr poison;
  std::exception_ptr error;  ///< thrown by the function
  /// The argument of the OnComplete. Written by its caller before it counts `parts` down.
  std::exception_ptr outcome;
  Ticks begun = 0;             ///< when the function began, while the engine is traced
  bool issued = false;         ///< on an ordered lane, whether the function was called
  OpRecord* keeper = nullptr;  ///< see Lanes::keep()
  /// Counts the function's return and the OnComplete's call. The op finishes when both have happened.
  std::atomic<int> parts{2};
  /// Both have happened, but the thread of the later one has no memory for a port, so a thread of the engine finishes
  /// the op.
  bool left_to_engine = false;
};

/// The launch, and the op in it, that a record stands for.
struct NodePlace {
  GraphLaunch* launch;
  const PlanNode* node;
};

/// The launch, and its gate at one variable, that a record stands for.
struct GatePlace {
  GraphLaunch* launch;
  std::uint32_t gate;
};

/// One pushed op, in one piece of memory: the record, its accesses, its body. Made by a RecordPool. Owned by its maker
/// until it has joined, and by the engine from then on.
class OpRecord : public Dep::Op {
 public:
  enum class Body : std::uint8_t { none, function, async, wait, node, gate, fence, captures };
  /// The progress of an op.
  enum class Stage : std::int32_t {
    at_points = -4,  ///< waits for points of lanes
    waits_inside,
    has_returned,  ///< its function has returned, but its OnComplete has not been called
    runs,
    queued,  ///< none of these: it waits for its accesses, or is ready
  };
  /// The upper bits of an op's id identify the thread that pushed it; the lower bits count that thread's pushes.
  static constexpr int thread_bits = 16;
  /// The base of the ids of one thread's ops; `thread` numbers threads in the order of their first pushes. Beyond
  /// 65,535 threads, several threads share a base.
  static constexpr OpId first_id(std::uint32_t thread) { return OpId{thread % 0xffff} << (64 - thread_bits); }
  /// Waits have separate ids, so that the ids of ops do not depend on waits.
  static constexpr OpId first_wait_id = OpId{0xffff} << (64 - thread_bits);
  /// The id of all gates of launches and all fences, which count as waits.
  static constexpr OpId gate_id = ~OpId{0};

  explicit OpRecord(std::uint8_t size_class_of_pool) : size_class(size_class_of_pool) {}

  static std::size_t bytes(std::size_t accesses, std::size_t body) {
    return sizeof(OpRecord) + accesses * sizeof(Dep::Access) + body;
  }
  /// The op's number; 0 before the op joins, and once it has ended.
  OpId id() const { return id_.load(std::memory_order_acquire); }
  void set_id(OpId id) { id_.store(id, std::memory_order_release); }
  const OpInfo& info() const { return *info_; }
  /// Initialises the record before it joins. Another op may have used the record before.
  void begin(const OpInfo& info, int urgency, bool engine_has_ended) {
    info_ = &info;
    priority = urgency;
    lost = false;
    after_end = engine_has_ended;
  }

  // The body is set once.
  Body body() const { return body_; }
  void set_function(OpFunction&& function) {
    table_ = function.table();
    if (table_ == nullptr) return;
    function.move_to(place());
    body_ = Body::function;
  }
  /// Constructs a function of type T in place.
  template <class T, class... Args>
  void set_call(Args&&... args) {
    table_ = &OpFunction::table_for<T>();
    emplace<T>(Body::function, std::forward<Args>(args)...);
  }
  void set_async(AsyncFunction&& function) { emplace<AsyncBody>(Body::async, std::move(function)); }
  void set_waiter(std::shared_ptr<Waiter> waiter) { emplace<std::shared_ptr<Waiter>>(Body::wait, std::move(waiter)); }
  void set_kept(Kept&& kept) { emplace<Kept>(Body::captures, std::move(kept)); }
  void set_fence() { body_ = Body::fence; }
  void set_node(NodePlace place) { emplace<NodePlace>(Body::node, place); }
  void set_gate(GatePlace place) { emplace<GatePlace>(Body::gate, place); }

  void call(OpContext& context) { table_->call(place(), context); }
  bool is_async() { return body_ == Body::async || (body_ == Body::node && is_async_node()); }
  AsyncBody& async() { return body_ == Body::async ? at<AsyncBody>() : async_of_node(); }
  const std::shared_ptr<Waiter>& waiter() { return at<std::shared_ptr<Waiter>>(); }
  Kept& kept() { return at<Kept>(); }
  /// The record of a node has no accesses, so the place lies directly behind the record.
  const NodePlace& node() { return *std::launder(reinterpret_cast<const NodePlace*>(this + 1)); }
  const GatePlace& gate() { return at<GatePlace>(); }

  /// The op's accesses. Those of a node are stored with the graph.
  std::span<Dep::Access> touches() { return body_ == Body::node ? touches_of_node() : accesses(); }
  /// Whether the op ends a variable's life, perhaps only until the graph's next launch.
  bool ends_variable() { return retires() || (body_ == Body::node && node_ends_variable()); }
  /// Whether the op ends a variable's life for good.
  bool ends_variable_for_good() { return retires() || (body_ == Body::node && node_ends_variable_for_good()); }

  /// Destroys the body, if there still is one. The body of a node stays for the next launch.
  void end_body() noexcept {
    if (body_ == Body::none) return;
    body_ == Body::function ? end_function() : end_other_body();
  }

  /// Whether the body owns what its function has captured.
  bool has_captures() {
    if (body_ == Body::function) return table_->owns;
    return body_ == Body::async && at<AsyncBody>().function.table()->owns;
  }
  /// Moves the function out of the body. Then end_body() must be called.
  Captures take_captures() noexcept {
    if (body_ == Body::async) return std::move(at<AsyncBody>().function);
    body_ = Body::none;
    return OpFunction::taken_from(*table_, place());
  }

  /// As end_body, but neither calls nor destroys anything of the program; what the body owns is leaked.
  void abandon_body() noexcept;

  /// Whether the body is a function, and the op neither retires a variable nor commutes.
  bool is_plain_function() const { return body_ == Body::function && !retires_or_commutes(); }
  /// As end_body, for a body that is a function.
  void end_function() noexcept {
    if (table_->destroy != nullptr) table_->destroy(place());
    body_ = Body::none;
  }

  /// Called when a node of a launch has finished. Inverts its id, and makes it await its `awaits` predecessors again.
  void end_node(std::uint32_t awaits) {
    lost = false;
    set_id(~id());
    pending.store(static_cast<std::int32_t>(awaits), std::memory_order_relaxed);
  }
  /// Whether the node has finished in the launch that gave it this number. May be called by any thread.
  bool has_finished(OpId number) const { return id() == ~number; }

  /// The time at which a ready op was put into a queue, on the queue's own clock. Not negative.
  std::int32_t stamp() const { return pending.load(std::memory_order_relaxed); }
  void stamp(std::int32_t when) { pending.store(when, std::memory_order_relaxed); }
  /// The stage is stored in the pending counter, which is free once all accesses are granted. Written by the thread to
  /// which the op was given.
  void set_stage(Stage stage) { pending.store(static_cast<std::int32_t>(stage), std::memory_order_relaxed); }
  Stage stage() const {
    const std::int32_t value = pending.load(std::memory_order_relaxed);
    return static_cast<Stage>(
        std::clamp(value, static_cast<std::int32_t>(Stage::at_points), static_cast<std::int32_t>(Stage::queued)));
  }
  /// The value of `pending` while that many points are awaited. It lies below all stages.
  static constexpr std::int32_t awaiting(std::int32_t points) {
    return std::numeric_limits<std::int32_t>::min() + points;
  }

  /// Waits are ops without a function.
  bool is_wait() const { return id() >= first_wait_id; }

  int priority = 0;
  const std::uint8_t size_class;  ///< of the pool
  /// Whether one of the points that the op awaited has failed. Back::lost_ holds the failure,
  /// unless there was no memory for it.
  bool lost = false;
  /// Whether the engine had ended when the op was pushed. Such an op runs on the thread that pushes it.
  bool after_end = false;

 private:
  void end_other_body() noexcept;
  bool is_async_node();
  AsyncBody& async_of_node();
  std::span<Dep::Access> touches_of_node();
  bool node_ends_variable();
  bool node_ends_variable_for_good();
  void* place() { return accesses().data() + count(); }
  template <class T>
  T& at() {
    return *std::launder(static_cast<T*>(place()));
  }
  template <class T, class... Args>
  void emplace(Body kind, Args&&... args) {
    ::new (place()) T(std::forward<Args>(args)...);
    body_ = kind;
  }

  Body body_ = Body::none;
  std::atomic<OpId> id_{0};
  const OpInfo* info_ = nullptr;
  const OpFunction::Table* table_ = nullptr;
};

/// Ready ops on their way to a policy, linked through the ops themselves.
class ReadyList {
 public:
  void push(Dep::Op& op) {
    op.next_ready = nullptr;
    *end_ = &op;
    end_ = &op.next_ready;
  }
  bool empty() const { return first_ == nullptr; }
  OpRecord* pop() {
    Dep::Op* op = first_;
    if (op == nullptr) return nullptr;
    first_ = op->next_ready;
    if (first_ == nullptr) end_ = &first_;
    return static_cast<OpRecord*>(op);
  }

 private:
  Dep::Op* first_ = nullptr;
  Dep::Op** end_ = &first_;
};

/// Marks that stay on a variable after the ops that left them: those of its last writer and of the readers since, one
/// for each lane.
struct Residue {
  std::optional<Mark> writer;
  std::vector<Mark> readers;
};

/// One variable. Records are reused, and freed only with the engine. Joining ops touch other cache lines than ops that
/// run and leave.
///
/// `poison` and `version` are written by an op with exclusive access as it leaves. An op that has access may read them.
/// Other threads read `poison` under the mutex of the FailureLog, which is also held for each write.
struct alignas(64) VarState : Dep::Var {
  alignas(64) FailurePtr poison;
  std::atomic<std::uint64_t> version{0};
  std::atomic<const char*> name{""};  ///< lives as long as the process
  LockBit<StdAtomics> residue_lock;
  /// False only if no mark matters to an op that has access. Written under residue_lock; lies in a gap.
  std::atomic<bool> marked{false};
  bool turn_taken = false;               ///< whether a commuting op has its turn; guarded by residue_lock
  std::atomic<std::uint8_t> heals{0};    ///< announced so far, modulo 2^8; lies in a gap, as the next one
  std::atomic<std::uint32_t> fences{0};  ///< made so far, modulo 2^32; written by the thread that joins
  std::unique_ptr<Residue> residue;      ///< guarded by residue_lock; empty unless an ordered lane touched the variable
  /// Ops that commute here take turns. The ops that wait for their turn form a ring linked by `next_ready`; this is the
  /// last of them, or null. Guarded by residue_lock.
  Dep::Op* last_for_turn = nullptr;
  std::atomic<std::int32_t> index{VarName::no_value};  ///< of its name
  std::int16_t writers = 0, async_users = 0;           ///< belong to AccessCheck
};

/// The readable name of a variable: "x", "tiles[5]", or "".
std::string name_of(const VarState& var);
std::string name_of(std::string_view name, std::int32_t index);
/// Names with their indices, sorted, each between quotes: the first four, and how many more there are.
std::string list_of(std::vector<std::pair<std::string_view, std::int32_t>>&& values, std::string_view quote);

/// An op's position among all accesses to one variable. A value.
///
/// Tickets number the places in the order of the pushes, modulo 2^32. Ops of one launch share the ticket of the gate
/// through which they access the variable; `within` numbers them from 0, and `last` marks the last one.
struct VarPlace {
  VarState* var = nullptr;
  std::uint32_t ticket = 0;
  std::uint32_t within : 29 = 0;
  std::uint32_t last : 1 = 1;
  std::uint32_t exclusive : 1 = 0;
  std::uint32_t commutes : 1 = 0;

  /// For two places at one variable. Their tickets must differ by less than half of the range of tickets.
  friend bool operator<(const VarPlace& a, const VarPlace& b) {
    return a.ticket == b.ticket ? a.within < b.within : static_cast<std::int32_t>(a.ticket - b.ticket) < 0;
  }
  /// Whether this place directly follows `before`, so that no other place can lie between them.
  bool follows(const VarPlace& before) const {
    if (var != before.var) return false;
    if (ticket == before.ticket) return within == before.within + 1;
    return ticket == before.ticket + 1 && within == 0 && before.last != 0;
  }
};

/// Counts an op that had exclusive access. Called by that op.
inline void count_version(VarState& var) {
  var.version.store(var.version.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

inline VarState& var_of(const Dep::Access& access) { return static_cast<VarState&>(access.var()); }

/// The access, but mutate instead of commute: the ops of a graph, and waits, do not commute.
inline Dep::Access in_order(Dep::Access access) {
  if (access.commutes()) access.strengthen(AccessKind::mutate);
  return access;
}

/// A variable among the accesses that was retired after its access was made. Null if its record already serves another
/// variable.
const VarState* find_retired(std::span<const Dep::Access> accesses, Dep::Joiners joiners);
/// Throws a MisuseError.
[[noreturn]] void refuse_retired(const OpInfo& op, const VarState* var);
/// The values that the op changes, as in Failure::changes; "" if there is no memory for the text.
std::string changes_of(OpRecord& op) noexcept;

/// The place of a pushed op's access.
inline VarPlace place_of(const Dep::Access& access) {
  return {.var = &var_of(access),
          .ticket = access.ticket(),
          .exclusive = access.exclusive(),
          .commutes = access.commutes()};
}
/// The place of the op's access number `access`. The op may belong to a launch.
VarPlace place_of(OpRecord& op, std::size_t access);

}  // namespace windrow
