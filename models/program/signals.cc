#include "program/signals.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <initializer_list>
#include <string_view>

#include "windrow/comm/mpi.h"

namespace windrow::program {
namespace {

constexpr std::array handled = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
std::array<struct sigaction, handled.size()> earlier;  // of the program, before there were Signals

enum class Phase { before, training, after };
std::atomic<Phase> phase{Phase::before};
std::atomic<int> signal_that_came{0};
std::atomic<std::int64_t> came_at{0};  // ms; written and read by the handler
std::atomic<bool> speaks{true};        // whether this process prints lines; one of several does
static_assert(std::atomic<std::int64_t>::is_always_lock_free && std::atomic<Phase>::is_always_lock_free);

constexpr std::string_view name_of(int signal) {
  return signal == SIGINT ? "SIGINT" : signal == SIGTERM ? "SIGTERM" : "SIGHUP";
}

/// Runs in a signal handler, so it makes only system calls.
void say(std::string_view begin, std::string_view name, std::string_view end) {
  if (!speaks) return;
  const std::string_view clear = ::isatty(STDERR_FILENO) == 1 ? "\r\033[K" : "";  // the line of progress
  for (const std::string_view part : {clear, begin, name, end}) {
    if (::write(STDERR_FILENO, part.data(), part.size()) < 0) return;
  }
}

void end_program(int signal) {
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// Some senders, such as timeout, send a signal twice in a row, faster than an impatient person does.
extern "C" void note_signal(int signal) {
  constexpr std::int64_t twice_in_a_row = 500;
  const int before = errno;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t ms = std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
  const Phase now_in = phase;
  if (now_in != Phase::training) {
    say("windrow: ended by ", name_of(signal), now_in == Phase::before ? " before the training began\n" : "\n");
    end_program(signal);
  } else if (signal_that_came == 0) {
    came_at = ms;
    signal_that_came = signal;
    say("windrow: ", name_of(signal), ": stopping after this minibatch; press again to quit now\n");
  } else if (ms - came_at > twice_in_a_row) {
    end_program(signal);
  }
  errno = before;
}

}  // namespace

Signals::Signals() {
  signal_that_came = 0;
  phase = Phase::before;
  speaks = MpiWorld::started().rank == 0;
  for (std::size_t i = 0; i < handled.size(); ++i) {
    struct sigaction action = {};
    action.sa_handler = handled[i] == SIGPIPE ? SIG_IGN : note_signal;
    action.sa_flags = SA_RESTART;
    sigaction(handled[i], &action, &earlier[i]);
    if (handled[i] == SIGHUP && earlier[i].sa_handler == SIG_IGN) sigaction(SIGHUP, &earlier[i], nullptr);
  }
}

Signals::~Signals() {
  for (std::size_t i = 0; i < handled.size(); ++i) sigaction(handled[i], &earlier[i], nullptr);
}

void Signals::begin_training() { phase = Phase::training; }
void Signals::end_training() { phase = Phase::after; }

int noted_signal() { return signal_that_came; }

std::string signal_name(int signal) { return std::string(name_of(signal)); }

void end_by(int signal) {
  std::signal(signal, SIG_DFL);
  std::raise(signal);
  std::abort();  // not reached
}

}  // namespace windrow::program
