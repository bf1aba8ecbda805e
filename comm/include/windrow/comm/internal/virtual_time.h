// Virtual time: an engine whose ops take simulated time, for which no thread waits. simulated.h adds a network.
//
//   windrow::VirtualClock clock;
//   windrow::VirtualLane gpu(clock);
//   clock.engine().push_async([&](windrow::OnComplete done) { gpu.run(3ms, std::move(done)); }, {mutate(x)});
//   clock.run();
//
// Contract
//   Order    The engine has policy serial, so all ready ops have run when a call returns. run() advances the time only
//            then, so an op begins at the virtual time at which the last op that it waits for has ended. The same calls
//            give the same times. A wait for an op that takes virtual time would not end before run().
//   End      When the clock ends, all pending events happen at once, in any order. Objects that pending ops use must
//            live until then.
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

/// A queue of discrete events, each with its time. An owner of its engine.
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
  /// Lets time pass until no event is left. Throws Error if there are ops that no event ends. Throws what an event and
  /// Engine::wait_all() throw.
  void run();
  /// The same, but returns as soon as `enough` returns true; `enough` is called each time before time passes. Pending
  /// ops continue in the next run.
  void run_until(const std::function<bool()>& enough);
  /// Ends the clock early, such as after an exception: call it before the objects that pending ops use are destroyed.
  /// Later events happen at once. Failures of ops that nobody waited for are not reported.
  void end();
  /// Calls `last` first when the clock ends, for code that holds an OnComplete elsewhere than in an event. Must not
  /// throw.
  void at_end(Function<void()> last) { last_.push_back(std::move(last)); }

 private:
  struct Event {
    Time time;
    Phase phase;
    std::uint64_t number;  // of events at the same time and phase, the lowest comes first
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
