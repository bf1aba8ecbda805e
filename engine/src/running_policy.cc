#include "running_policy.h"

#include <map>
#include <utility>

#include "crew.h"
#include "worker_pool.h"

namespace windrow {
namespace {

CrewOptions crew_options(const EngineOptions& options, std::string name, int slots) {
  return {.name = std::move(name),
          .slots = slots,
          .max_spares = options.max_spare_threads,
          .on_thread_start = options.on_thread_start};
}

class Serial final : public RunningPolicy {
 public:
  Serial(const EngineOptions& options, RunOp run)
      : crew_(only_crew(options), std::make_unique<PriorityQueue>(), std::move(run)) {}

  void start(LaneState&) override {}
  void add(OpRecord& op) override { crew_.add(op); }
  void before_push() override { crew_.announce(); }
  void after_push(Slots::Patience patience) override { crew_.help(patience); }
  void stop() override { crew_.stop(); }
  int spares() const override { return crew_.spares(); }
  std::uint64_t ready() const override { return crew_.ready(); }

 private:
  static CrewOptions only_crew(const EngineOptions& options) {
    CrewOptions result = crew_options(options, "serial", 1);
    result.callers_run = true;
    return result;
  }

  Crew crew_;
};

class Chaos final : public RunningPolicy {
 public:
  Chaos(const EngineOptions& options, RunOp run)
      : crew_(crew_options(options, "chaos", options.workers),
              std::make_unique<ChaosQueue>(options.chaos_seed, options.chaos_replay), std::move(run)) {}

  void start(LaneState&) override { crew_.start(); }
  void add(OpRecord& op) override { crew_.add(op); }
  void stop() override { crew_.stop(); }
  int spares() const override { return crew_.spares(); }
  std::uint64_t ready() const override { return crew_.ready(); }
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
  PerDevice(const EngineOptions& options, RunOp run) : options_(options), run_(std::move(run)) {}

  void start(LaneState& lane) override {
    CrewOptions crew = crew_options(options_, lane.host.name, lane.host.threads);
    crew.urgent_slots = lane.id == host_lane ? 1 : 0;
    MutexLock lock(mutex_);
    crews_.try_emplace(lane.id.index, std::move(crew), std::make_unique<PriorityQueue>(), run_).first->second.start();
  }

  void add(OpRecord& op) override { crew_of(*op.info().lane).add(op); }

  void stop() override {
    std::vector<Crew*> crews;
    {
      MutexLock lock(mutex_);
      for (auto& [lane, crew] : crews_) crews.push_back(&crew);
    }
    for (Crew* crew : crews) crew->stop();  // joins: not under a lock
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

 private:
  Crew& crew_of(const LaneState& lane) {
    MutexLock lock(mutex_);
    return crews_.at(lane.id.index);
  }

  const EngineOptions options_;
  const RunOp run_;
  mutable Mutex mutex_;
  std::map<std::uint32_t, Crew> crews_ WINDROW_GUARDED_BY(mutex_);  // by lane; never shrinks
};

}  // namespace

std::unique_ptr<RunningPolicy> make_policy(PolicyContext of) {
  switch (of.options.policy) {
    case Policy::serial:
      return std::make_unique<Serial>(of.options, std::move(of.run));
    case Policy::pool:
      return std::make_unique<WorkerPool>(std::move(of));
    case Policy::per_device:
      return std::make_unique<PerDevice>(of.options, std::move(of.run));
    case Policy::chaos:
      return std::make_unique<Chaos>(of.options, std::move(of.run));
  }
  throw MisuseError("EngineOptions.policy is no Policy");
}

}  // namespace windrow
