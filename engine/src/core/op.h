// The records behind the interface: one for each pushed op, one for each variable.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

#include "core/dependency.h"
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

/// What errors and schedulers want to know of an op, the same for all ops of one place in the program. A value; that of
/// a record is kept by the engine (op_sites.h).
struct OpInfo {
  std::string_view name = "op";  ///< lives as long as the process
  std::source_location pushed_at{};
  LaneState* lane = nullptr;
  bool run_always = false;
};

/// The op and where it was pushed, as messages name it.
std::string site(const OpInfo& op);

/// A point and the op that left it.
struct Mark {
  Point point;
  OpId op = 0;
  const OpInfo* info = nullptr;
};

/// A mark that an access comes after.
struct Awaited {
  Mark mark;
  IfFailed if_failed;
};

/// Where a thread waits for the moment its access is granted. Shared by that thread and the queued op, either of which
/// may be gone first.
struct Waiter {
  Signal granted;
  // Written before `granted`, in room made before the wait was entered:
  FailurePtr failure;
  std::vector<Awaited> points;  ///< what the thread still has to wait for

  /// The slots that the thread's op has left to others. Whoever takes them from here takes the slot back: the thread
  /// that grants, so that it is back before anybody could think that no thread is left, or the one that waits.
  std::atomic<Slots*> left{nullptr};
};

struct AsyncBody {
  explicit AsyncBody(AsyncFunction f) : function(std::move(f)) {}

  AsyncFunction function;
  /// What keeps the op from running, or would, were it not to run always.
  FailurePtr poison;
  std::exception_ptr error;  ///< what the function threw
  /// What the OnComplete brought. Written by its caller before it counts `parts` down.
  std::exception_ptr outcome;
  Ticks begun = 0;      ///< while the engine is traced
  bool issued = false;  ///< on an ordered lane, whether the function was called
  /// The function's return and the OnComplete's call: the op finishes with the second of them.
  std::atomic<int> parts{2};
  /// Both have come, on a thread that has no memory for a port: one of the engine's finishes the op.
  bool left_to_engine = false;
};

/// Which op of which launch a record is.
struct NodePlace {
  GraphLaunch* launch;
  const PlanNode* node;
};

/// Which place of a launch at a variable a record is.
struct GatePlace {
  GraphLaunch* launch;
  std::uint32_t gate;
};

/// One pushed op, in one piece of memory: the record, its accesses, its body. Made by a RecordPool; owned by whoever
/// makes it until it has joined, and by the engine from then on.
class OpRecord : public Dep::Op {
 public:
  enum class Body : std::uint8_t { none, function, async, wait, node, gate, fence };
  /// How far an op has come whose accesses are granted.
  enum class Stage : std::int32_t {
    at_points = -4,  ///< waits for points of lanes
    waits_inside,
    has_returned,  ///< but its OnComplete has not been called
    runs,
    queued,  ///< none of these: it waits for its accesses, or is ready
  };
  /// The upper bits of an op's number name the thread that pushed it, the lower ones count that thread's pushes.
  static constexpr int thread_bits = 16;
  /// What the numbers begin with of the ops that a thread pushes, itself the `thread`-th to push. Beyond 65,535 threads
  /// several share a beginning.
  static constexpr OpId first_id(std::uint32_t thread) { return OpId{thread % 0xffff} << (64 - thread_bits); }
  /// Waits are numbered apart, so that the numbers of ops do not depend on who waits.
  static constexpr OpId first_wait_id = OpId{0xffff} << (64 - thread_bits);
  /// Of all gates of launches and all fences, which are like waits.
  static constexpr OpId gate_id = ~OpId{0};

  explicit OpRecord(std::uint8_t size_class_of_pool) : size_class(size_class_of_pool) {}

