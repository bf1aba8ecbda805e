// The asynchronous dependency engine. Start here.
//
//   windrow::Engine engine;
//   windrow::Var a = engine.new_var("a"), b = engine.new_var("b");
//   engine.push([&] { x = load(); }, {overwrite(a)}, {.name = "load"});
//   engine.push([&] { y = 2 * x; }, {read(a), mutate(b)}, {.name = "double"});
//   engine.wait(b);
//
// Begin with value.h: there an op receives the objects that it declares, so that a forgotten access does not compile.
// coroutine.h waits without blocking a thread; sender.h pushes an op that reports to a receiver.
//
// The engine knows no tensors, no device types and no allocators: an op is a function and the variables that it
// accesses.
//
// Contract
//   Order    The result equals that of running the ops one at a time in the order of their pushes. Two ops overlap only
//            if they share no variables, or only read the shared ones. Ops that commute on a variable may run in either
//            order. Pushes of several threads have some common order, which keeps the order of each thread.
//   Errors   An op that throws poisons the variables that it mutates, overwrites or commutes on. Ops that read, mutate
//            or commute on a poisoned variable are skipped and pass the poison on, unless they are marked run_always.
//            Each wait for a poisoned variable throws OpError, until an op overwrites the variable or heal() is called;
//            mutate and commute leave the poison, also in ops that are marked run_always. Misuse throws MisuseError and
//            changes nothing. The engine never aborts the process.
//   Lifetime What ops capture by reference must live until they have run. The engine's destructor waits for its ops, so
//            data that a scope declares after the engine dies too early: declare it before, or make it a Value.
//   Threads  Every member may be called from any thread, also inside an op. Exceptions: shutdown and wait_all throw
//            MisuseError inside an op of the same engine.
//   Waiting  While an op waits, its thread may run ops that the wait depends on, on the same stack, so thread-local
//            state may have changed when the wait returns. If no such op is ready, a spare thread takes the worker's
//            place. So recursion of depth d with waits inside ops needs about d times `workers` threads at most,
//            however many ops it has. A wait for variables without a time limit that could never end throws
//            WaitCycleError, also if the cycle passes through several engines. A wait inside an op of an ordered lane
//            throws MisuseError, since it would stop the device's queue. The engine sees only its own waits: if ops
//            wait for each other by other means, there must be a worker for each of them.
//   Fork     A forked child has the variables as the last finished op left them, and starts its own threads when it
//            pushes. See EngineOptions::fork_patience.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "windrow/engine/error.h"
#include "windrow/engine/graph.h"
#include "windrow/engine/internal/engine_ref.h"
#include "windrow/engine/internal/function.h"
#include "windrow/engine/internal/typed_push.h"
#include "windrow/engine/lane.h"
#include "windrow/engine/on_complete.h"
#include "windrow/engine/options.h"
#include "windrow/engine/trace.h"
#include "windrow/engine/var.h"

namespace windrow {

class DeclaredOp;
class OpContext;
class Ready;
class Watcher;

/// A function that takes an OpContext&, or nothing.
using OpFunction = Function<void(OpContext&)>;
using AsyncFunction = Function<void(OnComplete)>;

/// An owner: it does not copy, and its destructor waits for all pending ops. Holders of an EngineRef may outlive it.
class Engine : public TypedPushes {
 public:
  using TypedPushes::declare;
  using TypedPushes::push;

  /// Throws MisuseError for options out of range, also if they come from the environment. Starts no thread before the
  /// first push.
  explicit Engine(EngineOptions options = {});
  /// Calls shutdown(), and logs a warning for each failure that was never reported; failures that nest the same
  /// exception (see Failure::origin) give one warning. If an op holds the last owner of its own engine, the destructor
  /// returns at once and another thread ends the engine.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Makes a variable. Errors and traces show its name; for values (see VarName) they also show which ones an op
  /// changes. Inside a capture, see capture().
  Var new_var(VarName name = {});

  /// Ends the variable when all ops that were pushed with it have finished. Then `last`, if given, runs, whether the
  /// variable is poisoned or not. Any later use of the variable throws MisuseError.
  ///
  /// retire still works during and after shutdown. After shutdown, `last` runs immediately on the calling thread. If
  /// its ordered lane is busy with another such call, it runs after that call, on that call's thread. For a retire
  /// inside a capture see capture(). If retire throws, `last` is unchanged.
  void retire(Var var, OpFunction&& last = nullptr, const PushOptions& options = {.name = "retire"});

