// Shared by the engine's tests: policies as test parameters, gates at which tests wait, and the headers that most tests
// need. Start here.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <source_location>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "windrow/engine/engine.h"

namespace windrow::testing {

using namespace std::chrono_literals;

/// A time limit that is reached only if something hangs.
inline constexpr auto patience = 60s;

/// A gate that is shut until it is opened. Every wait has a time limit.
class Gate {
 public:
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  /// Waits until the gate is open. Returns false if the limit expires first.
  bool pass(std::chrono::nanoseconds limit = patience) {
    std::unique_lock lock(mutex_);
    return opened_.wait_for(lock, limit, [&] { return open_; });
  }
  /// Expects that it is opened in time.
  void await() { EXPECT_TRUE(pass()); }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

/// Waits until `is` holds. Returns false after the patience of tests.
template <class F>
bool comes_true(F&& is) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (!is() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(50us);
  return is();
}

/// Counts who is inside at one time.
class Crowd {
 public:
  template <class F>
  void pass(F&& inside) {
    const int now = ++inside_;
    for (int seen = most_; seen < now && !most_.compare_exchange_weak(seen, now);) {
    }
    inside();
    --inside_;
  }
  void pass() {
    pass([] {});
  }
  /// Stays inside until so many have been inside at one time.
  void meet(int count) {
    pass([&] { EXPECT_TRUE(comes_true([&] { return most_ >= count; })); });
  }
  int most() const { return most_; }

 private:
  std::atomic<int> inside_{0}, most_{0};
};

/// An asynchronous op that has begun, and ends when complete() is called.
class HeldOp {
 public:
  HeldOp(Engine& engine, AccessList accesses, OpName name = "held") : HeldOp(engine, accesses, {.name = name}) {}
  HeldOp(Engine& engine, AccessList accesses, const PushOptions& options) {
    engine.push_async([this](OnComplete done) { done_.emplace(std::move(done)), begun_.open(); }, accesses, options);
    begun_.await();
  }
  void complete() { (*done_)(); }
  void drop() { done_.reset(); }

 private:
  std::optional<OnComplete> done_;
  Gate begun_;
};

/// Tokens of asynchronous ops that have not been completed. Any thread.
class Tokens {
 public:
  AsyncFunction taker() {
    return [this](OnComplete done) {
      std::lock_guard lock(mutex_);
      tokens_.push_back(std::move(done));
    };
  }
  std::size_t count() {
    std::lock_guard lock(mutex_);
    return tokens_.size();
  }
  /// Completes the first op that has not been completed. Returns whether there was one.
  bool complete_one() {
    std::unique_lock lock(mutex_);
    if (tokens_.empty()) return false;
    OnComplete done = std::move(tokens_.front());
    tokens_.pop_front();
    lock.unlock();
    done();
    return true;
  }

 private:
  std::mutex mutex_;
  std::deque<OnComplete> tokens_;
};

/// An op that runs until it is let go; for policies whose ops do not run inside push.
class StuckOp {
 public:
  StuckOp(Engine& engine, AccessList accesses, OpName name = "stuck") {
    engine.push([this] { runs_.open(), go_.await(), left_.open(); }, accesses, {.name = name});
    runs_.await();
  }
  ~StuckOp() { let_go(), left_.await(); }
  StuckOp(const StuckOp&) = delete;
  StuckOp& operator=(const StuckOp&) = delete;
  void let_go() { go_.open(); }

