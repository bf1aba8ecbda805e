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

/// Who may use a set of parameters, with its runners and optimisers: one thread at a time, while calls on them run
/// without the GIL. Invariant: `owner` is the thread that holds the mutex, if one does.
struct Turns {
  std::timed_mutex mutex;
  std::atomic<std::thread::id> owner{};
};

/// The set and its turns.
struct ParametersObject {
  explicit ParametersObject(std::shared_ptr<Parameters> of) : owned(std::move(of)), parameters(*owned) {}

  const std::shared_ptr<Parameters> owned;  // alone, or as a part of a model
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

/// This thread's turn for some sets. Needs the GIL when it begins, and gives it up while it waits. Inside an op it does
/// not wait, since the thread whose turn it is may wait for that op: then it throws MisuseError, as it does for a
/// second turn of one thread.
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
