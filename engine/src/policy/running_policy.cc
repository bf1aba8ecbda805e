#include "policy/running_policy.h"

#include <atomic>
#include <map>
#include <utility>

#include "policy/crew.h"
#include "policy/worker_pool.h"

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
  std::atomic<bool> stands_by_{false};  // a thread of the crew; only spares a look
};

class Chaos final : public RunningPolicy {
 public:
  explicit Chaos(const PolicyContext& of)
      : crew_(crew_options(of, "chaos", of.options.workers),
              std::make_unique<ChaosQueue>(of.options.chaos_seed, of.options.chaos_replay), of.run) {}

  void start(LaneState&) override { crew_.start(); }
  void add(OpRecord& op) noexcept override { crew_.add(op); }
  void stop() override { crew_.stop(); }
  OpRecord* take_wanted_anywhere(const Wanted& wanted) override { return crew_.take_wanted_anywhere(wanted); }
  int spares() const override { return crew_.spares(); }
  std::uint64_t ready() const override { return crew_.ready(); }
  void each_mutex(EachMutex f) override { crew_.each_mutex(f); }
  void forget_threads(Copied copied) noexcept override { crew_.forget_threads(copied); }
  std::vector<OpId> schedule_log() const override {
    return crew_.inspect([](const ReadyQueue& queue) { return static_cast<const ChaosQueue&>(queue).log(); });
  }
  bool replay_diverged() const override {
    return crew_.inspect([](const ReadyQueue& queue) { return static_cast<const ChaosQueue&>(queue).diverged(); });
  }

 private:
  Crew crew_;
};

class PerDevice final : public RunningPolicy {
 public:
  explicit PerDevice(PolicyContext of) : context_(std::move(of)) {}

  void start(LaneState& lane) override {
    CrewOptions crew = crew_options(context_, lane.host.name, lane.host.threads);
    crew.urgent_slots = lane.id == host_lane ? 1 : 0;
    MutexLock lock(mutex_);
    crews_.try_emplace(lane.id.index, std::move(crew), std::make_unique<PriorityQueue>(), context_.run)
        .first->second.start();
  }

  void add(OpRecord& op) noexcept override { crew_of(*op.info().lane).add(op); }

  void stop() override {
    for (std::uint32_t lane = 0; Crew* crew = crew_from(lane); ++lane) crew->stop();  // joins: not under a lock
  }

  OpRecord* take_wanted_anywhere(const Wanted& wanted) override {
    for (std::uint32_t lane = 0; Crew* crew = crew_from(lane); ++lane) {
      if (OpRecord* const op = crew->take_wanted_anywhere(wanted)) return op;
    }
    return nullptr;
  }

  int spares() const override {
    MutexLock lock(mutex_);
    int sum = 0;
    for (const auto& [lane, crew] : crews_) sum += crew.spares();
    return sum;
  }

  std::uint64_t ready() const override {
    MutexLock lock(mutex_);
    std::uint64_t sum = 0;
    for (const auto& [lane, crew] : crews_) sum += crew.ready();
    return sum;
  }

  void each_mutex(EachMutex f) override WINDROW_UNCHECKED_LOCKING {
    f(mutex_, [&]() WINDROW_UNCHECKED_LOCKING {
      for (auto& [lane, crew] : crews_) crew.each_mutex(f);
    });
  }
  void forget_threads(Copied copied) noexcept override WINDROW_UNCHECKED_LOCKING {
    for (auto& [lane, crew] : crews_) crew.forget_threads(copied);
  }

 private:
  Crew& crew_of(const LaneState& lane) {
    MutexLock lock(mutex_);
    return crews_.at(lane.id.index);
  }
  /// The first one from this lane on, whose number it writes; null if there is none.
  Crew* crew_from(std::uint32_t& lane) {
    MutexLock lock(mutex_);
    const auto found = crews_.lower_bound(lane);
    if (found == crews_.end()) return nullptr;
    lane = found->first;
    return &found->second;
  }

  const PolicyContext context_;
  mutable Mutex mutex_;
  std::map<std::uint32_t, Crew> crews_ WINDROW_GUARDED_BY(mutex_);  // by lane; never shrinks
};

}  // namespace

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