  /// Pushes an op that runs `function` once its accesses are granted. The captures of `function` are destroyed before
  /// any successor runs. Its move constructor must not push. On an ordered lane the captures are kept until the op's
  /// point is reached, so the device may use memory that they own; a thread of the engine destroys them soon after
  /// that, and wait_all() waits until it has done so.
  ///
  /// Throws MisuseError for an empty function, for a variable that is empty, retired or of another engine, and for a
  /// lane that was removed or belongs to another engine. Also throws it after shutdown (except inside ops, while the
  /// shutdown waits for them).
  void push(OpFunction function, AccessList accesses, const PushOptions& options = {});

  /// Pushes an asynchronous op, which finishes when its OnComplete is called. If `function` throws, the op fails; it
  /// still finishes only when its OnComplete has been called or destroyed. Throws as push() does.
  void push_async(AsyncFunction function, AccessList accesses, const PushOptions& options = {});

  /// Declares an op that will be pushed many times; its accesses are sorted and checked once. Two pushes of an op that
  /// only reads may run concurrently, which its function must allow. Throws as push() does, except for retired
  /// variables and after shutdown, where the push of the op throws. Errors and reports of the op name the place of the
  /// declaration. Once no handle is left, the function is destroyed at a moment when nothing is pending: when the last
  /// handle ends, at the next declare() or wait_all(), or when the engine ends. A handle may outlive its engine, but
  /// only to be destroyed.
  DeclaredOp declare(OpFunction function, AccessList accesses, const PushOptions& options = {});
  void push(const DeclaredOp& op, std::source_location pushed_at = std::source_location::current());

  /// Records what this thread pushes, retires and launches in `body` instead of running it; see graph.h. Waits and
  /// captures inside `body` throw MisuseError. If `body` throws, nothing is kept, and the exception is passed on.
  ///
  /// A retire in `body` gives the variable to the graph. A variable that was created in `body` begins a new life in
  /// each launch; `last` is called once in each, and the variable's handle cannot be used outside the graph. A variable
  /// from outside ends with the first launch, and no further launch is possible. So if later launches need a tensor
  /// from outside, keep its handle alive. If the graph ends without a launch, or `body` throws, the variable is retired
  /// then. So `last` should free what one launch allocated, and its captures should own what lasts as long as the
  /// graph.
  Graph capture(const std::function<void()>& body, OpName name = {},
                std::source_location from = std::source_location::current());

  /// Blocks until all earlier ops that conflict with the accesses have finished; the caller may then access the
  /// variables as listed, until it pushes an op that conflicts. wait(v) is wait({read(v)}): it waits for earlier ops
  /// that write v, not for earlier ops that only read it. Before the caller changes or frees what v stands for, it must
  /// use wait({mutate(v)}), which waits for both.
  ///
  /// Throws OpError if a variable that is read or mutated is poisoned; MisuseError if a variable is empty, retired or
  /// of another engine, inside a capture, inside an op of an ordered lane, and inside a piece of a parallel loop;
  /// WaitCycleError inside an op if the wait could never end.
  void wait(Var var, std::source_location from = std::source_location::current());
  void wait(AccessList accesses, std::source_location from = std::source_location::current());
  /// The same with a time limit: returns false after `patience`. Never throws WaitCycleError.
  bool wait_for(AccessList accesses, std::chrono::nanoseconds patience,
                std::source_location from = std::source_location::current());

  /// Blocks until no op is pending. Throws OpError naming each root failure that still poisons a variable and, once,
  /// each root failure that no longer does but was never reported. Throws MisuseError inside an op of this engine,
  /// which would wait for itself, and where wait() does.
  void wait_all();
  /// The same with a time limit: returns false after `patience`.
  bool wait_all_for(std::chrono::nanoseconds patience);

  /// Returns an awaitable for a coroutine (see coroutine.h); once resumed, the coroutine may access the variables as
  /// listed. Unlike a wait, this is an op with these accesses: each mutate or overwrite counts in version(), and an
  /// overwrite heals. (GCC 12 accepts no braced list inside co_await; name the list first.)
  Ready ready(Var var, std::source_location from = std::source_location::current());
  Ready ready(Access access, std::source_location from = std::source_location::current());
  Ready ready(AccessList accesses, std::source_location from = std::source_location::current());

