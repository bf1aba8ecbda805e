#include "windrow/ops/apply.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "record/recorder.h"
#include "windrow/ops/internal/cut.h"
#include "windrow/ops/internal/inline_array.h"

namespace windrow {
namespace {

template <class T>
Type type_of(const TensorOf<T>& tensor) {
  return {Rows::count(tensor.rows()), tensor.width()};
}

template <class T>
using Views = std::vector<typename T::View, PassedOn<typename T::View>>;

/// The function of the pushed op. Holds views, which do not keep buffers alive.
struct Launch {
  const Operator* op;  // lives as long as the program
  Kernel<float> kernel;
  Views<Tensor> in;
  Views<IntTensor> indices;
  Tensor::View out;
  Views<Tensor> states;
  Attributes attributes;
  Write write;
  Allocator* memory;                  // for workspace
  std::shared_ptr<Allocator> keeper;  // of `memory`, unless the buffer of `out` keeps it
  Lane* expected;

  void operator()(OpContext& context) const { (*this)(context.lane()); }
  /// On a device, the lane must be the device's, since the workspace is used again in its order.
  void operator()(Lane* lane) const {
    if (lane != expected) {
      throw MisuseError(std::string(op->name.text()) + ": computed by an op of another lane; expected the device's");
    }
    with_call(lane, [&](const KernelCall<float>& call) {
      lane == nullptr ? run_in_pieces(*op, kernel, call, *memory) : kernel(call, *memory);
    });
  }
  /// Calls use(call); the call is valid in it.
  template <class Use>
  void with_call(Lane* lane, const Use& use) const {
    const InlineArray<Matrix<const float>> inputs(in.size(), [&](std::size_t k) { return in[k].read(lane); });
    const InlineArray<Matrix<const std::int32_t>> index_inputs(indices.size(),
                                                               [&](std::size_t k) { return indices[k].read(lane); });
    const InlineArray<Matrix<float>> updated(states.size(), [&](std::size_t k) { return states[k].update(lane); });
    const KernelCall<float> call{.in = inputs,
                                 .indices = index_inputs,
                                 .out = write == Write::add ? out.update(lane) : out.write(lane),
                                 .attributes = attributes,
                                 .write = write,
                                 .op = op,
                                 .lane = lane,
                                 .states = updated};
    use(call);
  }
};

/// The function of an op that computes several applications by one call of the kernel.
struct LaunchOfEach {
  std::vector<Launch> all;

