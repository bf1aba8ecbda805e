// The asynchronous dependency engine. Start here.
//
//   windrow::Engine engine;
//   windrow::Var a = engine.new_var("a"), b = engine.new_var("b");
//   engine.push([&] { x = load(); }, {overwrite(a)}, {.name = "load"});
//   engine.push([&] { y = 2 * x; }, {read(a), mutate(b)}, {.name = "double"});
//   engine.wait(b);
//
// coroutine.h has the wait that blocks no thread, sender.h the push that tells a receiver.
//
// It knows no tensor, no device type and no allocator: an op is a function and the variables it touches.
//
// Contract
//   Order    The result equals running the ops one at a time in the order they were pushed. Two ops overlap only if
//            neither has mutate or overwrite access to what the other touches. Pushes of several threads are in some
//            order that keeps each thread's own.
//   Errors   An op that throws poisons what it mutates. Ops that read or mutate a poisoned variable are skipped and
//            pass the poison on, unless marked run_always. Waits on a poisoned variable throw OpError, every time,
//            until it is healed or overwritten. A wrong call throws MisuseError and changes nothing. Nothing aborts.
//   Threads  Every member may be called from any thread, also from inside an op, but for shutdown and the destructor,
//            which may not be called from inside one.
//   Waiting  While an op waits, its thread may run ops that the wait depends on, on the same stack, so thread-local
//            state may have changed when the wait returns. If none is ready, a spare thread takes the worker's place.
//            So recursion that forks, waits inside ops and is d levels deep needs about d times `workers` threads at
//            most, however many ops it has. A wait for variables, without a time limit, that could never end throws
//            WaitCycleError, also where the ring runs through several engines. A wait inside an op of an ordered lane
//            is refused, since it would stop the device's queue. The engine sees only its own waits: ops that wait for
//            each other by other means need as many workers as wait at once.
//   Fork     A child has the variables as the last finished op left them, and starts threads of its own when it pushes.
//            See EngineOptions::fork_patience.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "windrow/engine/engine_ref.h"
#include "windrow/engine/error.h"
#include "windrow/engine/function.h"
#include "windrow/engine/graph.h"
#include "windrow/engine/lane.h"
#include "windrow/engine/on_complete.h"
#include "windrow/engine/op_name.h"
#include "windrow/engine/trace.h"
#include "windrow/engine/var.h"

