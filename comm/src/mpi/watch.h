// Opening the plug-in library for MPI, and its calls, which may not return.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "plugin/mpi_calls.h"

namespace windrow::comm {

/// The table of the plug-in, which is opened by the first call and stays open. Throws MisuseError if there is none.
const MpiCalls& mpi_calls();

/// Watches the thread that calls MPI from another thread, which gives up when one call takes too long.
///
/// A lock guards what both threads use; the first thread holds it except inside a call of MPI. So `give_up` may use all
/// of it. A call that returns later throws GivenUp, and its thread ends without touching anything.
class MpiWatch {
 public:
  struct GivenUp {};
  /// Called once at most, under the lock. Returns what must live until the call has returned.
  using GiveUp = std::function<std::shared_ptr<void>(const std::string& why)>;

  struct Times {
    std::chrono::nanoseconds patience, tell_after;
  };
  /// Gives up when a call has not returned within `patience`. Logs a line after `tell_after`, after twice as long, and
  /// so on.
  MpiWatch(const MpiCalls& mpi, Times times, GiveUp give_up);
  ~MpiWatch();
  MpiWatch(const MpiWatch&) = delete;
  MpiWatch& operator=(const MpiWatch&) = delete;

  /// Runs `body`, which makes all calls of MPI, under the lock. Returns when `body` does, or throws GivenUp.
  void run(const std::function<void()>& body);
  /// The functions of `mpi`, for the thread inside run().
  static const MpiCalls& calls();
  /// The name of the MPI function that this thread has called last.
  static const char* last_call();

  struct Shared;

 private:
  const std::shared_ptr<Shared> state_;  // shared with the watching thread
};

/// MPI's text for an error of one of these functions. For the thread inside run().
std::string mpi_text(int error);

}  // namespace windrow::comm