  static std::size_t bytes(std::size_t accesses, std::size_t body) {
    return sizeof(OpRecord) + accesses * sizeof(Dep::Access) + body;
  }
  /// Its number, 0 before the op joins and from when its function has ended.
  OpId id() const { return id_.load(std::memory_order_acquire); }
  void set_id(OpId id) { id_.store(id, std::memory_order_release); }
  const OpInfo& info() const { return *info_; }
  /// Before it joins; the record may have been another op's.
  void begin(const OpInfo& info, int urgency, bool engine_has_ended) {
    info_ = &info;
    priority = urgency;
    lost = false;
    after_end = engine_has_ended;
  }

  // The body, to be set once.
  Body body() const { return body_; }
  void set_function(OpFunction&& function) {
    table_ = function.table();
    if (table_ == nullptr) return;
    function.move_to(place());
    body_ = Body::function;
  }
  /// A function that is made in its place.
  template <class T, class... Args>
  void set_call(Args&&... args) {
    table_ = &OpFunction::table_for<T>();
    emplace<T>(Body::function, std::forward<Args>(args)...);
  }
  void set_async(AsyncFunction&& function) { emplace<AsyncBody>(Body::async, std::move(function)); }
  void set_waiter(std::shared_ptr<Waiter> waiter) { emplace<std::shared_ptr<Waiter>>(Body::wait, std::move(waiter)); }
  void set_fence() { body_ = Body::fence; }
  void set_node(NodePlace place) { emplace<NodePlace>(Body::node, place); }
  void set_gate(GatePlace place) { emplace<GatePlace>(Body::gate, place); }

  void call(OpContext& context) { table_->call(place(), context); }
  bool is_async() { return body_ == Body::async || (body_ == Body::node && is_async_node()); }
  AsyncBody& async() { return body_ == Body::async ? at<AsyncBody>() : async_of_node(); }
  const std::shared_ptr<Waiter>& waiter() { return at<std::shared_ptr<Waiter>>(); }
  /// Nodes have no accesses of their own, so this lies directly behind.
  const NodePlace& node() { return *std::launder(reinterpret_cast<const NodePlace*>(this + 1)); }
  const GatePlace& gate() { return at<GatePlace>(); }

  /// What it touches. That of a node lies with the graph.
  std::span<Dep::Access> touches() { return body_ == Body::node ? touches_of_node() : accesses(); }
  /// Whether it ends a variable's life, if only until a graph's next launch.
  bool ends_variable() { return retires() || (body_ == Body::node && node_ends_variable()); }
  /// Whether it ends that for good.
  bool ends_variable_for_good() { return retires() || (body_ == Body::node && node_ends_variable_for_good()); }

  /// Destroys the body, if there still is one; but that of a node, which stays for the next launch.
  void end_body() noexcept {
    if (body_ == Body::none) return;
    body_ == Body::function ? end_function() : end_other_body();
  }

  /// Whether it is a function, no variable ends with it, and its accesses are as they were granted.
  bool is_plain_function() const { return body_ == Body::function && !retires_or_commutes(); }
  /// The same as end_body, of a function.
  void end_function() noexcept {
    if (table_->destroy != nullptr) table_->destroy(place());
    body_ = Body::none;
  }

  /// A node of a launch has finished: its number is past, and it awaits its predecessors again, as many as `awaits`.
  void end_node(std::uint32_t awaits) {
    lost = false;
    set_id(~id());
    pending.store(static_cast<std::int32_t>(awaits), std::memory_order_relaxed);
  }
  /// Whether the node has finished in the launch in which that is its number. Any thread.
  bool has_finished(OpId number) const { return id() == ~number; }

  /// Of a ready op: when it was put into a queue, as that counts. Not negative.
  std::int32_t stamp() const { return pending.load(std::memory_order_relaxed); }
  void stamp(std::int32_t when) { pending.store(when, std::memory_order_relaxed); }
  /// Kept where the grants were counted, which nobody needs any more. Written by whoever the op was given to.
  void set_stage(Stage stage) { pending.store(static_cast<std::int32_t>(stage), std::memory_order_relaxed); }
  Stage stage() const {
    const std::int32_t value = pending.load(std::memory_order_relaxed);
    return static_cast<Stage>(
        std::clamp(value, static_cast<std::int32_t>(Stage::at_points), static_cast<std::int32_t>(Stage::queued)));
  }
  /// What `pending` is while so many points are awaited: below all stages.
  static constexpr std::int32_t awaiting(std::int32_t points) {
    return std::numeric_limits<std::int32_t>::min() + points;
  }

