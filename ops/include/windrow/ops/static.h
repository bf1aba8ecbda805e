// Static programs of operators: recorded once, replayed from then on.
//
//   windrow::Static step(host, [&](const windrow::StaticInputs& call) -> std::vector<windrow::Tensor> {
//     windrow::Tape tape(host);
//     ...                                   // forward, backward, the optimiser's step
//     return {loss};
//   });
//   for (...) step({.in = {images}, .indices = {labels}});
//
// The first call with inputs of some shapes calls the body and records its operators. Later calls with such inputs
// launch the recording as an engine graph, whose tensors have places in one planned block of memory.
//
// Contract
//   Order    A call has the effect of calling the body.
//   Body     It may apply operators, make, view, fill and set tensors, draw, call other Statics, and push ops by
//            push_replayable(), as Optimiser::step does. Any other push, and a wait, throws MisuseError.
//   Once     Anything else that the body does happens only once. Its numbers become constants: put changing numbers in
//            tensors. If the program's state changes which operators the body applies, pass a different `key` for each
//            state.
//   Tensors  Inputs are copied. If a tensor of the body is still held when the body has returned, each replay
//            overwrites it; others share planned memory. Tensors from outside are accessed in place: write values for
//            the next call to them, since assigning a handle happens only once. Reading a tensor from outside that
//            nobody holds throws MisuseError.
//   Memory   If memory is limited, all recordings together take at most half of it; the least recently used are
//            dropped.
//   Errors   If the body throws, none of its ops is pushed or kept. An op that fails in a replay poisons its results
//            until the next call. With order `serial` or `breadth_first`, neighbouring ops of a lane fail together.
//   Captures In Engine::capture, a call adds the replay to the graph; a first call throws MisuseError.
//   Threads  One at a time. A Static may end while replays run; tensors that it returned stay valid.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "windrow/engine/engine.h"
#include "windrow/memory/buffer.h"
#include "windrow/ops/tensor.h"

namespace windrow {

struct StaticInputs {
  std::vector<Tensor> in = {};
  std::vector<IntTensor> indices = {};
  /// Stands for everything else that the body depends on: calls with different keys have separate recordings. For
  /// programs whose structure differs between samples, use a hash of the types and of the child structure:
  /// windrow/batching/graph.h.
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
  OpName name = "static";  ///< of engine ops that run several recorded ops
  /// With order `serial` or `breadth_first`: lanes that can (captured_work.h), such as those of CUDA devices, capture
  /// runs of operators, so that a replay issues each run by one call. The first capture of a CUDA lane takes 32 MiB of
  /// the device's memory for cuBLAS; if they are not available, operators are issued one by one.
  bool capture = true;
  /// If set, the results of a call depend only on its inputs and on these tensors: a first call throws MisuseError if
  /// the body reads or returns another tensor from outside, writes one, or draws.
  std::optional<std::vector<Tensor>> reads = {};
};

/// Statistics of a Static since its construction.
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

  /// Runs the program; records it first if there is no recording for the inputs' shapes and key. Returns the tensors
  /// that the body returned for this recording; the reference is valid until the next call or append(). Throws what the
  /// body throws, and MisuseError for inputs elsewhere, in its own body, and in the body of a Static of another engine.
  const std::vector<Tensor>& operator()(const StaticInputs& inputs = {},
                                        std::source_location from = std::source_location::current());

  /// Heals the variables that only its recordings reach, if an op has failed since the last healing. For a program that
  /// continues without calling this Static; a call heals, too. The reference that the last call returned becomes
  /// invalid. Does nothing in the body of another Static, or in a capture.
  void heal(std::source_location from = std::source_location::current());

  /// From the next call on, `more` runs after the body, with the same inputs; its results follow those of the body.
  /// Drops all recordings. Throws MisuseError for an empty function, and in the body of a Static.
  [[deprecated("make another Static whose body does both")]] void append(Body more);

  StaticStats stats() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

// Programs printed as C++ source, which need only the kernels of this library.
//
//   const windrow::PrintedSource source = windrow::print_source(host, {
//       .name = "perceptron",
//       .body = [&](const windrow::StaticInputs& call) -> std::vector<windrow::Tensor> { return {logits(call)}; },
//       .rows = 64, .width = 784, .parameters = {{"first", w}, ...}});
//
// Vertex functions are written as data; see windrow/training/program.h.

/// A value.
struct PrintedSource {
  std::string name;  ///< of its namespace: the name of the program and _model
  /// By name. model.h is the interface: a class whose constructor takes the weights. model.cc is the printed program.
  /// They need the headers of the room ops and of the rooms below it, and the library of the room ops.
  std::map<std::string, std::string> files = {};
  /// The names of the parameters, in the order of the members of Weights in model.h.
  std::vector<std::string> parameters = {};
};

/// A program of operators with one input, as the body of a Static.
struct StaticProgram {
  std::string name;
  Static::Body body;  ///< returns the outputs
  Index rows, width;  ///< of the input
  std::vector<std::pair<std::string, Tensor>> parameters = {};
  std::vector<std::string> outputs = {};  ///< names, as many as the body returns
};

/// Records the body once, as Static does, and prints its operators with planned addresses. The printed code computes
/// the same bits. Throws what the body throws, and MisuseError for a device other than the host. Also throws it for
/// parts that cannot be printed: an op that is no operator of operators.h, a view of a part of a tensor, and a tensor
/// from outside that is no parameter.
PrintedSource print_source(const Device& device, const StaticProgram& program);

// For code that pushes ops of its own, so that the body of a Static may call it.

class Recorder;

/// The facts about an op that a recording needs besides its accesses.
struct ReplayedBuffers {
  /// The buffers behind the accesses. A recording keeps them alive, and may move those that nobody else keeps.
  std::vector<std::shared_ptr<Buffer>> all = {};
  /// The variable of a buffer that the op mutates because it overwrites only a part of it; empty if there is none. If
  /// no earlier op of the recording writes the buffer, replays clear it before this op.
  Var overwritten_in_part = {};
  /// The variables of buffers that the op reads, element by element, before it overwrites the buffer of `result` at the
  /// same places: the two may be the same bytes if nothing reads the former later.
  std::vector<Var> in_place = {};
  Var result = {};
  /// Whether the function does nothing but issue work on its lane, and the same work each time, so that lanes may
  /// capture it: captured_work.h.
  bool may_be_captured = false;
};

/// Pushes an op or, in the body of a Static, records it. The op may be run again: each time, its function must have the
/// effect of pushing the op again. Values that change between runs must be behind the variables, and not in the
/// captures. Throws as Engine::push does.
void push_replayable(Engine& engine, OpFunction function, AccessList accesses, const PushOptions& options,
                     const ReplayedBuffers& buffers);

/// While an Unrecorded exists, its thread pushes as if it were outside of the body of a Static: these ops run once, and
/// before the recorded ones. For work of a program's first run, such as setting initial values of state.
class Unrecorded {
 public:
  Unrecorded();
  ~Unrecorded();
  Unrecorded(const Unrecorded&) = delete;
  Unrecorded& operator=(const Unrecorded&) = delete;

 private:
  Recorder* const recorder_;
};

/// Throws MisuseError in the body of a Static. Replays would not repeat `what`, such as "keep_gradients()", because it
/// changes the state of the program and not only tensors.
void refuse_in_recording(const std::string& what);

}  // namespace windrow
