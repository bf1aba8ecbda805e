// SIGINT and SIGTERM, for a program that ends in order when they come.
#pragma once

namespace windrow::program {

/// While one exists, SIGINT and SIGTERM are noted, and the program goes on; a second signal half a second later ends it
/// at once. An owner; one at a time.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
};

/// The signal that was noted, or 0.
int noted_signal();

/// Ends the program as the signal does that nobody handles.
[[noreturn]] void end_by(int signal);

}  // namespace windrow::program
