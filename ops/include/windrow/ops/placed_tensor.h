// Placed tensors: values with a copy on each device that uses them. Start at tensor.h.
//
//   windrow::PlacedTensor w(host, 256, 64, "w");
//   w.set(values);
//   windrow::Tensor y = windrow::apply(gpu, op::matmul, {.in = {x, w.on(gpu)}});               // copies w to the GPU
//   windrow::Tensor z = windrow::apply(gpu, op::matmul, {.in = {y, w.on(gpu)}});               // w is there already
//   windrow::apply(host, op::scale, {.in = {w.on(host)}, .attributes = half}, w.on(host));     // the GPU's copy is old
//
// Like logical data in CUDASTF and handles in StarPU: a program says where it uses a value, and copies are made as
// needed.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstdint>
#include <memory>
#include <source_location>
#include <vector>

#include "windrow/ops/tensor.h"

namespace windrow {

/// A handle: copies of the handle name the same value. The value has a copy in the memory of each device that has used
/// it. The *owner* is the copy that was written last; others are valid while they are copies of it. Devices count as
/// one if they have the same Device::memory.
///
/// Order. A call of on() considers the ops that were pushed before it: if one of them writes the tensor of some device,
/// that tensor becomes the owner. If the copy on the wanted device is not valid, the call pushes ops that copy the
/// owner there ("copy from cuda:0", "copy to cpu:1"). They overlap with ops that do not depend on them. So use the
/// tensor that a call returns only for the next push, and call on() again for the op after that. Between two ops that
/// write tensors of different devices, there must be a call.
///
/// Memory. If the pool of a device finds no memory for an allocation, it frees copies there. (Not on the host with
/// EngineOptions::check.) It frees only copies that are not owners, that no pending op uses, and whose tensor nobody
/// holds. The next use copies them again. An owner is never freed.
///
/// Graphs. In a capture, on() throws MisuseError, since the owner at each launch is unknown. Call it before the
/// capture, and keep the tensor as long as the graph. Call it again before each launch, to make the copy valid.
///
/// Errors. A failed op poisons the tensor that it writes, and so the copies that are made of it. A copy for which there
/// is no memory is poisoned; after drop() or Engine::heal() it can be made again. A heal of the owner declares its
/// value good, as for any variable; a heal of another copy makes that copy invalid. Threads: every member may be called
/// from any thread, but not inside ops, and not while another thread heals: the thread that pushes ops calls.
class PlacedTensor {
 public:
  using Site = std::source_location;

  /// A value of rows x width elements, not yet written. Throws MisuseError for a negative size and without an engine.
  PlacedTensor(const Device& home, Index rows, Index width, VarName name = OpName("placed"));
  /// The value of a tensor in the memory of `home`, such as a gradient that a Tape has computed: the tensor is the copy
  /// there, and counts as written. Throws MisuseError for a tensor of another memory, lane or engine, for a view of a
  /// part, and as on() does.
  PlacedTensor(const Device& home, const Tensor& tensor, VarName name = OpName("placed"));

  Index rows() const;
  Index width() const;

  /// The value's tensor on the device, for the next op that is pushed (or, as long as no other device writes the value,
  /// for any number of them, as with a Tape or as the value of a parameter): to read it, or to change it there. Throws
  /// MisuseError inside a capture, the body of a Static or an op, and for a device of another engine. Once tensors of
  /// two devices were written with no call between them, each call throws it until set() or overwrite_on() is called.
  Tensor on(const Device& device, Site pushed_at = Site::current()) const;
  /// The same for an op that overwrites all elements: nothing is copied. The old value is valid until that op is
  /// pushed.
  Tensor overwrite_on(const Device& device, Site pushed_at = Site::current()) const;

  /// Writes the home device's tensor, as Tensor::set() does.
  void set(std::vector<float> values, Site pushed_at = Site::current()) const;
  /// Returns the elements, as Tensor::get() does, from the home device if the copy there is valid, and otherwise from
  /// the owner. Makes no copy.
  std::vector<float> get(Site from = Site::current()) const;

  /// Whether on() would copy nothing. Throws as on() does.
  bool valid_on(const Device& device, Site from = Site::current()) const;
  /// Ends the copy on the device; its memory is freed after the ops that use it. Another valid copy becomes the owner.
  /// Throws as on() does, and if the value has no other valid copy.
  void drop(const Device& device, Site from = Site::current()) const;
  /// How often the value has been copied to a device.
  std::uint64_t copies() const;

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace windrow
