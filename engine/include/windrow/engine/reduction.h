// Sums, maxima and the like, to which many ops add side by side.
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "windrow/engine/engine.h"

namespace windrow {

struct ReductionOptions {
  OpName name = "reduction";
  /// Partial values, 1 or more; as many ops may add at a time.
  int ways = 8;
};

/// A value that ops add to, and that others read or change when all that was added before is in it.
///
/// Each add is to one of some partial values, which take turns; before anybody looks, an op combines them, in a fixed
/// order. So the bits of a sum depend on the order of the pushes, and neither on who ran when nor on how many workers
/// there are. An add that fails poisons its partial value, and so what is combined later; reset() heals.
///
/// An owner. Its end retires its variables; ops that were pushed before still run. Members may be called by any thread,
/// value() as it says. They throw as Engine::push does, and MisuseError if the engine is gone. In a capture, an add and
/// the access that comes after it belong into the same graph: a later launch of the add alone is not noticed.
template <class T, class Combine = std::plus<T>>
class Reduction {
 public:
  /// `combine(x, neutral)` is x for any x; the value is `neutral` in the beginning. Throws MisuseError for no ways.
  Reduction(Engine& engine, T neutral, Combine combine = {}, ReductionOptions options = {})
      : engine_(engine), name_(options.name) {
    if (options.ways < 1)
      throw MisuseError("ReductionOptions.ways = " + std::to_string(options.ways) + "; expected 1 or more");
    const auto ways = static_cast<std::size_t>(options.ways);
    state_ = std::make_shared<State>(std::move(neutral), std::move(combine), ways);
    whole_ = engine.new_var(name_);
    try {
      for (std::size_t i = 0; i < ways; ++i) parts_.push_back(engine.new_var(name_));
    } catch (...) {
      end();
      throw;
    }
  }
  ~Reduction() { end(); }
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;

  /// Pushes an op that calls `function(part)`, a T& to which no other op adds meanwhile.
  template <class F>
  void add(F function, AccessList accesses = {}, PushOptions options = {}) {
    std::vector<Access> all(accesses.begin(), accesses.end());
    std::lock_guard lock(mutex_);
    const std::size_t i = next_;
    all.push_back(windrow::mutate(parts_[i]));
    engine_->push([state = state_, i, f = std::move(function)]() mutable { f(state->parts[i].value); }, all, options);
    next_ = (i + 1) % parts_.size();
    added_ = std::min(added_ + 1, parts_.size());
  }

  /// The access of an op, or of a wait, that comes after all that was added so far.
  Access read() { return windrow::read(combined()); }
  Access mutate() { return windrow::mutate(combined()); }

  /// For who has been granted such an access, until it ends.
  T& value() { return state_->whole; }

  /// From here on the value is this one again, whatever was added, and whatever failed.
  void reset(T value) {
    std::vector<Access> all{overwrite(whole_)};
    std::lock_guard lock(mutex_);
    for (const Var part : parts_) all.push_back(overwrite(part));
    engine_->push(
        [state = state_, value = std::move(value)] {
          for (Part& part : state->parts) part.value = state->neutral;
          state->whole = value;
        },
        all, {.name = name_});
    added_ = 0;
  }

 private:
  /// On lines of its own, since others add beside it.
  struct alignas(64) Part {
    T value;
  };
  struct State {
    State(T none, Combine how, std::size_t ways)
        : neutral(std::move(none)), combine(std::move(how)), whole(neutral), parts(ways, Part{neutral}) {}

    const T neutral;
    Combine combine;
    T whole;
    std::vector<Part> parts;
  };

  Var combined() {
    std::lock_guard lock(mutex_);
    if (added_ == 0) return whole_;
    std::vector<Access> all{windrow::mutate(whole_)};
    // The last ones that were added to, the oldest first.
    std::vector<std::size_t> parts;
    for (std::size_t k = added_; k > 0; --k) parts.push_back((next_ + parts_.size() - k) % parts_.size());
    for (const std::size_t i : parts) all.push_back(windrow::mutate(parts_[i]));
    engine_->push(
        [state = state_, parts = std::move(parts)] {
          for (const std::size_t i : parts) {
            state->whole =
                state->combine(std::move(state->whole), std::exchange(state->parts[i].value, state->neutral));
          }
        },
        all, {.name = name_});
    added_ = 0;
    return whole_;
  }

  void end() noexcept {
    Engine* const engine = engine_.get();
    if (engine == nullptr) return;
    try {
      for (const Var part : parts_) engine->retire(part);
      engine->retire(whole_);
    } catch (const std::exception&) {
      // For want of memory: they stay until the engine ends.
    }
  }

  EngineRef engine_;
  const OpName name_;
  std::shared_ptr<State> state_;
  Var whole_;
  std::vector<Var> parts_;

  std::mutex mutex_;       // guards what follows, and keeps its order and that of the pushes the same
  std::size_t next_ = 0;   // the part that is added to next
  std::size_t added_ = 0;  // parts that may have been added to since they were combined
};

}  // namespace windrow