  /// Declares that the variable stands for these bytes, which must live until the variable is retired; a variable may
  /// have several ranges. Without EngineOptions::check this does nothing. With it, an op fails if it changed watched
  /// bytes that it did not declare, or declared only as read. Its MisuseError names the variable and the access to
  /// declare. If the range consists of whole pages, the op also fails if it reads the bytes undeclared (Linux only).
  /// Otherwise the engine logs a warning, once for each name of a variable, that it cannot see such reads;
  /// page_allocator() in windrow/memory/allocator.h has whole pages.
  ///
  /// Threads outside ops must not write watched bytes while an op runs. The check may miss what an op does before a
  /// wait inside it, what it reads after such a wait, and what it does after its function has returned. Throws
  /// MisuseError for a retired variable, except inside an op that accesses it. The bytes of a Buffer are watched from
  /// their first write on.
  void watch(Var var, std::span<std::byte> bytes, std::source_location from = std::source_location::current());
  /// A handle for ops that allocate watched bytes while they run.
  Watcher watcher();

  /// Pushes an op that clears the variable's poison once all earlier ops on it have finished. The op counts in
  /// version(): by healing, the program declares the value good again, which makes it a different value.
  void heal(Var var, const PushOptions& options = {.name = "heal"});
  /// Heals what the failure has poisoned: pushes, for each variable in failure.poisoned(), an op that clears the poison
  /// if it still comes from the same root. So variables that are meanwhile retired, overwritten, healed or poisoned by
  /// another failure stay unchanged. Pending ops may spread the failure after this call, so first wait for them:
  /// wait_all(). The op always counts in version(). The values are as the failed ops left them: see docs/engine.md for
  /// updates that are all or nothing. Throws MisuseError for an error of another engine, inside a
  /// capture, and after shutdown.
  void heal(const OpError& failure, const PushOptions& options = {.name = "heal"});

  /// The number of ops with mutate, overwrite or commute access that have run so far, including heals and failed ops,
  /// excluding skipped and cancelled ops. Throws MisuseError for a variable that is empty, retired or of another
  /// engine.
  std::uint64_t version(Var var, std::source_location from = std::source_location::current());
  /// A number that changes with each push of an op with mutate, overwrite or commute access, including heals, and
  /// graphs with such an op. While it stays the same, no op has been pushed that would change what the variable stands
  /// for. Never blocks. Throws as version() does.
  std::uint64_t pushed_version(Var var, std::source_location from = std::source_location::current());

  /// Adds a lane; the engine keeps it alive. Throws MisuseError for a null Lane, a Lane that was added before, options
  /// out of range, or a HostLane with less than one thread.
  LaneId add_lane(std::shared_ptr<Lane> lane, const LaneOptions& options = {});
  LaneId add_lane(HostLane lane);
  /// The ordered lane that `lane` identifies; null for a host lane. Throws MisuseError for a lane of another engine.
  Lane* lane(LaneId lane) const;
  /// Refuses further pushes to an ordered lane, waits until its ops have ended and its last point is reached, and calls
  /// Lane::close(). Data that its ops have written stays valid, and a failure of the lane is still reported. Throws
  /// MisuseError for a host lane, a lane of another engine, a lane that was removed before, and inside an op.
  void remove_lane(LaneId lane);

  /// Refuses further pushes from outside ops, lets all pending ops finish, and joins the threads. A second call does
  /// nothing. Throws MisuseError inside an op of this engine.
  void shutdown();
  /// The same in bounded time: waits at most `patience`. If ops are still pending then, it calls off those that have
  /// not begun, except retires, heals and ops marked run_always; in the others, OpContext::should_stop() turns true. It
  /// calls `abort` with the text of describe_pending(). `abort` may end what ops wait for, such as the groups of a
  /// communicator; without `abort`, the text goes to the log. Then it waits `patience` once more.
  ///
  /// Returns whether the engine has ended. If not, the engine continues to refuse pushes, and its destructor does not
  /// wait: it leaks the engine if ops are still pending. No op begins then, running ops must not use the Engine, and
  /// the program should end. Throws MisuseError as shutdown() and for a negative time, and `abort`'s exception at the
  /// end.
  bool shutdown_for(std::chrono::nanoseconds patience, const std::function<void(std::string)>& abort = {});

