// CUDA devices. Start here.
//
//   Engine engine;
//   const cuda::OpenDevice gpu = cuda::open_device(engine, 0);
//   Tensor x(gpu.device, 64, 256);
//
// The code that needs the CUDA toolkit is a plug-in, windrow_cuda.so, which the first call opens. So a program also
// starts without the toolkit or the driver; the functions of this header then throw an error that says what is missing.
// The environment variable WINDROW_CUDA_PLUGIN names the plug-in. If it is not set, the plug-in is searched for beside
// the program, in ../lib/windrow from there, and on the system's library path. A program installed elsewhere must set
// the variable.
//
// A device has an ordered lane, a CUDA stream, on which its ops issue work, and memory that is ordered by this lane.
// Tensor::get() copies on a second lane; OpenDevice names further lanes for your own ops. One thread per device polls
// whether issued work is done, so no thread of the engine waits for a device. (Two calls do wait: downloads to memory
// that is not from Allocator::staging(), and launches while the driver's queue is full.)
//
// Several devices. A tensor moves between devices by get() and set(), or by a copy that an op issues: a kernel can
// access only the memory of its own device. An op that uses a value of another device is issued when that value is
// computed, and is skipped if that device has failed. Opening a device twice gives two Devices with separate memory. If
// a thread had used a CUDA device, issuing work does not change its selected device. But a thread that an engine has
// started keeps the device of the op that it issued last (not with EngineOptions::on_thread_start). So a host op that
// calls CUDA itself must select its device first.
//
// Errors. A device that fails, for example because a kernel used a wrong address, is lost for the process. Its
// variables are poisoned with an error that names the kernels and copies in flight. Everything else continues.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "windrow/engine/engine.h"
#include "windrow/ops/device.h"

namespace windrow::cuda {

struct DeviceInfo {
  int number;
  std::string name;          ///< such as "NVIDIA H100 80GB HBM3"
  std::string architecture;  ///< such as "9.0"
  std::size_t memory;        ///< bytes
  std::string problem = {};  ///< why the device cannot be used and its other fields are unknown; usually empty
};

/// The devices of this machine, including busy ones. Throws MisuseError with the reason if no device can be used: no
/// plug-in, no driver, a driver that is too old, no device.
std::vector<DeviceInfo> list_devices();

/// How to compute the levels of a minibatch (batches that depend on each other). See docs/cuda.md.
enum class Levels : std::uint8_t {
  automatic,  ///< wide levels as in `launches`, narrow ones as in `together`
  launches,   ///< some kernels and products for each level
  together,   ///< one kernel for all levels of a pass, where that is possible; launches elsewhere
  groups,     ///< the same, with samples divided among groups of teams. No GPU has run this kernel yet.
};

/// How matrix products are computed. Their sums are always in float32.
enum class Precision : std::uint8_t {
  float32,  ///< operands are not rounded
  tf32,     ///< operands rounded to 10 bits of mantissa; many times as fast on devices since architecture 8.0
  bf16,     ///< operands rounded to 7 bits
};

struct DeviceOptions {
  /// The most bytes of device memory to use; 0 for all.
  std::size_t memory_limit = 0;
  /// Each op waits until its work is done, so a kernel's error is reported as the error of its op. For debugging; slow.
  bool sync = false;
  Levels levels = Levels::automatic;
  /// The calls of a pass, forward or backward, become one CUDA graph, whose parameters are updated for each minibatch.
  /// This takes 32 MiB for cuBLAS beyond memory_limit; if they cannot be allocated, calls are issued one by one. Traces
  /// show a graph as one piece of work.
  bool graphs = false;
  /// Precision of products by cuBLAS, and of those of Levels::groups. Other kernels use float32.
  Precision precision = Precision::float32;
  int streams = 4;        ///< deprecated and ignored: there are always four
  LaneOptions lane = {};  ///< options of each stream's lane
};

/// A value that is cheap to copy.
struct OpenDevice {
  Device device;
  DeviceInfo info;
  // Lanes besides Device::lane. The device prefers their work.
  LaneId copy_out;     ///< copies to the host; also Device::copy_out
  LaneId copy_in;      ///< copies from the host, to buffers that an op of Device::lane has written once: see Buffer
  LaneId collectives;  ///< between devices; also Device::collectives
};

/// Opens a device for an engine: adds its lanes, and makes a pool of its memory. Throws MisuseError in the cases of
/// list_devices() and for a number that no device has; Error for a busy or lost device.
/// Threads: any.
OpenDevice open_device(Engine& engine, int number, const DeviceOptions& options = {});

struct StreamOptions {
  std::string name = "stream";
  bool urgent = false;  ///< its work starts before that of other streams
  LaneOptions lane = {};
};
/// Adds another ordered lane of an open device. Throws MisuseError if `device` is not a CUDA device.
LaneId add_stream(const Device& device, const StreamOptions& options);

/// The cudaStream_t of a lane, for your own kernels: see KernelCall::lane. Throws Error for a lane that is not a CUDA
/// stream.
void* native_stream(Lane* lane);

}  // namespace windrow::cuda
