// SIGINT, SIGTERM and SIGHUP, for a program that ends in order when they come.
#pragma once

#include <string>

namespace windrow::program {

/// While one exists, the signals end the program in order. Before and after the training they end it at once, with a
/// line on standard error. During the training the first one is noted, a line says so, and the program goes on; a
/// second one half a second later ends it at once. SIGPIPE is ignored: a reader of the output that has ended makes
/// writing fail. A SIGHUP that was ignored stays ignored, as nohup wants it.
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

/// Ends the program as the signal does that nobody handles.
[[noreturn]] void end_by(int signal);

}  // namespace windrow::program
