// Learning a schedule table, by tabular Q-learning over the states of the frontier (Chen et al. 2023).
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "schedule/frontier.h"
#include "windrow/engine/error.h"
#include "windrow/ops/philox.h"

namespace windrow {
namespace {

/// Exploration: one of this many choices is random.
constexpr std::uint32_t one_drawn_of = 10;
/// Episodes between two evaluations of the table on all examples.
constexpr int episodes_a_trial = 25;

/// A lower bound on the number of batches for the vertices of a graph that are left.
class Remainder {
 public:
  explicit Remainder(const ScheduleFacts& facts) : graph_(facts.graph), heights_(own_heights(facts)) {
    left_.resize(at(graph_.types));
    for (std::size_t v = 0; v < heights_.size(); ++v) {
      auto& of_type = left_[at(graph_.type[v])];
      if (of_type.size() <= at(heights_[v])) of_type.resize(at(heights_[v]) + 1, 0);
      ++of_type[at(heights_[v])];
    }
    for (const auto& of_type : left_) sum_ += std::max<std::int64_t>(static_cast<std::int64_t>(of_type.size()) - 1, 0);
  }

  std::int64_t fewest() const { return sum_; }
  void take(std::span<const std::int32_t> batch) {
    auto& of_type = left_[at(graph_.type[at(batch.front())])];
    for (const std::int32_t v : batch) --of_type[at(heights_[at(v)])];
    for (; of_type.size() > 1 && of_type.back() == 0; of_type.pop_back()) --sum_;
  }

 private:
  const TypedGraph& graph_;
  const std::vector<std::int32_t> heights_;
  std::vector<std::vector<std::int32_t>> left_;  // numbers of vertices by type and height; each height needs a batch
  std::int64_t sum_ = 0;
};

}  // namespace

class ScheduleLearner {
 public:
  ScheduleLearner(std::span<const TypedGraph> examples, const ScheduleTable::Options& options) : options_(options) {
    for (const TypedGraph& example : examples) {
      facts_.push_back(std::make_unique<ScheduleFacts>(example));
      fewest_ += Remainder(*facts_.back()).fewest();
    }
    types_ = examples.front().types;
  }

  ScheduleTable learn() {
    ScheduleTable best;  // empty: chooses as agenda
    best.types_ = types_;
    std::int64_t least = batches_by(best);
    for (int episode = 0; episode < options_.episodes && least > fewest_; ++episode) {
      play(*facts_[static_cast<std::size_t>(episode) % facts_.size()]);
      if ((episode + 1) % episodes_a_trial != 0) continue;
      ScheduleTable table = greedy();
      const std::int64_t batches = batches_by(table);
      if (batches >= least) continue;
      least = batches;
      best = std::move(table);
    }
    return best;
  }

 private:
  using Values = std::vector<double>;  // by type; values of types that are not ready are not used

  void play(const ScheduleFacts& facts) {
    Frontier frontier(facts);
    Remainder left(facts);
    std::string state = frontier.state();
    while (!frontier.empty()) {
      const std::int32_t type = draw() % one_drawn_of == 0 ? any(frontier) : best(frontier, values(state));
      const std::int64_t before = left.fewest();
      frontier.take(type);
      left.take(frontier.last());
      const auto reward = static_cast<double>(before - left.fewest() - 1);
      std::string next = frontier.state();
      double then = 0;
      if (!frontier.empty()) {
        const Values& of_next = values(next);
        then = of_next[at(best(frontier, of_next))];
      }
      double& value = values(state)[at(type)];
      value += options_.learning_rate * (reward + then - value);
      state = std::move(next);
    }
  }

  ScheduleTable greedy() const {
    ScheduleTable table;
    table.types_ = types_;
    for (const auto& [state, values] : values_) {
      std::int32_t best = -1;
      for (std::size_t i = 0; i < state.size(); i += sizeof best) {
        std::int32_t type = 0;
        state.copy(reinterpret_cast<char*>(&type), sizeof type, i);
        if (best < 0 || values[at(type)] > values[at(best)]) best = type;
      }
      if (best >= 0) table.best_.emplace(state, best);
    }
    return table;
  }

  std::int64_t batches_by(const ScheduleTable& table) const {
    std::int64_t sum = 0;
    for (const auto& facts : facts_) {
      Frontier frontier(*facts);
      while (!frontier.empty()) frontier.take(frontier.best_type(table));
      sum += static_cast<std::int64_t>(frontier.schedule.batches.size());
    }
    return sum;
  }

  Values& values(const std::string& state) { return values_.try_emplace(state, at(types_), 0.0).first->second; }

  std::int32_t best(const Frontier& frontier, const Values& values) const {
    std::int32_t best = -1;
    for (std::int32_t type = 0; type < types_; ++type) {
      if (frontier.ready(type) > 0 && (best < 0 || values[at(type)] > values[at(best)])) best = type;
    }
    return best;
  }
  std::int32_t any(const Frontier& frontier) {
    std::vector<std::int32_t> types;
    for (std::int32_t type = 0; type < types_; ++type) {
      if (frontier.ready(type) > 0) types.push_back(type);
    }
    return types[draw() % types.size()];
  }

  std::uint32_t draw() {
    const std::uint64_t i = drawn_++;
    return philox({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), 0, 0},
                  philox_key(options_.seed))[0];
  }

  const ScheduleTable::Options options_;
  std::vector<std::unique_ptr<ScheduleFacts>> facts_;
  std::int64_t fewest_ = 0;
  std::int32_t types_ = 0;
  std::unordered_map<std::string, Values> values_;  // by state
  std::uint64_t drawn_ = 0;
};

ScheduleTable ScheduleTable::learn(std::span<const TypedGraph> examples, const Options& options) {
  if (examples.empty()) throw MisuseError("schedule: a table learned from no example; expected one or more");
  for (const TypedGraph& example : examples) {
    if (example.types == examples.front().types) continue;
    throw MisuseError("schedule: examples of " + std::to_string(examples.front().types) + " and " +
                      std::to_string(example.types) + " types; expected as many in all");
  }
  return ScheduleLearner(examples, options).learn();
}

}  // namespace windrow
