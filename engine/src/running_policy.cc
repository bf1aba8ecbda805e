#include "running_policy.h"

#include <map>
#include <utility>

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
  Serial(const EngineOptions& options, Crew::Run run)
      : crew_(only_crew(options), std::make_unique<PriorityQueue>(), std::move(run)) {}

  void start(LaneState&) override {}
  void add(OpRecord& op) override { crew_.add(op); }
  void before_push() override { crew_.announce(); }
  void after_push(Crew::Patience patience) override { crew_.help(patience); }
  void stop() override { crew_.stop(); }
  int spares() const override { return crew_.spares(); }

 private:
  static CrewOptions only_crew(const EngineOptions& options) {
    CrewOptions result = crew_options(options, "serial", 1);
    result.callers_run = true;
    return result;
  }

  Crew crew_;
};

/// One crew for all lanes; also the body of chaos, which differs by its queue.
class Pool : public RunningPolicy {
 public:
  Pool(const EngineOptions& options, std::string name, std::unique_ptr<ReadyQueue> queue, Crew::Run run)
      : crew_(crew_options(options, std::move(name), options.workers), std::move(queue), std::move(run)) {}

  void start(LaneState&) override { crew_.start(); }
  void add(OpRecord& op) override { crew_.add(op); }
  void stop() override { crew_.stop(); }
  int spares() const override { return crew_.spares(); }

 protected:
  const Crew& crew() const { return crew_; }

 private:
  Crew crew_;
};

class Chaos final : public Pool {
 public:
  Chaos(const EngineOptions& options, Crew::Run run)
      : Pool(options, "chaos", std::make_unique<ChaosQueue>(options.chaos_seed, options.chaos_replay), std::move(run)) {
  }

  std::vector<OpId> schedule_log() const override {
    return crew().inspect([](const ReadyQueue& queue) { return static_cast<const ChaosQueue&>(queue).log(); });
  }
  bool replay_diverged() const override {
    return crew().inspect([](const ReadyQueue& queue) { return static_cast<const ChaosQueue&>(queue).diverged(); });
  }
};

class PerDevice final : public RunningPolicy {
 public:
  PerDevice(const EngineOptions& options, Crew::Run run) : options_(options), run_(std::move(run)) {}

  void start(LaneState& lane) override {
    CrewOptions crew = crew_options(options_, lane.host.name, lane.host.threads);
    crew.urgent_slots = lane.id == host_lane ? 1 : 0;
    MutexLock lock(mutex_);
    crews_.try_emplace(lane.id.index, std::move(crew), std::make_unique<PriorityQueue>(), run_).first->second.start();
  }

  void add(OpRecord& op) override { crew_of(*op.info.lane).add(op); }

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

 private:
  Crew& crew_of(const LaneState& lane) {
    MutexLock lock(mutex_);
    return crews_.at(lane.id.index);
  }

  const EngineOptions options_;
  const Crew::Run run_;
  mutable Mutex mutex_;
  std::map<std::uint32_t, Crew> crews_ WINDROW_GUARDED_BY(mutex_);  // by lane; never shrinks
};

}  // namespace

std::unique_ptr<RunningPolicy> make_policy(const EngineOptions& options, Crew::Run run) {
  switch (options.policy) {
    case Policy::serial:
      return std::make_unique<Serial>(options, std::move(run));
    case Policy::pool:
      return std::make_unique<Pool>(options, "pool", std::make_unique<PriorityQueue>(), std::move(run));
    case Policy::per_device:
      return std::make_unique<PerDevice>(options, std::move(run));
    case Policy::chaos:
      return std::make_unique<Chaos>(options, std::move(run));
  }
  throw MisuseError("EngineOptions.policy is no Policy");
}

}  // namespace windrow
