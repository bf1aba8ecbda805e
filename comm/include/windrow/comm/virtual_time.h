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
//   Threads  All members, and all ops of the engine, on one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "windrow/engine/engine.h"

namespace windrow {

/// An owner of its engine. Discrete events: things that happen at a time.
class VirtualClock {
 public:
  using Time = std::chrono::nanoseconds;
  /// What happens at one time happens in this order: queues choose what comes next when all that ends then has ended.
  enum class Phase : std::uint8_t { end, choose };

  Engine& engine() { return engine_; }
  Time now() const { return now_; }
  /// Calls the event at that time; now, if it has passed.
  void at(Time time, Phase phase, Function<void()> event);
  /// Lets time pass until nothing happens any more. Throws Error if ops are left that nothing ends, and what
  /// Engine::wait_all() throws.
  void run();

 private:
  struct Event {
    Time time;
    Phase phase;
    std::uint64_t number;  // of equal ones, the first comes first
    Function<void()> happens;
  };
  static bool later(const Event& a, const Event& b);
  void step();

  Time now_{0};
  std::uint64_t next_number_ = 0;
  std::vector<Event> events_;  // a heap, whose front is the next one
  Engine engine_{{.policy = Policy::serial, .max_pending_ops = std::uint64_t{1} << 40}};
};

/// A device in virtual time: it runs one op at a time, in the order in which they become ready. An owner, which lives
/// until the clock has run.
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
