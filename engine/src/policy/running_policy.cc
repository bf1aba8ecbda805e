#include "policy/running_policy.h"

#include <atomic>
#include <utility>

#include "core/running.h"
#include "diagnosis/engine_log.h"
#include "policy/crew.h"
#include "policy/lane_workers.h"
#include "policy/worker_pool.h"
#include "process/exit.h"

namespace windrow {
namespace {

CrewOptions crew_options(const PolicyContext& of, std::string name, int slots) {
  return {.name = std::move(name),
          .slots = slots,
          .max_spares = of.options.max_spare_threads,
          .on_thread_start = of.options.on_thread_start,
          .ports = &of.ports};
}

class Serial final : public RunningPolicy {
 public:
  explicit Serial(const PolicyContext& of) : crew_(only_crew(of), std::make_unique<PriorityQueue>(), of.run) {}

  void start(LaneState& lane) override {
    if (lane.ordered) expect_callbacks();
  }
  void expect_callbacks() override {
    if (stands_by_.load(std::memory_order_relaxed)) return;
    crew_.start();
    stands_by_.store(true, std::memory_order_relaxed);
  }
  void add(OpRecord& op) noexcept override { crew_.add(op); }
  void before_push() override { crew_.announce(); }
  void after_push(Slots::Patience patience) override { crew_.help(patience); }
  void stop() override { crew_.stop(); }
  OpRecord* take_wanted_anywhere(const Wanted& wanted) override { return crew_.take_wanted_anywhere(wanted); }
  int spares() const override { return crew_.spares(); }
  std::uint64_t ready() const override { return crew_.ready(); }
  void each_mutex(EachMutex f) override { crew_.each_mutex(f); }
  void forget_threads(Copied copied) noexcept override {
    crew_.forget_threads(copied);
    stands_by_ = false;
  }

 private:
  static CrewOptions only_crew(const PolicyContext& of) {
    CrewOptions result = crew_options(of, "serial", 1);
    result.callers_run = true;
    return result;
  }

  Crew crew_;
  std::atomic<bool> stands_by_{false};  // the crew's thread was started; only saves calls of crew_.start()
};

class Chaos final : public RunningPolicy {
 public:
  explicit Chaos(const PolicyContext& of)
      : crew_(crew_options(of, "chaos", of.options.workers), std::make_unique<ChaosQueue>(of.options.chaos_seed),
              of.run) {}

  void start(LaneState&) override { crew_.start(); }
  void add(OpRecord& op) noexcept override { crew_.add(op); }
  void stop() override { crew_.stop(); }
  OpRecord* take_wanted_anywhere(const Wanted& wanted) override { return crew_.take_wanted_anywhere(wanted); }
  int spares() const override { return crew_.spares(); }
  std::uint64_t ready() const override { return crew_.ready(); }
  void each_mutex(EachMutex f) override { crew_.each_mutex(f); }
  void forget_threads(Copied copied) noexcept override { crew_.forget_threads(copied); }

 private:
  Crew crew_;
};

}  // namespace

namespace {
constinit thread_local bool started_without_hook = false;
}

bool Lane::thread_is_free() noexcept { return started_without_hook && Running::innermost() == nullptr; }

void call_start_hook(const std::function<void()>& on_thread_start) noexcept {
  watch_exit_of_this_thread();
  started_without_hook = !on_thread_start;
  try {
    if (on_thread_start) on_thread_start();
  } catch (const std::exception& e) {
    engine_log().error("windrow: on_thread_start threw, the thread goes on: {}", e.what());
  } catch (...) {
    engine_log().error("windrow: on_thread_start threw, the thread goes on");
  }
}

std::unique_ptr<RunningPolicy> make_policy(PolicyContext of) {
  switch (of.options.policy) {
    case Policy::serial:
      return std::make_unique<Serial>(of);
    case Policy::pool:
      return std::make_unique<WorkerPool>(std::move(of));
    case Policy::per_device:
      return std::make_unique<PerDevice>(std::move(of));
    case Policy::chaos:
      return std::make_unique<Chaos>(of);
  }
  throw MisuseError("EngineOptions.policy is no Policy");
}

}  // namespace windrow