  /// Counters at this moment. With concurrent pushes they need not be consistent with each other.
  EngineStats stats() const;
  /// The sum of EngineStats::failed, skipped and cancelled. Reading it is cheap.
  std::uint64_t failures() const;
  int workers() const;

  /// The engine's trace; see trace.h.
  Trace trace();

  /// A readable report of several lines. It lists each pending op (the first ten if there are many), whether it runs,
  /// what it waits for and which op holds that. Then it lists the ordered lanes that have points to reach, and the op
  /// whose point is next. Blocks pushes of other threads while it collects the data.
  std::string describe_pending();

 private:
  friend class EngineUse;
  friend class EngineRef;
  friend class PushRefusal;
  /// Takes the core of an engine that was destroyed inside one of its own ops.
  Engine(std::unique_ptr<Core> core, std::shared_ptr<EngineLife> life);

  std::unique_ptr<Core> core_;
  const std::shared_ptr<EngineLife> life_;
};

struct OpLimits;

/// Passed to an op's function while it runs.
class OpContext {
 public:
  /// For an op marked run_always: the failure that poisons its variables; otherwise null.
  const FailurePtr& failure() const { return failure_; }
  /// Throws OpError if failure() is not null; the failure then counts as reported. If the op does not catch it, the op
  /// fails.
  void throw_if_poisoned() const;
  /// The ordered lane that the op issues its work on; null on a host lane.
  Lane* lane() const { return lane_; }
  /// Whether the op should give up, for example by throwing Cancelled: its stop was requested, its deadline has passed
  /// (see PushOptions), or shutdown_for() has waited too long. Call it only on the op's thread. Reads the clock if the
  /// op has a deadline.
  bool should_stop() const;

 private:
  friend class Back;
  friend class Launches;
  friend struct OpLimits;
  FailurePtr failure_;
  Lane* lane_ = nullptr;
  const OpLimits* limits_ = nullptr;
};

struct DeclaredState;

/// A handle to an op that is declared once and pushed many times; see Engine::declare. Empty if default-constructed.
class DeclaredOp {
 public:
  DeclaredOp() = default;
  explicit operator bool() const { return state_ != nullptr; }

 private:
  friend class Engine;
  std::shared_ptr<DeclaredState> state_;
};

/// Registers bytes that an op allocates while it runs; see Engine::watch. A value. Ops may use it as long as they run,
/// even if the Engine object is gone by then.
class Watcher {
 public:
  /// Names no engine.
  Watcher() = default;
  /// True if the engine was constructed with EngineOptions::check; otherwise watch() does nothing.
  explicit operator bool() const { return core_ != nullptr; }
  /// As Engine::watch, but returns false and watches nothing if the variable is retired, or if there is no engine.
  bool watch(Var var, std::span<std::byte> bytes) const;

 private:
  friend class Engine;
  explicit Watcher(Core* core) : core_(core) {}

  Core* core_ = nullptr;
};

/// Does nothing: a thread that pushes far ahead of the workers now hands over ops in larger groups automatically.
class [[deprecated("remove the scope: pushes adapt by themselves")]] BulkScope {
 public:
  explicit BulkScope(Engine&) {}
  ~BulkScope() {}
  BulkScope(const BulkScope&) = delete;
  BulkScope& operator=(const BulkScope&) = delete;
};

template <class Function, class... A>
void TypedPushes::push_typed(Function&& function, const PushOptions& options, const A&... accesses) {
  typed::with_list(
      [&](AccessList list) {
        static_cast<Engine*>(this)->push(typed::op_of<OpFunction>(std::forward<Function>(function), accesses...), list,
                                         options);
      },
      accesses...);
}

template <class Function, class... A>
auto TypedPushes::declare_typed(Function&& function, const PushOptions& options, const A&... accesses) {
  return typed::with_list(
      [&](AccessList list) {
        return static_cast<Engine*>(this)->declare(
            typed::op_of<OpFunction>(std::forward<Function>(function), accesses...), list, options);
      },
      accesses...);
}

}  // namespace windrow
