#include "signals.h"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace windrow::program {
namespace {

volatile std::sig_atomic_t signal_that_came = 0;
std::atomic<std::int64_t> came_at{0};  // ms; written and read by the handler

/// Some senders, such as timeout, send a signal twice in a row. A person who is impatient needs longer.
extern "C" void note_signal(int signal) {
  constexpr std::int64_t twice_in_a_row = 500;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t ms = std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
  if (signal_that_came == 0) {
    came_at = ms;
    signal_that_came = signal;
  } else if (ms - came_at > twice_in_a_row) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

void handle_signals(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

}  // namespace

Signals::Signals() {
  signal_that_came = 0;
  handle_signals(note_signal);
}

Signals::~Signals() { handle_signals(SIG_DFL); }

int noted_signal() { return signal_that_came; }

void end_by(int signal) {
  std::signal(signal, SIG_DFL);
  std::raise(signal);
  std::abort();  // nobody returns from it
}

}  // namespace windrow::program