  /// Waits are ops without a function.
  bool is_wait() const { return id() >= first_wait_id; }

  int priority = 0;
  const std::uint8_t size_class;  ///< of the pool
  /// One of the points it waited for has failed; which one, the engine knows.
  bool lost = false;
  /// The engine has ended: the op runs on the thread that pushes it.
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

/// What outlives a variable's empty chain: the points of its last writer and of the readers since, one for each lane.
struct Residue {
  std::optional<Mark> writer;
  std::vector<Mark> readers;
};

/// One variable. Records are reused, never freed before the engine. What joins touch, and what ops that run and leave
/// touch, lies on lines of its own.
///
/// `poison` and `version` are written by an op with exclusive access as it leaves; an op that holds access may read
/// them.
struct alignas(64) VarState : Dep::Var {
  alignas(64) FailurePtr poison;
  std::atomic<std::uint64_t> version{0};
  std::atomic<const char*> name{""};  ///< lives as long as the process
  LockBit<StdAtomics> residue_lock;
  std::unique_ptr<Residue> residue;  ///< guarded by residue_lock; empty unless an ordered lane touched the variable
  /// Of the ops that commute here one has its turn. Those that wait for it are in a ring of links, of which this is the
  /// last. Guarded by residue_lock.
  Dep::Op* last_for_turn = nullptr;
  bool turn_taken = false;
  std::int32_t writers = 0;  ///< of AccessCheck
};

/// An op's place at one variable, among all places there. A value.
///
/// Tickets number the places in the order of the pushes, modulo 2^32. Ops of one launch share the ticket of the gate
/// through which they meet the variable: they are told apart by their place within it, from 0 to that of the last.
struct VarPlace {
  VarState* var = nullptr;
  std::uint32_t ticket = 0;
  std::uint32_t within : 29 = 0;
  std::uint32_t last : 1 = 1;
  std::uint32_t exclusive : 1 = 0;
  std::uint32_t commutes : 1 = 0;

  /// Of two places at one variable. Those that are looked at together are closer than half of all tickets.
  friend bool operator<(const VarPlace& a, const VarPlace& b) {
    return a.ticket == b.ticket ? a.within < b.within : static_cast<std::int32_t>(a.ticket - b.ticket) < 0;
  }
  /// Whether nothing can have come between this place and that one, which was before.
  bool follows(const VarPlace& before) const {
    if (var != before.var) return false;
    if (ticket == before.ticket) return within == before.within + 1;
    return ticket == before.ticket + 1 && within == 0 && before.last != 0;
  }
};

/// One more op has had exclusive access. That op says so.
inline void count_version(VarState& var) {
  var.version.store(var.version.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

inline VarState& var_of(const Dep::Access& access) { return static_cast<VarState&>(access.var()); }

/// The access where order matters: the ops of a graph, and waits, do not commute.
inline Dep::Access in_order(Dep::Access access) {
  if (access.commutes()) access.strengthen(AccessKind::mutate);
  return access;
}

/// The name of a variable that has ended since the access to it was made; null if its place serves another by now.
const char* name_of_retired(std::span<const Dep::Access> accesses, Dep::Joiners joiners);
/// Throws a MisuseError.
[[noreturn]] void refuse_retired(const OpInfo& op, const char* name);

/// The place of a pushed op's access.
inline VarPlace place_of(const Dep::Access& access) {
  return {.var = &var_of(access),
          .ticket = access.ticket(),
          .exclusive = access.exclusive(),
          .commutes = access.commutes()};
}
/// The place of the access with that number, of a launch's op too.
VarPlace place_of(OpRecord& op, std::size_t access);

}  // namespace windrow
