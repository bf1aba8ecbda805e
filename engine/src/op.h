// The records behind the interface: one for each pushed op, one for each variable.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "signal.h"
#include "windrow/engine/dependency.h"
#include "windrow/engine/engine.h"

namespace windrow {

class LaneState;

using Dep = Dependency<StdAtomics>;

/// What errors and schedulers want to know of an op. A value.
struct OpInfo {
  std::string_view name = "op";  ///< lives as long as the process
  std::source_location pushed_at{};
  LaneState* lane = nullptr;
  int priority = 0;
  bool run_always = false;
};

/// The op and where it was pushed, as messages name it.
std::string site(const OpInfo& op);

/// Behind DeclaredOp. Immutable after declare, but for the function's own state.
struct DeclaredState {
  std::uint32_t engine;  ///< its number
  OpFunction function;
  std::vector<Dep::Access> accesses;  // canonical
  OpInfo info;
};

/// A point and the op that left it.
struct Mark {
  Point point;
  OpId op = 0;
  OpInfo info;
};

/// A mark that an access comes after.
struct Awaited {
  Mark mark;
  AccessKind kind;
};

/// Where a thread waits for the moment its access is granted. Shared by that thread and the queued op, either of which
/// may be gone first.
struct Waiter {
  Signal granted;
  // Written before `granted`:
  std::vector<FailurePtr> failures;
  std::vector<Awaited> points;  ///< what the thread still has to wait for
};

struct AsyncBody {
  explicit AsyncBody(AsyncFunction f) : function(std::move(f)) {}

  AsyncFunction function;
  /// What the OnComplete brought. Written by its caller before it counts `parts` down.
  std::exception_ptr outcome;
  /// The function's return and the OnComplete's call: the op finishes with the second of them.
  std::atomic<int> parts{2};
};

/// One pushed op. Made by create, destroyed by whoever finishes it; in between owned by the engine.
struct OpRecord : Dep::Op {
  using Body =
      std::variant<std::monostate, OpFunction, AsyncBody, std::shared_ptr<DeclaredState>, std::shared_ptr<Waiter>>;

  /// Room for `count` accesses lies behind the record, in one allocation.
  static OpRecord* create(std::span<const Dep::Access> accesses);
  static void destroy(OpRecord* op) noexcept;

  /// Waits are numbered apart, so that the numbers of ops do not depend on who waits.
  static constexpr OpId first_wait_id = OpId{1} << 63;
  bool is_wait() const { return id >= first_wait_id; }

  /// A wait that ends by itself some time. Fixed before the op joins.
  bool limited = false;
  /// The engine has ended: the op runs on the thread that pushes it.
  bool after_end = false;
  OpId id = 0;  ///< fixed, like `info`, before the op joins: others may look at both as long as it is queued
  OpInfo info;
  Body body;
  /// Which input keeps the op from running. Written by the thread that runs it.
  FailurePtr poison;
  /// The first failed point among those the op waited for. Guarded by the engine's lane mutex until the op is ready.
  FailurePtr lane_failure;
  /// What the function threw.
  std::exception_ptr error;

 private:
  OpRecord(Dep::Access* first, std::uint32_t count) : Dep::Op(first, count) {}
  ~OpRecord() = default;
};

struct OpDeleter {
  void operator()(OpRecord* op) const { OpRecord::destroy(op); }
};
using OpPtr = std::unique_ptr<OpRecord, OpDeleter>;

/// What outlives a variable's empty queue: the points of its last writer and of the readers since, one for each lane.
struct Residue {
  std::optional<Mark> writer;
  std::vector<Mark> readers;
};

/// One variable. Records are reused, never freed before the engine.
///
/// `poison` and `version` are written under the lock bit by an op with exclusive access as it leaves; an op that holds
/// access may read them without.
struct VarState : Dep::Var {
  Core* owner = nullptr;
  std::string_view name;  ///< written under the lock bit
  FailurePtr poison;
  std::uint64_t version = 0;
  std::unique_ptr<Residue> residue;  ///< guarded by the lock bit; empty unless an ordered lane touched the variable
};

inline VarState& var_of(const Dep::Access& access) { return static_cast<VarState&>(*access.var); }

}  // namespace windrow
