// Options of an engine and of a push.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <stop_token>
#include <string>
#include <string_view>

#include "windrow/engine/internal/denormals.h"
#include "windrow/engine/lane.h"
#include "windrow/engine/var.h"

namespace windrow {

/// Where and when ready ops run.
enum class Policy {
  /// Ready ops run on the pushing thread, inside push, one at a time. An op that is pushed from inside an op runs when
  /// that op has returned, or while it waits. Ops that become ready through an OnComplete or a lane's point run on a
  /// thread of the engine. An op of an ordered lane ends when its point is reached; push blocks until then.
  serial,
  pool,  ///< ops of all lanes run on one pool of worker threads
  /// On threads of the op's lane. The host lane has one thread more, which takes only ops of positive priority.
  per_device,
  chaos,  ///< on a pool, in a random order among the ready ops, regardless of priority: exposes undeclared accesses
};

/// Parses "serial", "pool", "per_device" or "chaos". Throws MisuseError for any other name.
Policy parse_policy(std::string_view name);
std::string_view to_string(Policy policy);

/// The number of an op. The lower 48 bits count the pushes of a thread, from 1. The upper 16 bits distinguish threads,
/// and are 0 for the thread that pushed first; beyond 65,535 pushing threads, several threads share these bits.
using OpId = std::uint64_t;

/// SystemLimits::threads() of this process (system_limits.h), with the CPU quota as it was at the first call.
int default_workers();

/// The values of the environment variables WINDROW_POLICY and WINDROW_WORKERS; pool and default_workers() if they are
/// unset or empty. Throw MisuseError for an invalid value. May be called from any thread while no thread changes the
/// environment.
Policy chosen_policy();
int chosen_workers();
namespace environment {
/// The same without exceptions: for an invalid value they return one for which the constructor of Engine throws that
/// MisuseError.
Policy policy() noexcept;
int workers() noexcept;
}  // namespace environment

/// Default values of `policy` and `workers` are read from the environment when the options are constructed. This throws
/// nothing: the constructor of Engine throws MisuseError for an invalid value in the environment, unless the program
/// has set that option.
struct EngineOptions {
  Policy policy = environment::policy();
  /// The number of host ops that run concurrently, at least 1; policy serial ignores it. More than 2^20 threads count
  /// as 2^20, here, in `max_spare_threads` and in HostLane::threads.
  int workers = environment::workers();
  /// The most threads that may be added while ops wait inside; with policy per_device, for each lane. If all threads
  /// wait, the last one to wait runs ready ops that its wait depends on, and no others. Two waits throw Error in that
  /// state: a wait for all ops of another engine, and a wait that is nested too deeply for its stack.
  int max_spare_threads = 256;
  /// A thread that pushes or retires outside ops is held back when more than this many ops are pending, until at most
  /// half of this number is pending. Held threads continue in the order in which they came. At least 1.
  std::uint64_t max_pending_ops = 8192;
  /// The same limit for the bytes that pending ops hold, as given by PushOptions::bytes; 0 means no limit. A push that
  /// would exceed the limit is held back until half of it is free, and later pushes queue behind it. An op above the
  /// limit is admitted only when no bytes are pending. On an ordered lane, an op is no longer pending once it was
  /// issued, but its bytes count until its point is reached; LaneOptions::max_in_flight bounds what is issued.
  std::uint64_t max_pending_bytes = 0;
  /// Pending ops may depend on the held thread in a way that the engine does not see. If no op finishes for this long,
  /// the engine releases the thread (the first time it logs a warning): for as many pushes as `max_pending_ops`, or for
  /// one push if bytes are the limit. It releases the thread after 20 ms if nothing is under way: no op runs, is ready,
  /// or awaits its OnComplete or a lane's point. It does the same if the thread itself completes ops: it has called an
  /// OnComplete before, or belongs to a lane.
  std::chrono::nanoseconds push_patience = std::chrono::seconds(10);
  /// Called on a thread that a push or launch holds back, or that waits for its turn with policy serial, before it
  /// sleeps; what it returns is destroyed when the thread goes on. For languages whose threads share a lock that ops
  /// need, too. Must neither throw nor call the engine.
  std::function<std::shared_ptr<void>()> on_held = {};
  /// Checks that ops access watched bytes only as declared; see Engine::watch. Ops run as with policy serial regardless
  /// of `policy`, and the engine reads all watched bytes twice for each op.
  bool check = false;
  /// How ops, and pieces of loops inside ops, treat denormal numbers on all threads. A thread of the program gets its
  /// own mode back when an op has returned. An op that sets the mode itself must restore it. Devices are not affected.
  Denormals denormals = Denormals::flush;
  /// For policy chaos: the seed of its choices. With one worker, a seed reproduces the order of ops if the same ops
  /// become ready at the same time. This is so, for example, if a first op holds back the others until all are pushed.
  std::uint64_t chaos_seed = 1;
  /// Called first on each thread that the engine starts; must not wait for the engine. Exceptions go to the log.
  std::function<void()> on_thread_start = {};
  /// If ops or lanes' points are pending, and no op finishes and no point is reached for this long, a separate thread
  /// logs what the ops wait for and calls `on_silence`; it reports again only after further progress. 0 disables the
  /// watchdog.
  std::chrono::nanoseconds watchdog{0};
  /// Called on the watchdog's thread with the text that it logs. Must neither wait for the engine nor end it.
  /// Exceptions go to the log.
  std::function<void(std::string)> on_silence = {};
  /// How long fork() waits for pending ops to finish, so that the child has a working engine; pushes from outside ops
  /// are held meanwhile. If ops are still pending then, or fork() was called inside an op, they never run in the child.
  /// In that child all calls except retire, shutdown and stats throw MisuseError, and what the engine holds is leaked.
  /// If fork() was called inside an op, the child must not return from that op's function. In the parent nothing
  /// changes. In the child, pushes to a lane that was added before the fork throw MisuseError. system() and
  /// posix_spawn() do not wait. A fork in a signal handler may hang.
  std::chrono::nanoseconds fork_patience = std::chrono::seconds(5);
};

struct PushOptions {
  OpName name = {};
  /// Ready ops of higher priority run first. Ops of equal priority run in the order of their pushes or, with policies
  /// pool and per_device, roughly in the order in which they became ready. Now and then an op of lower priority runs
  /// first, so none starves.
  int priority = 0;
  LaneId lane = host_lane;
  /// The op runs even if its variables are poisoned; OpContext::failure() then returns the failure. Use it for ops that
  /// free resources, and for ops that other processes wait for.
  bool run_always = false;
  /// If stop has been requested when the op is about to run, the op does not run and fails with Cancelled. A running op
  /// continues, and may ask OpContext::should_stop(). Ignored for retires, heals and ops marked run_always.
  std::stop_token stop = {};
  /// If the deadline has passed when the op is about to run, the op does not run. If it passes before the op has
  /// returned, or its OnComplete was called, the op fails nevertheless. In both cases the error is DeadlineError. An op
  /// that waits for others does not fail before its turn. On an ordered lane the deadline applies to issuing the work,
  /// not to the device. {} means no deadline. Ignored as `stop` is.
  std::chrono::steady_clock::time_point deadline = {};
  /// Bytes that the op's captures and results hold until it has finished; see EngineOptions::max_pending_bytes. Ignored
  /// for retires, heals and captured ops.
  std::uint64_t bytes = 0;
  /// The source location that errors, traces and reports give for the op. A function that pushes on behalf of its
  /// caller should pass on the caller's location, or all its ops are reported as pushed inside it: take a parameter
  /// `std::source_location from = std::source_location::current()`, and set `.pushed_at = from`. Options in a variable
  /// have the location of its braces; without braces, `PushOptions options;`, C++ gives the location of this line.
  std::source_location pushed_at = std::source_location::current();
};

}  // namespace windrow
