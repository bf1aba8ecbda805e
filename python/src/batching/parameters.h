// Parameters as Python sees them, and whose turn it is to use them.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "python.h"
#include "windrow/batching/parameters.h"

namespace windrow::python {

/// Lets one thread at a time use a set of parameters, with its runners and optimisers, since calls on them run without
/// the GIL. Invariant: `owner` is the thread that holds the mutex, if one does.
struct Turns {
  std::timed_mutex mutex;
  std::atomic<std::thread::id> owner{};
};

/// The set and its turns.
struct ParametersObject {
  explicit ParametersObject(std::shared_ptr<Parameters> of) : owned(std::move(of)), parameters(*owned) {}

  const std::shared_ptr<Parameters> owned;  // on its own, or a part of a model
  Parameters& parameters;
  Turns turns;
};
using SharedParameters = std::shared_ptr<ParametersObject>;

/// A parameter of Python, which keeps its set.
struct ParameterObject {
  SharedParameters of;
  Parameter parameter;
};

/// Python's Parameters.
struct ParametersHandle {
  SharedParameters shared;
};

/// This thread's turn for some sets: locks their Turns. Begins with the GIL, and releases it while it waits. Throws
/// MisuseError in place of waiting inside an op, since the thread whose turn it is may wait for that op. Also throws
/// MisuseError if this thread already has a turn for one of the sets.
class Turn {
 public:
  explicit Turn(ParametersObject& set) : Turn(std::span<const SharedParameters>(), &set) {}
  explicit Turn(std::span<const SharedParameters> sets) : Turn(sets, nullptr) {}
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Turn() = default;
  Turn(std::span<const SharedParameters> sets, ParametersObject* alone);

  std::vector<Turns*> taken_;  // in the order of addresses, so that no two threads wait for each other
};

/// Throws MisuseError if no gradients were ever computed or set, so that a step would change nothing.
void require_gradients(const Parameters& set, const char* call);

}  // namespace windrow::python
