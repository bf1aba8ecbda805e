// CUDA devices. Start here.
//
//   Engine engine;
//   const cuda::OpenDevice gpu = cuda::open_device(engine, 0);
//   Tensor x(gpu.device, 64, 256);
//
// The code that needs the CUDA toolkit is a plug-in, windrow_cuda.so, which the first call opens. So a program starts
// where the toolkit or the driver is missing, and the functions of this header say what is missing. The plug-in is
// looked for at WINDROW_CUDA_PLUGIN, a variable of the environment, if it is set; otherwise beside the program, in
// ../lib/windrow from there, and where the system looks for libraries.
//
// A device has an ordered lane, a CUDA stream, on which its ops issue work, and memory that is ordered by this lane.
// Tensor::get() copies on a second one, and there are more for ops of your own: OpenDevice.
// A thread for each device asks which points are reached, so no thread of the engine waits for one. (Downloads to
// memory that is not from Allocator::staging() do wait, and so do launches while the queue of the driver is full.)
//
// Errors. A device that fails, for example since a kernel used a wrong address, is lost for the process: its variables
// are poisoned, with an error that names the ops in flight, and everything else goes on.
#pragma once

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
};

/// The devices of this machine. Throws MisuseError with the reason if there can be none: no plug-in, no driver, a
/// driver that is too old, no device.
std::vector<DeviceInfo> list_devices();

/// How the levels of a minibatch are computed.
enum class Levels : std::uint8_t {
  automatic,  ///< wide ones by launches, narrow ones together
  launches,   ///< by some kernels and products each
  together,   ///< by one kernel, where there is one: see docs/cuda.md
};

/// How products of matrices are computed. All are added up in float32.
enum class Precision : std::uint8_t {
  float32,  ///< as they are
  tf32,     ///< operands rounded to 10 bits of mantissa; many times as fast on devices since architecture 8.0
  bf16,     ///< operands rounded to 7 bits
};

struct DeviceOptions {
  /// The most bytes of device memory to use; 0 for all.
  std::size_t memory_limit = 0;
  /// Each op waits until its work is done, so that the error of a kernel is that of its op. For debugging; slow.
  bool sync = false;
  Levels levels = Levels::automatic;
  /// The calls of a pass become one CUDA graph, whose parameters are set anew for each minibatch. Takes 32 MiB more for
  /// cuBLAS. Traces show a graph as one piece of work.
  bool graphs = false;
  /// Of products by cuBLAS; a kernel for all levels computes in float32 always.
  Precision precision = Precision::float32;
  /// How many streams there are, from 1 to 4: for Device::lane, copies out, copies in, collectives, in this order. What
  /// has none of its own uses the last one.
  int streams = 4;
  LaneOptions lane = {};  ///< of each
};

/// A value that is cheap to copy.
struct OpenDevice {
  Device device;
  DeviceInfo info;
  // Urgent lanes besides Device::lane.
  LaneId copy_out;     ///< copies to the host; also Device::copy_out
  LaneId copy_in;      ///< copies to buffers that ops of Device::lane have allocated
  LaneId collectives;  ///< between devices
};

/// Opens a device for an engine: adds its lanes, and makes a pool of its memory. Throws MisuseError as list_devices(),
/// for a number that no device has, and for a number of streams out of range; Error for a device that is busy or lost.
/// Threads: any.
OpenDevice open_device(Engine& engine, int number, const DeviceOptions& options = {});

struct StreamOptions {
  std::string name = "stream";
  bool urgent = false;  ///< its work starts before that of other streams
  LaneOptions lane = {};
};
/// Adds another ordered lane of an open device. Throws MisuseError if this is none of CUDA.
LaneId add_stream(const Device& device, const StreamOptions& options);

/// The cudaStream_t of a lane, for kernels of your own: see KernelCall::lane. Throws MisuseError for a lane that is
/// none of CUDA.
void* native_stream(Lane* lane);

}  // namespace windrow::cuda