  void operator()(OpContext& context) const {
    std::vector<KernelCall<float>> calls;
    calls.reserve(all.size());
    issue(context.lane(), calls);
  }
  /// The calls refer to arrays on the stack, so each application is within the one before.
  void issue(Lane* lane, std::vector<KernelCall<float>>& calls) const {
    if (calls.size() == all.size()) return all.front().kernel.each(calls, *all.front().memory);
    all[calls.size()].with_call(lane, [&](const KernelCall<float>& call) {
      calls.push_back(call);
      issue(lane, calls);
    });
  }
};

void require_no_overlap(const Operator& op, const Signature& signature, const Operands& operands, const Tensor& out) {
  const auto clashes = [&](const Tensor& in) {
    return in.overlaps(out) && !(op.locality == Locality::elementwise && in.same_view(out));
  };
  const auto shares = [&](const IntTensor& index) { return index.var() == out.var(); };
  if (std::any_of(operands.in.begin(), operands.in.end(), clashes) ||
      std::any_of(operands.indices.begin(), operands.indices.end(), shares)) {
    throw shape_error(op, signature, "a result that overlaps no operand");
  }
}

/// Throws unless there are as many states as the operator has, of the result's shape, that overlap nothing else.
void require_states(const Operator& op, const Signature& signature, const Operands& operands, const Tensor& out) {
  const std::vector<Tensor>& states = operands.states;
  bool fit = states.size() == op.states;
  for (std::size_t k = 0; k < states.size(); ++k) {
    const auto clashes = [&](const Tensor& other) { return other.overlaps(states[k]); };
    fit = fit && type_of(states[k]) == type_of(out) && !clashes(out) && std::ranges::none_of(operands.in, clashes) &&
          std::none_of(states.begin(), states.begin() + static_cast<std::ptrdiff_t>(k), clashes);
  }
  if (fit) return;
  throw shape_error(
      op, signature,
      "states (" + std::to_string(op.states) + ") of " + to_string(type_of(out)) + " that overlap nothing else");
}

/// Throws unless all operands and the result lie in the device's memory.
void require_memory(const Device& device, const Operator& op, const Operands& operands, const Tensor& out) {
  const auto elsewhere = [&](const auto& tensor) { return !device.holds(tensor); };
  if (std::ranges::none_of(operands.in, elsewhere) && std::ranges::none_of(operands.indices, elsewhere) &&
      std::ranges::none_of(operands.states, elsewhere) && !elsewhere(out)) {
    return;
  }
  throw MisuseError(std::string(op.name.text()) + ": a tensor that is not in the memory of device '" + device.name +
                    "'; expected all operands and the result there");
}

/// The type of the result.
Type checked_type(const Operator& op, const Signature& signature, Write write) {
  const Type type = infer(op, signature);
  if (!type.rows.counted()) throw shape_error(op, signature, "attributes that count rows");
  if (op.updates && write != Write::add) throw shape_error(op, signature, "Write::add");
  return type;
}

InlineArray<Access> accesses_of(const Operands& operands, const Tensor& out) {
  const std::size_t indices = operands.in.size(), result = indices + operands.indices.size();
  return {result + 1 + operands.states.size(), [&](std::size_t k) {
            if (k < indices) return read(operands.in[k].var());
            if (k < result) return read(operands.indices[k - indices].var());
            if (k > result) return mutate(operands.states[k - result - 1].var());
            return operands.write == Write::add ? mutate(out.var()) : out.write_access();
          }};
}

Launch launch_of(const Device& device, const Operator& op, const Operands& operands, const Tensor& out) {
  const std::shared_ptr<Allocator> fallback = device.memory == nullptr ? host_allocator() : nullptr;
  const std::shared_ptr<Allocator>& memory = fallback == nullptr ? device.memory : fallback;
  Launch made{&op,
              device.kernels.find(op),
              {},
              {},
              out.view(),
              {},
              operands.attributes,
              operands.write,
              memory.get(),
              memory == out.buffer()->memory() ? nullptr : memory,
              device.lane == host_lane ? nullptr : device.engine->lane(device.lane)};
  made.in.reserve(operands.in.size());
  made.indices.reserve(operands.indices.size());
  for (const Tensor& tensor : operands.in) made.in.push_back(tensor.view());
  for (const IntTensor& tensor : operands.indices) made.indices.push_back(tensor.view());
  for (const Tensor& tensor : operands.states) made.states.push_back(tensor.view());
  return made;
}

ReplayedBuffers buffers_of(const Operator& op, const Operands& operands, const Tensor& out) {
  ReplayedBuffers buffers{.all = {out.buffer()}, .result = out.var(), .may_be_captured = true};
  for (const Tensor& tensor : operands.in) buffers.all.push_back(tensor.buffer());
  for (const IntTensor& tensor : operands.indices) buffers.all.push_back(tensor.buffer());
  for (const Tensor& state : operands.states) buffers.all.push_back(state.buffer());
  if (operands.write == Write::add) return buffers;
  if (!out.whole()) {
    buffers.overwritten_in_part = out.var();
  } else if (op.locality == Locality::elementwise) {
    for (const Tensor& tensor : operands.in) {
      const bool same_places = tensor.whole() && tensor.buffer()->size() == out.buffer()->size();
      if (same_places) buffers.in_place.push_back(tensor.var());
    }
  }
  return buffers;
}

/// Pushes the op; operands and result have been checked.
void launch(const Device& device, const Operator& op, const Operands& operands, const Tensor& out,
            std::source_location pushed_at) {
  const PushOptions options{.name = op.name, .lane = device.lane, .pushed_at = pushed_at};
  const InlineArray<Access> all = accesses_of(operands, out);
  const std::span<const Access> accesses = all;
  if (Recorder* const recorder = Recorder::here()) [[unlikely]] {
    recorder->note(*device.engine, launch_of(device, op, operands, out), accesses, options,
                   buffers_of(op, operands, out));
    return recorder->note_applied(op, operands, out);
  }
  device.engine->push(launch_of(device, op, operands, out), accesses, options);
}

void require_fit(const Device& device, const Operator& op, const Operands& operands, const Tensor& out) {
  const Signature signature = signature_of(operands);
  const Type type = checked_type(op, signature, operands.write);
  if (type_of(out) != type) {
    throw shape_error(op, signature, "a result " + to_string(type) + ", not " + to_string(type_of(out)));
  }
  require_no_overlap(op, signature, operands, out);
  require_states(op, signature, operands, out);
  require_memory(device, op, operands, out);
}

}  // namespace

Signature signature_of(const Operands& operands) {
  Signature signature{.attributes = operands.attributes};
  signature.in.reserve(operands.in.size());
  signature.indices.reserve(operands.indices.size());
  for (const Tensor& tensor : operands.in) signature.in.push_back(type_of(tensor));
  for (const IntTensor& tensor : operands.indices) signature.indices.push_back(type_of(tensor));
  return signature;
}

void apply(const Device& device, const Operator& op, const Operands& operands, const Tensor& out,
           std::source_location pushed_at) {
  require_fit(device, op, operands, out);
  launch(device, op, operands, out, pushed_at);
}

void apply_each(const Device& device, const Operator& op, const std::vector<Applied>& all,
                std::source_location pushed_at) {
  for (const Applied& one : all) require_fit(device, op, one.operands, one.out);
  const bool at_once =
      all.size() > 1 && !device.on_host() && device.kernels.find(op).run_each != nullptr && Recorder::here() == nullptr;
  if (!at_once) {
    for (const Applied& one : all) launch(device, op, one.operands, one.out, pushed_at);
    return;
  }
  std::vector<Access> accesses;
  LaunchOfEach launches;
  for (const Applied& one : all) {
    const InlineArray<Access> of_one = accesses_of(one.operands, one.out);
    const std::span<const Access> more = of_one;
    accesses.insert(accesses.end(), more.begin(), more.end());
    launches.all.push_back(launch_of(device, op, one.operands, one.out));
  }
  device.engine->push(std::move(launches), accesses, {.name = op.name, .lane = device.lane, .pushed_at = pushed_at});
}

Prepared prepare(const Device& device, const Operator& op, const Operands& operands, const Tensor& out) {
  require_fit(device, op, operands, out);
  const InlineArray<Access> all = accesses_of(operands, out);
  const std::span<const Access> accesses = all;
  return {{accesses.begin(), accesses.end()}, launch_of(device, op, operands, out)};
}

Tensor apply(const Device& device, const Operator& op, const Operands& operands, std::source_location pushed_at) {
  const Signature signature = signature_of(operands);
  const Type type = checked_type(op, signature, operands.write);
  const Tensor out(device, type.rows.number(), type.width, op.name);
  require_states(op, signature, operands, out);
  require_memory(device, op, operands, out);
  launch(device, op, operands, out, pushed_at);
  return out;
}

}  // namespace windrow