 private:
  Gate runs_, go_, left_;
};

/// Calls a function when it goes.
struct AtEnd {
  std::function<void()> call;
  ~AtEnd() { call(); }
};

/// The options of an engine that opens the gate when it has ended.
inline EngineOptions opens_at_its_end(EngineOptions options, Gate& gate) {
  // Kept as long as the engine lives.
  options.on_thread_start = [watch = std::make_shared<AtEnd>([&gate] { gate.open(); })] {};
  return options;
}

/// Calls body(number) in so many threads at one time. Returns when all have ended.
template <class F>
void on_threads(int count, F&& body) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
}

/// What the call writes on standard error.
template <class F>
std::string stderr_of(F&& call) {
  ::testing::internal::CaptureStderr();
  call();
  return ::testing::internal::GetCapturedStderr();
}

/// The first line with this text that somebody writes on standard error from now on, or again and again.
inline std::string next_line_on_stderr(std::string_view text) {
  for (auto time = std::chrono::milliseconds(20);; time *= 2) {
    const std::string told = stderr_of([&] { std::this_thread::sleep_for(time); });
    const std::size_t at = told.find(text);
    if (at == told.npos) continue;
    const std::size_t begin = told.rfind('\n', at) + 1;
    return told.substr(begin, told.find('\n', at) - begin);
  }
}

/// Waits inside an op. Returns whether that is refused because the wait cannot end.
inline bool closes_ring(Engine& engine, AccessList accesses) {
  try {
    engine.wait(accesses);
  } catch (const WaitCycleError&) {
    return true;
  }
  return false;
}

/// While it lives, the variable has this value, or none.
class Environment {
 public:
  Environment(const char* variable, const char* value) : variable_(variable) {
    if (const char* before = std::getenv(variable)) before_ = before;
    set(value);
  }
  ~Environment() { set(before_ ? before_->c_str() : nullptr); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  void set(const char* value) {
    if (value == nullptr) {
      unsetenv(variable_);
    } else {
      setenv(variable_, value, 1);
    }
  }

  const char* const variable_;
  std::optional<std::string> before_;
};

struct Setup {
  Policy policy;
  int workers;
};

inline const Setup every_setup[] = {
    {Policy::serial, 1},     {Policy::pool, 1},       {Policy::pool, 2},  {Policy::pool, 8},
    {Policy::per_device, 1}, {Policy::per_device, 4}, {Policy::chaos, 1}, {Policy::chaos, 4},
};

/// The setups whose ops do not run inside push.
inline const Setup threaded_setups[] = {
    {Policy::pool, 1},       {Policy::pool, 2},  {Policy::pool, 8},
    {Policy::per_device, 1}, {Policy::chaos, 1}, {Policy::chaos, 4},
};

inline std::string setup_name(const ::testing::TestParamInfo<Setup>& info) {
  return std::string(to_string(info.param.policy)) + "_" + std::to_string(info.param.workers);
}

/// A token whose stop has been requested.
inline std::stop_token stopped() {
  std::stop_source source;
  source.request_stop();
  return source.get_token();
}

/// A test that runs with every policy and several worker counts.
class EveryPolicy : public ::testing::TestWithParam<Setup> {
 protected:
  static EngineOptions options(EngineOptions more = {}) {
    more.policy = GetParam().policy;
    more.workers = GetParam().workers;
    return more;
  }
};

/// The same with an engine and variables.
class EngineOnEveryPolicy : public EveryPolicy {
 protected:
  Engine engine{options()};
  const Var a = engine.new_var("a"), b = engine.new_var("b"), c = engine.new_var("c");
};

/// A test with an engine whose pool has so many workers.
template <int workers>
class PoolOf : public ::testing::Test {
 protected:
  Engine engine{{.policy = Policy::pool, .workers = workers}};
  const Var a = engine.new_var("a"), b = engine.new_var("b"), c = engine.new_var("c");
};

/// A test that runs with each policy.
class EachPolicy : public ::testing::TestWithParam<Policy> {};

/// Runs `call` and returns the text of the error of type E that it throws.
template <class E, class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const E& e) {
    return e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "another exception: " << e.what();
    return {};
  }
  ADD_FAILURE() << "no exception";
  return {};
}

/// Expects that the call throws an OpError whose first cause is of type E. Returns the failure.
template <class E, class Call>
FailurePtr expect_root(Call&& call) {
  try {
    call();
  } catch (const OpError& e) {
    EXPECT_THROW(e.rethrow_root(), E);
    return e.failures().front();
  }
  ADD_FAILURE() << "no exception";
  return nullptr;
}

/// Expects an exception of this type whose text contains the parts. Returns the text.
template <class E, class Call>
std::string expect_error(Call&& call, std::initializer_list<std::string_view> parts,
                         std::source_location at = std::source_location::current()) {
  const std::string text = error_of<E>(call);
  for (const std::string_view part : parts) {
    if (text.find(part) != std::string::npos) continue;
    ADD_FAILURE_AT(at.file_name(), static_cast<int>(at.line())) << "'" << part << "' is not in: " << text;
  }
  return text;
}
template <class E, class Call>
std::string expect_error(Call&& call, std::string_view part,
                         std::source_location at = std::source_location::current()) {
  return expect_error<E>(call, {part}, at);
}

}  // namespace windrow::testing

#define WINDROW_THREADED_POLICIES(fixture)                                                            \
  INSTANTIATE_TEST_SUITE_P(Threaded, fixture, ::testing::ValuesIn(windrow::testing::threaded_setups), \
                           windrow::testing::setup_name)
#define WINDROW_EACH_POLICY(fixture)                                                               \
  INSTANTIATE_TEST_SUITE_P(Policies, fixture,                                                      \
                           ::testing::Values(windrow::Policy::serial, windrow::Policy::pool,       \
                                             windrow::Policy::per_device, windrow::Policy::chaos), \
                           [](const auto& about) { return std::string(to_string(about.param)); })
#define WINDROW_EVERY_POLICY(fixture)                                                        \
  INSTANTIATE_TEST_SUITE_P(All, fixture, ::testing::ValuesIn(windrow::testing::every_setup), \
                           windrow::testing::setup_name)
