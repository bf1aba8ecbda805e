// Calls of MPI that do not return.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "plugin/mpi_calls.h"

namespace windrow::comm {

/// Watches the thread that calls MPI from another thread, which gives up when one call takes too long.
///
/// What both threads use is guarded by a lock that the first thread holds except inside a call of MPI. So giving up
/// may use all of it; a call that returns later throws GivenUp, and the thread ends without touching anything.
class MpiWatch {
 public:
  struct GivenUp {};
  /// Called once at most, under the lock. Returns what must live until the call has returned.
  using GiveUp = std::function<std::shared_ptr<void>(const std::string& why)>;

  /// Gives up when a call has not returned for `patience`.
  MpiWatch(const MpiCalls& mpi, std::chrono::nanoseconds patience, GiveUp give_up);
  ~MpiWatch();
  MpiWatch(const MpiWatch&) = delete;
  MpiWatch& operator=(const MpiWatch&) = delete;

  /// What one thread does, as long as it calls MPI: runs `body` under the lock. Returns when body does, or throws
  /// GivenUp.
  void run(const std::function<void()>& body);
  /// The functions of `mpi`, for the thread inside run().
  static const MpiCalls& calls();

  struct State;

 private:
  const std::shared_ptr<State> state_;  // shared with the watching thread
};

}  // namespace windrow::comm