namespace windrow {

/// Where and when ready ops run.
enum class Policy {
  serial,      ///< on the pushing thread, inside push, one at a time; pushed from inside an op: once that op returned,
               ///< or while it waits. What becomes ready by an OnComplete or a lane's point runs on a thread of the
               ///< engine. An op of an ordered lane ends when its point is reached: push blocks until then
  pool,        ///< on a pool of worker threads, whatever their lane
  per_device,  ///< each lane has threads of its own, and the host one more that only takes ops of positive priority
  chaos,       ///< on a pool, in an order drawn at random among the ready ops, whatever their priority: shows
               ///< undeclared accesses
};

/// "serial", "pool", "per_device" or "chaos"; anything else throws MisuseError.
Policy parse_policy(std::string_view name);
std::string_view to_string(Policy policy);

/// The number of an op. Each thread's pushes are counted from 1; the upper 16 bits tell the threads apart, and are 0
/// for the one that pushed first. Beyond 65,535 threads that push, several share these bits.
using OpId = std::uint64_t;

/// One worker for each core this process may use.
int default_workers();

/// What the environment variables WINDROW_POLICY and WINDROW_WORKERS say; where they are not set or empty, pool and
/// default_workers(). Throw MisuseError for a wrong value. Any thread, while none changes the environment.
Policy chosen_policy();
int chosen_workers();
namespace environment {
/// The same; but for a wrong value they return one that the constructor of Engine refuses with that MisuseError.
Policy policy() noexcept;
int workers() noexcept;
}  // namespace environment

/// Making options reads the environment for `policy` and `workers` where they are left out, and for nothing else. It
/// throws nothing: the constructor of Engine refuses a wrong value in the environment, if the engine depends on it.
struct EngineOptions {
  Policy policy = environment::policy();
  /// Host ops that run at the same time, 1 or more; serial ignores it.
  int workers = environment::workers();
  /// Threads that may be added while ops wait inside. If all threads wait, the last one to do so runs the ready ops
  /// that its wait depends on, and no others; but a wait for all ops of another engine throws Error then, and so does
  /// one that is nested so deeply that its stack has no room for them.
  int max_spare_threads = 256;
  /// A thread that pushes or retires from outside the engine's ops is held back while about so many ops are pending,
  /// until half of them have finished. Threads that are held back go on in the order they came.
  std::uint64_t max_pending_ops = 8192;
  /// The same for the bytes that pending ops hold on to, by PushOptions::bytes; 0 is no limit. A push that would exceed
  /// it is held back until half of it is free. An op above the limit is admitted only when no bytes are pending.
  std::uint64_t max_pending_bytes = 0;
  /// A thread that is held back may be the one that the pending ops wait for, by means the engine does not see. If no
  /// op finishes for so long, the thread is let go: for as many ops as the limit, or one push where bytes are the
  /// limit. A warning says so. It is let go after 20 ms if nothing is under way (no op runs, is ready, awaits its
  /// OnComplete or a lane's point), or if the thread itself completes ops: calls an OnComplete, or is a lane's.
  std::chrono::nanoseconds push_patience = std::chrono::seconds(10);
  /// Checks that ops keep to their accesses, by what Engine::watch was told. Ops run as with policy serial, whatever
  /// `policy` says, and each reads all watched bytes twice.
  bool check = false;
  /// Policy chaos: the seed of its choices, and an earlier run's schedule_log() to follow instead of choosing. A log
  /// fits a program that pushes from one thread, since it names ops by the order of their pushes. Where it does not
  /// fit, or an op in it does not become ready for seconds, the choice is by seed again; see
  /// EngineStats::replay_diverged.
  std::uint64_t chaos_seed = 1;
  std::vector<OpId> chaos_replay = {};
  /// Run first on each thread the engine starts; must not wait for the engine. What it throws goes to the log.
  std::function<void()> on_thread_start = {};
  /// While ops are pending and none finishes for so long, the log is told once what they wait for, and so is
  /// on_silence; then again only after an op has finished. 0 is never. A thread of its own looks after that.
  std::chrono::nanoseconds watchdog{0};
  /// Called on that thread. Must neither wait for the engine nor end it. What it throws goes to the log.
  std::function<void(std::string)> on_silence = {};
  /// fork() waits so long for what is pending, while pushes from outside are held, so that the child has an engine that
  /// works. If ops are pending after that, or the fork comes from inside an op, these never run in the child: there,
  /// all calls but retire, shutdown and stats throw MisuseError, what the engine holds is leaked, and an op in which
  /// the child began must not return. In the parent nothing changes. Ops on a lane that was added before the fork throw
  /// MisuseError in the child. system() and posix_spawn() do not wait. A fork in a signal handler may hang.
  std::chrono::nanoseconds fork_patience = std::chrono::seconds(5);
};

struct PushOptions {
  OpName name = {};
  /// Among ready ops the highest runs first; equal ones in the order they were pushed, or with policy pool about in the
  /// order they became ready. Some of lower priority are let through now and then, so that none waits for ever.
  int priority = 0;
  LaneId lane = host_lane;
  /// Runs although an input is poisoned, told so by its OpContext. For frees and for ops that peers wait for.
  bool run_always = false;
  /// An op whose stop has been requested when it is about to run does not run: it fails with Cancelled. One that runs
  /// already goes on, and may look at the token itself. Ignored for ops marked run_always, retires and heals.
  std::stop_token stop = {};
  /// How many bytes the op's captures and results hold on to, until it has finished: see
  /// EngineOptions::max_pending_bytes. Ignored for retires, heals and captured ops.
  std::uint64_t bytes = 0;
  /// Where errors, traces and reports say that the op was pushed. A function that pushes for others passes on the place
  /// of its own caller, or all its ops are reported as pushed inside it: it takes a parameter
  /// `std::source_location from = std::source_location::current()` and sets `.pushed_at = from`.
  std::source_location pushed_at = std::source_location::current();
};

/// What an op may ask while it runs.
class OpContext {
 public:
  /// What poisoned the op's variables, for an op marked run_always; else empty.
  const FailurePtr& failure() const { return failure_; }
  /// Throws OpError with that failure, if there is one; it then counts as told. What the op lets pass fails it.
  void throw_if_poisoned() const;

