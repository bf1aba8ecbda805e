// Virtual time: an engine whose ops take time that nobody waits for. simulated.h adds a network.
//
//   windrow::VirtualClock clock;
//   windrow::VirtualLane gpu(clock);
//   clock.engine().push_async([&](windrow::OnComplete done) { gpu.run(3ms, std::move(done)); }, {mutate(x)});
//   clock.run();
//
// Contract
//   Order    The engine has policy serial, so whatever is ready has run when a call returns. run() advances the time
//            only then, so ops begin at the virtual time at which the last op that they wait for has ended. The same
//            calls give the same times. A wait for an op that takes virtual time would not end before run().
//   End      When the clock ends, all that is pending happens at once, in any order. What pending ops use must live
//            until then.
//   Threads  All members, and all ops of the engine, on one thread.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "windrow/engine/engine.h"

namespace windrow {

/// An owner of its engine. Discrete events: things that happen at a time.
class VirtualClock {
 public:
  using Time = std::chrono::nanoseconds;
  /// The order of events at the same time: all ends come first, then the choices of queues.
  enum class Phase : std::uint8_t { end, choose };

  VirtualClock() = default;
  ~VirtualClock() { end(); }
  VirtualClock(const VirtualClock&) = delete;
  VirtualClock& operator=(const VirtualClock&) = delete;

  Engine& engine() { return engine_; }
  Time now() const { return now_; }
  /// Calls the event at that time; now, if it has passed.
  void at(Time time, Phase phase, Function<void()> event);
  /// Lets time pass until nothing happens any more. Throws Error if ops are left that nothing ends, and what an event
  /// and Engine::wait_all() throw.
  void run();
  /// The same, but returns as soon as `enough` returns true; it is called whenever time is about to pass. Pending ops
  /// continue in the next run.
  void run_until(const std::function<bool()>& enough);
  /// Ends the clock early: before what pending ops use ends, such as after an exception. Later events happen at once.
  /// Failures of ops that nobody waited for are not reported.
  void end();
  /// Calls `last` first when the clock ends: for those that hold an OnComplete elsewhere than in an event. Must not
  /// throw.
  void at_end(Function<void()> last) { last_.push_back(std::move(last)); }

 private:
  struct Event {
    Time time;
    Phase phase;
    std::uint64_t number;  // of equal ones, the first comes first
    Function<void()> happens;
  };
  static bool later(const Event& a, const Event& b);
  void step();
  void check_end();
  void all_happens() noexcept;

  Time now_{0};
  bool ended_ = false;
  std::uint64_t next_number_ = 0;
  std::vector<Event> events_;  // a heap, whose front is the next one
  std::vector<Function<void()>> last_;
  Engine engine_{{.policy = Policy::serial, .max_pending_ops = std::uint64_t{1} << 40}};
};

/// A device in virtual time: it runs one op at a time, in the order in which they become ready. An owner, which lives
/// until the clock has run or ended.
class VirtualLane {
 public:
  explicit VirtualLane(VirtualClock& clock) : clock_(clock) {}

  /// Called inside an asynchronous op: the device is busy with it for `duration`.
  void run(VirtualClock::Time duration, OnComplete done);
  /// How long it has been busy.
  VirtualClock::Time busy() const { return busy_; }

 private:
  VirtualClock& clock_;
  VirtualClock::Time free_{0}, busy_{0};
};

}  // namespace windrow
