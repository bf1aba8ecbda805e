#include "diagnosis/watchdog.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <system_error>

#include "core/core.h"
#include "diagnosis/engine_log.h"

namespace windrow {
namespace {

constexpr int looks_in_patience = 4;  // number of looks within the patience
constexpr std::chrono::milliseconds most_frequent{1};

std::string in_seconds(std::chrono::nanoseconds time) {
  std::array<char, 32> text;  // %g has 13 characters at most
  std::snprintf(text.data(), text.size(), "%g s", std::chrono::duration<double>(time).count());
  return text.data();
}

}  // namespace

void Watchdog::start() {
  MutexLock lock(mutex_);
  if (thread_.joinable() || stopping_) return;
  try {
    thread_ = std::thread(&Watchdog::serve, this);
  } catch (const std::system_error&) {
    throw Error("cannot start the thread of EngineOptions.watchdog");
  }
}

void Watchdog::stop() {
  std::thread thread;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    thread.swap(thread_);
    changed_.notify_all();
  }
  if (thread.joinable()) thread.join();
}

void Watchdog::forget_thread() noexcept {
  forget(thread_);
  changed_.forget_waiters();
  finished_ = 0;
  silent_since_.reset();
  told_ = false;
}

void Watchdog::serve() {
  const auto nap = std::max<std::chrono::nanoseconds>(core_.options.watchdog / looks_in_patience, most_frequent);
  while (true) {
    {
      MutexLock lock(mutex_);
      const auto until = Clock::now() + std::min<std::chrono::nanoseconds>(nap, std::chrono::hours(1));
      while (!stopping_ && changed_.wait_until(mutex_, until)) {
      }
      if (stopping_) return;
    }
    if (look()) report();
  }
}

bool Watchdog::look() {
  const Progress now = core_.monitor.progress();
  if (now.pending == 0 || now.finished != finished_ || !silent_since_) {
    finished_ = now.finished;
    told_ = false;
    silent_since_.reset();
    if (now.pending > 0) silent_since_ = Clock::now();
    return false;
  }
  return !told_ && Clock::now() - *silent_since_ >= core_.options.watchdog;
}

void Watchdog::report() {
  told_ = true;
  try {
    std::string text =
        "no op has finished for " + in_seconds(core_.options.watchdog) + "; " + core_.monitor.describe_pending();
    engine_log().warn("windrow: {}", text);
    if (core_.options.on_silence) core_.options.on_silence(std::move(text));
  } catch (const std::exception& e) {
    engine_log().error("windrow: the watchdog's report failed: {}", e.what());
  } catch (...) {
    engine_log().error("windrow: on_silence threw");
  }
}

}  // namespace windrow