 private:
  friend class Core;
  FailurePtr failure_;
};

/// Callable with nothing, or with the context.
using OpFunction = Function<void(OpContext&)>;
using AsyncFunction = Function<void(OnComplete)>;

struct DeclaredState;
class Ready;

/// A handle to an op that is declared once and pushed many times; see Engine::declare. Empty when default-made.
class DeclaredOp {
 public:
  DeclaredOp() = default;
  explicit operator bool() const { return state_ != nullptr; }

 private:
  friend class Engine;
  std::shared_ptr<DeclaredState> state_;
};

/// Counters since the engine was made.
struct EngineStats {
  std::uint64_t pushed = 0;
  std::uint64_t pending = 0;        ///< pushed and not finished
  std::uint64_t pending_bytes = 0;  ///< that these hold on to, as far as PushOptions::bytes says
  std::uint64_t failed = 0;         ///< threw, or dropped their OnComplete
  std::uint64_t skipped = 0;        ///< not run for poison
  std::uint64_t cancelled = 0;      ///< not run since they were called off, or threw Cancelled; not among the failed
  std::uint64_t waits = 0;          ///< calls of wait, wait_for and wait_all from outside the engine's ops
  std::uint64_t waits_in_ops = 0;   ///< the same, from inside
  std::uint64_t spare_threads = 0;  ///< threads added for waits inside ops
  bool replay_diverged = false;     ///< policy chaos could not follow chaos_replay
};

/// Tells an engine of bytes that ops take as they run; see Engine::watch. A value. Ops may use it as long as they run,
/// also if the Engine object is gone by then.
class Watcher {
 public:
  /// Without an engine.
  Watcher() = default;
  /// Whether the engine was made with EngineOptions::check; else there is nothing to tell.
  explicit operator bool() const { return core_ != nullptr; }
  /// As Engine::watch; for a retired variable it returns false, and nothing is watched.
  bool watch(Var var, std::span<std::byte> bytes) const;

 private:
  friend class Engine;
  explicit Watcher(Core* core) : core_(core) {}

  Core* core_ = nullptr;
};

/// An owner: it does not copy, and its end drains it. What holds an EngineRef to it may outlive it.
class Engine {
 public:
  /// Throws MisuseError for options out of range, the environment's too. Starts no thread before the first push.
  explicit Engine(EngineOptions options = {});
  /// shutdown(), and a warning in the log for each failure nobody was told of. If an op holds the last owner of its own
  /// engine, another thread does this.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Var new_var(OpName name = {});

  /// Ends the variable's life after all ops that were pushed with it; `last`, if given, runs then, poisoned or not.
  /// Further use of the variable throws. During and after shutdown this still works. After it, `last` runs at once on
  /// this thread; on an ordered lane that is busy with another such call, it runs behind that one, on its thread. In a
  /// capture, see there. If retire throws, `last` is as it was.
  void retire(Var var, OpFunction&& last = nullptr, const PushOptions& options = {.name = "retire"});

  /// Runs `function` once its accesses are granted. Its captures are destroyed before any successor runs. Its move
  /// constructor must not push.
  void push(OpFunction function, AccessList accesses, const PushOptions& options = {});

  /// The same for an op that is done when its OnComplete is called. An exception thrown by `function` fails the op,
  /// which even so is not finished before the token has been called or destroyed.
  void push_async(AsyncFunction function, AccessList accesses, const PushOptions& options = {});

  /// An op to be pushed again and again, its accesses sorted and checked once. Two pushes of it may run at the same
  /// time if all its accesses are reads; its function must allow that. Errors and reports name the place where it was
  /// declared, and the error of a push that is refused names the place of the push. The handle may outlive the engine,
  /// but only to be dropped.
  DeclaredOp declare(OpFunction function, AccessList accesses, const PushOptions& options = {});
  void push(const DeclaredOp& op, std::source_location pushed_at = std::source_location::current());

  /// Records what this thread pushes, retires and launches in `body` instead of running it; see graph.h. Waits in it,
  /// and a capture in it, throw MisuseError. What `body` throws is passed on, and nothing is kept.
  ///
  /// A retire in `body` gives the variable to the graph. One that was made in `body` lives anew in each launch, in
  /// which `last` is called once; its handle is of no use elsewhere. One from outside ends with the first launch, and
  /// no other launch is possible; or if the graph ends before a launch, or `body` throws, it is retired at that moment.
  /// So `last` should end what one launch made, and own by its captures what lasts as long as the graph.
  Graph capture(const std::function<void()>& body, OpName name = {});

