// Shared by the engine's tests: policies as test parameters, and gates at which tests wait. Start here.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <string>

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

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
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
  static EngineOptions options() { return {.policy = GetParam().policy, .workers = GetParam().workers}; }
};

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

/// Expects an exception of this type whose text contains `part`.
template <class E, class Call>
void expect_error(Call&& call, const std::string& part, std::source_location at = std::source_location::current()) {
  const ::testing::ScopedTrace trace(at.file_name(), static_cast<int>(at.line()), "expected: " + part);
  const std::string text = error_of<E>(call);
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace windrow::testing

#define WINDROW_THREADED_POLICIES(fixture)                                                            \
  INSTANTIATE_TEST_SUITE_P(Threaded, fixture, ::testing::ValuesIn(windrow::testing::threaded_setups), \
                           windrow::testing::setup_name)
#define WINDROW_EVERY_POLICY(fixture)                                                        \
  INSTANTIATE_TEST_SUITE_P(All, fixture, ::testing::ValuesIn(windrow::testing::every_setup), \
                           windrow::testing::setup_name)
