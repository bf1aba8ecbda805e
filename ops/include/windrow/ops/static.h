// Static programs of operators: recorded once, replayed from then on.
//
//   windrow::Static step(host, [&](const windrow::StaticInputs& call) -> std::vector<windrow::Tensor> {
//     windrow::Tape tape(host);
//     ...                                   // forward, backward, the optimiser's step
//     return {loss};
//   });
//   for (...) step({.in = {images}, .indices = {labels}});
//
// The first call with inputs of some shapes calls the body and records the operators that it applies. Later calls with
// inputs of these shapes launch the recording as an engine graph: no body, no shape inference, no checks, no tensors
// made, and the tensors inside lie at places in one block of memory that were planned once.
//
// Contract
//   Order    A call equals calling the body. Variables order its ops with all others, as pushed ops are.
//   Body     It may apply operators, make, view, fill and set tensors, draw, call other Statics, and push replayable
//   ops
//            (recording.h), such as Optimiser::step. Any other push to the engine, and a wait, throws MisuseError.
//            Whatever else it does happens once, when it is recorded. Numbers that it passes are constants of the
//            recording: a number that changes belongs in a tensor. If the program's state decides which ops the body
//            applies, such as which parameters are frozen, each state needs a `key` of its own.
//   Tensors  Inputs are copied. A tensor that the body makes, and that is held when it has returned, keeps its memory,
//            and each replay overwrites it; all others share planned memory. Tensors from outside are accessed in
//            place. To carry a value to the next call, write it into such a tensor. A handle that the body assigns is
//            assigned once; the body throws MisuseError if nobody holds a tensor afterwards that it has read.
//   Memory   Each recording has memory of its own. Where the host's memory has a limit, recordings that were used least
//            recently are dropped until there is room for the called one, and all take half of the limit at most.
//   Errors   If the body throws, nothing of it is pushed or kept. An op that fails in a replay poisons what it writes,
//            and the next call heals it; Engine::wait_all() reports it until then. With order `serial` or
//            `breadth_first`, neighbouring ops of a lane fail together.
//   Captures In Engine::capture, a call adds the replay to the graph; a first call throws MisuseError.
//   Threads  One at a time. A Static may end while replays run; tensors that it returned stay valid.
#pragma once
#include "windrow/engine/requirements.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <vector>

#include "windrow/ops/tensor.h"

namespace windrow {

struct StaticInputs {
  std::vector<Tensor> in = {};
  std::vector<IntTensor> indices = {};
  /// Of whatever else the body depends on: calls of different keys are recorded apart. For programs whose structure
  /// differs from sample to sample, a hash of the types and of the child structure: windrow/batching/structure_key.h.
  std::uint64_t key = 0;
};

struct StaticOptions {
  /// The order in which a replay runs its ops. All of them give the same bits.
  enum class Order : std::uint8_t {
    parallel,       ///< each op is an op of the engine: ops that do not depend on each other run concurrently
    serial,         ///< as recorded; a replay costs the engine one op for each run of ops on one lane
    breadth_first,  ///< the same, by depth in the graph of dependencies; those of one depth as recorded
  } order = Order::parallel;
  /// The most recordings that are kept. The one that was used least recently is dropped first. At least 1.
  std::size_t most_recordings = 8;
  OpName name = "static";  ///< of its ops where several are one op of the engine
  /// With order `serial` or `breadth_first`: runs of operators are captured on lanes that can do so (captured_work.h),
  /// such as those of CUDA devices, so that a replay issues each of them by one call. The first capture of a CUDA lane
  /// takes 32 MiB of the device's memory for cuBLAS; without them, operators are issued one by one.
  bool capture = true;
  /// If set, the results of a call depend on its inputs and on these tensors alone: a first call throws MisuseError if
  /// the body reads or returns another tensor from outside, writes one, or draws.
  std::optional<std::vector<Tensor>> reads = {};
};

/// Of a Static, since it was made.
struct StaticStats {
  std::uint64_t recorded = 0, replayed = 0;  ///< calls
  std::uint64_t dropped = 0;                 ///< recordings
  std::size_t kept = 0;                      ///< recordings now
  // Of the recording that was used last:
  std::size_t ops = 0;             ///< that were recorded
  std::size_t accesses = 0;        ///< of the ops of a replay, to variables
  std::size_t planned_bytes = 0;   ///< of the memory that the tensors inside share
  std::size_t unshared_bytes = 0;  ///< what they would take if each had memory of its own
};

/// An owner.
class Static {
 public:
  /// Called with inputs that the recording owns. Returns tensors for the caller of the Static.
  using Body = std::function<std::vector<Tensor>(const StaticInputs& inputs)>;

  /// The inputs of calls must lie in the memory of `device`; the body may use others. Throws MisuseError for an empty
  /// body, or options out of range.
  Static(const Device& device, Body body, StaticOptions options = {});
  ~Static();
  Static(const Static&) = delete;
  Static& operator=(const Static&) = delete;

  /// Runs the program: records it if there is no recording for the inputs' shapes and key. Returns what the body
  /// returned for this recording; the reference is valid until the next call or append(). Throws MisuseError for inputs
  /// elsewhere, in its own body, in the body of a Static of another engine, and what the body throws.
  const std::vector<Tensor>& operator()(const StaticInputs& inputs = {},
                                        std::source_location from = std::source_location::current());

  /// Heals what only its recordings reach, if something has failed since they were healed last: for a program that goes
  /// on without calling it. A call does so, too. Afterwards the reference that the last call returned is not valid.
  /// Does nothing in the body of another Static, or in a capture.
  void heal(std::source_location from = std::source_location::current());

  /// From the next call on, `more` runs behind the body, with the same inputs; what it returns is returned behind the
  /// body's. Drops all recordings, since the plan of a longer program is another one. Throws MisuseError for an empty
  /// function, and in the body of a Static; then nothing changes.
  void append(Body more);

  StaticStats stats() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace windrow
