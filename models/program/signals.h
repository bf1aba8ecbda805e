// Handles SIGINT, SIGTERM and SIGHUP, so that a program ends in order.
#pragma once

#include <string>

namespace windrow::program {

/// While one exists, the signals end the program in order. Before and after the training they end it at once, with a
/// line on standard error. During the training, the first one is noted and reported by a line, and the program goes on.
/// A second one, at least half a second later, ends it at once. SIGPIPE is ignored: writing fails if the reader of the
/// output has ended. A SIGHUP that was ignored before stays ignored, as nohup requires.
///
/// An owner; one at a time. Threads: any may call the static functions.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  static void begin_training();
  static void end_training();
};

/// The signal that was noted, or 0.
int noted_signal();
/// Such as "SIGINT".
std::string signal_name(int signal);

/// Ends the program as the unhandled signal does.
[[noreturn]] void end_by(int signal);

}  // namespace windrow::program