  /// Blocks until all earlier ops that conflict with the accesses have finished; the caller may then access the
  /// variables as listed, until it pushes an op that conflicts. wait(v) is wait({read(v)}): it waits for earlier ops
  /// that write v, not for earlier ones that only read it. To change or free what v stands for, wait({mutate(v)}),
  /// which waits for both. Throws OpError if a variable that is read or mutated is poisoned.
  void wait(Var var, std::source_location from = std::source_location::current());
  void wait(AccessList accesses, std::source_location from = std::source_location::current());
  /// False if that takes longer than `patience`.
  bool wait_for(AccessList accesses, std::chrono::nanoseconds patience,
                std::source_location from = std::source_location::current());

  /// Returns when no op is pending. Throws OpError naming each root failure that still poisons a variable, and once
  /// each that no longer does but of which nobody was told. Throws MisuseError inside an op, which would wait for
  /// itself.
  void wait_all();
  bool wait_all_for(std::chrono::nanoseconds patience);

  /// To be awaited by a coroutine, with coroutine.h: that the variable may be read, or that the caller may do to the
  /// variables what the accesses say. Unlike a wait this is an op with these accesses: each mutate or overwrite counts
  /// in version(), and an overwrite heals. (GCC 12 takes no list in braces inside co_await; give the list a name
  /// there.)
  Ready ready(Var var, std::source_location from = std::source_location::current());
  Ready ready(Access access, std::source_location from = std::source_location::current());
  Ready ready(AccessList accesses, std::source_location from = std::source_location::current());

  /// Tells that the variable stands for these bytes, among others maybe, which live until it is retired. With
  /// EngineOptions::check an op fails with MisuseError, which names the op and the variable, if watched bytes have
  /// changed while it ran that it did not declare, or declared only to read. If the bytes are whole pages it also fails
  /// if it only reads them undeclared (on Linux). Without check this does nothing. While an op runs, threads outside
  /// must not write to watched bytes. What an op does before a wait inside it, what it reads after one, and what is
  /// done after its function has returned may be missed. Throws MisuseError for a retired variable, but inside an op
  /// that has access to it. The bytes of buffers are watched from the first write on.
  void watch(Var var, std::span<std::byte> bytes, std::source_location from = std::source_location::current());
  Watcher watcher();

  /// Clears the variable's poison, once all earlier ops on it have finished. Counts in version(), since the program
  /// says with it that the value is good again: it is another value than the one before the failure.
  void heal(Var var, const PushOptions& options = {.name = "heal"});

  /// How many ops with mutate, overwrite or commute access have run so far, heals and those that failed included;
  /// skipped and cancelled ones do not count.
  std::uint64_t version(Var var, std::source_location from = std::source_location::current());

  /// Makes the lane known to the engine, which keeps it alive. Throws MisuseError if it was known.
  LaneId add_lane(std::shared_ptr<Lane> lane);
  LaneId add_lane(HostLane lane);

  /// Refuses further pushes but those of ops, lets all pending ops finish, and joins the threads. Twice is fine.
  void shutdown();

  EngineStats stats() const;
  int workers() const;

  /// The timeline of what the engine does; see trace.h.
  Trace trace();

  /// What is pending now, of several lines for people: each op, whether it runs, and what it waits for and who holds
  /// that; of many the first ten. Then the ordered lanes that have points to reach, and the op whose point is next.
  /// Pushes of other threads are held up for the moment of the look.
  std::string describe_pending();

  /// Policy chaos: the order in which the ops were started so far, to be given to chaos_replay; else empty. It ends
  /// early where there was no memory for it.
  std::vector<OpId> schedule_log() const;

 private:
  friend class BulkScope;
  friend class EngineUse;
  friend class EngineRef;
  /// The heir of one that ended inside its own op.
  Engine(std::unique_ptr<Core> core, std::shared_ptr<EngineLife> life);

  std::unique_ptr<Core> core_;
  const std::shared_ptr<EngineLife> life_;
};

}  // namespace windrow
