// Sums, maxima and similar values to which many ops add concurrently.
//
//   windrow::Reduction<double> sum(engine, 0.0);
//   for (std::size_t i = 0; i < tiles.size(); ++i) {
//     sum.add([](double& part, const Tile& tile) { part += total(tile); }, read(tiles[i]));
//   }
//   engine.push([](double sum, Report& report) { report.sum = sum; }, read(sum), mutate(report));
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "windrow/engine/value.h"

namespace windrow {

struct ReductionOptions {
  OpName name = "reduction";
  /// The number of partial values, 1 to 65,536. At most this many ops add concurrently.
  int ways = 8;
  static constexpr int most_ways = 65536;
};

/// A value to which ops add concurrently. Ops that access the value itself come after all earlier adds.
///
/// Each add goes to one of several partial values, in turn. Before an access to the value, an op combines the partial
/// values in a fixed order. So the bits of a sum depend on the order of the pushes only, and not on timing or on the
/// number of workers. An add that fails poisons its partial value, and hence the combined value; reset() heals both.
///
/// An owner: its destructor retires its variables; ops that were pushed before still run. Members may be called from
/// any thread, except value(). They throw as Engine::push does, and MisuseError if the engine is gone. In a capture, an
/// add and the next access must belong to the same graph: the reduction does not notice if a later launch repeats the
/// add alone.
template <class T, class Combine = std::plus<T>>
class Reduction {
  /// Occupies separate cache lines, since ops on other cores write the adjacent parts.
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
  /// What an op receives, and the state that the op keeps alive.
  template <class Object>
  struct Shared {
    std::shared_ptr<State> state;
    Object* object;
    Object& operator()(OpContext&) const { return *object; }
  };

 public:
  /// `combine(x, neutral)` must equal x for any x. The initial value is `neutral`. Throws MisuseError if `ways` is out
  /// of range.
  Reduction(Engine& engine, T neutral, Combine combine = {}, ReductionOptions options = {})
      : engine_(engine), name_(options.name) {
    if (options.ways < 1 || options.ways > ReductionOptions::most_ways)
      throw MisuseError("ReductionOptions.ways = " + std::to_string(options.ways) + "; expected 1 to " +
                        std::to_string(ReductionOptions::most_ways));
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

  /// Pushes an op that calls `function(part)`, where `part` is a T& that no other op accesses at that time.
  template <class F>
  void add(F function, AccessList accesses = {}, PushOptions options = {}) {
    std::vector<Access> all(accesses.begin(), accesses.end());
    const std::lock_guard lock(mutex_);
    const std::size_t i = take_part();
    all.push_back(windrow::mutate(parts_[i]));
    engine_->push([state = state_, i, f = std::move(function)]() mutable { f(state->parts[i].value); }, all, options);
  }

  /// The same for an op on values (value.h): calls `function(part, ...)` with what the accesses give.
  template <class F, AnyAccess A>
  void add(F function, const A& a, const PushOptions& options = {}) {
    add_typed(std::move(function), options, a);
  }
  template <class F, AnyAccess A, AnyAccess B>
  void add(F function, const A& a, const B& b, const PushOptions& options = {}) {
    add_typed(std::move(function), options, a, b);
  }
  template <class F, AnyAccess A, AnyAccess B, AnyAccess C>
  void add(F function, const A& a, const B& b, const C& c, const PushOptions& options = {}) {
    add_typed(std::move(function), options, a, b, c);
  }

  /// The access that orders an op or a wait after all adds so far. Pushes the op that combines the partial values, if
  /// there are new adds.
  Access read(std::source_location from = std::source_location::current()) { return windrow::read(combined(from)); }
  Access mutate(std::source_location from = std::source_location::current()) { return windrow::mutate(combined(from)); }

  /// As read() and mutate(), for pushes of functions that receive const T& and T&.
  friend auto read(Reduction& of, std::source_location from = std::source_location::current()) {
    return OneAccess(of.read(from), Shared<const T>{of.state_, &of.state_->whole});
  }
  friend auto mutate(Reduction& of, std::source_location from = std::source_location::current()) {
    return OneAccess(of.mutate(from), Shared<T>{of.state_, &of.state_->whole});
  }

  /// Waits for all adds so far, and returns the value. Throws as Engine::wait does.
  const T& get(std::source_location from = std::source_location::current()) {
    engine_->wait({read(from)}, from);
    return state_->whole;
  }
  /// The value. Use it only inside an op, or after a wait, with an access from read() or mutate().
  T& value() { return state_->whole; }

  /// Pushes an op that sets the value, drops all adds so far, and heals.
  void reset(T value, std::source_location from = std::source_location::current()) {
    std::vector<Access> all{overwrite(whole_)};
    const std::lock_guard lock(mutex_);
    for (const Var part : parts_) all.push_back(overwrite(part));
    engine_->push(
        [state = state_, value = std::move(value)] {
          for (Part& part : state->parts) part.value = state->neutral;
          state->whole = value;
        },
        all, {.name = name_, .pushed_at = from});
    added_ = 0;
  }

 private:
  template <class F, class... A>
  void add_typed(F&& function, const PushOptions& options, const A&... accesses) {
    const std::lock_guard lock(mutex_);
    const std::size_t i = take_part();
    const OneAccess part(windrow::mutate(parts_[i]), Shared<T>{state_, &state_->parts[i].value});
    engine_->push(std::forward<F>(function), part, accesses..., options);
  }

  std::size_t take_part() {
    added_ = std::min(added_ + 1, parts_.size());
    return std::exchange(next_, (next_ + 1) % parts_.size());
  }

  Var combined(std::source_location from) {
    const std::lock_guard lock(mutex_);
    if (added_ == 0) return whole_;
    std::vector<Access> all{windrow::mutate(whole_)};
    // The parts that received adds, the oldest first.
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
        all, {.name = name_, .pushed_at = from});
    added_ = 0;
    return whole_;
  }

  void end() noexcept {
    Engine* const engine = engine_.get();
    if (engine == nullptr) return;
    try {
      for (const Var part : parts_) EngineUse::retire(*engine, part, "the reduction");
      EngineUse::retire(*engine, whole_, "the reduction");
    } catch (const std::exception&) {
      // No memory for the retires: the variables stay until the engine ends.
    }
  }

  EngineRef engine_;
  const OpName name_;
  std::shared_ptr<State> state_;
  Var whole_;
  std::vector<Var> parts_;

  // Guards the fields below, which change in the order of the pushes. Recursive, since a push with policy serial runs
  // the op, which may add.
  std::recursive_mutex mutex_;
  std::size_t next_ = 0;   // the part that receives the next add
  std::size_t added_ = 0;  // parts that may have received adds since they were combined
};

}  // namespace windrow
