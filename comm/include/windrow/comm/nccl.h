// Groups of CUDA devices, by NCCL.
//
//   const std::vector<windrow::Device> devices = {windrow::cuda::open_device(engine, 0).device, ...};
//   const windrow::NcclGroup group(devices);
//   for (int rank = 0; rank < group.size(); ++rank) group[rank].all_reduce(gradients[rank]);
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "windrow/comm/communicator.h"

namespace windrow {

struct NcclOptions {
  /// How long a call may take after the first member's tensors are ready, or the work that writes them is issued; see
  /// communicator.h.
  std::chrono::nanoseconds patience = std::chrono::minutes(10);
  /// As LocalGroupOptions::tell_after, for members of one process. In a group of processes, `exchange` and
  /// `announcements` have a limit of their own.
  std::chrono::nanoseconds tell_after = std::chrono::seconds(30);
  /// How long NCCL may take to abort when the group is broken, and to end. After that, a thread that is stuck in NCCL
  /// is left alone.
  std::chrono::nanoseconds answer = std::chrono::seconds(1);
};

/// A group with a member for each device of this process, or with one member here and the others in other processes.
/// Tensors in the members' devices stay there: NCCL runs on streams of the group, behind the work that the tensors
/// depend on. Tensors in the host's memory are copied to the devices and back.
///
/// A thread of the group makes all calls, with non-blocking communicators. A second thread watches it: if a call fails
/// or takes too long, it makes NCCL abort the calls, and all members get an error. If NCCL does not abort within
/// `answer`, the error says so: the devices may then still write the tensors, and the program should end.
///
/// A handle of the communicators. Sums are added in the order that NCCL chooses. Maxima of floats pass through the
/// host's memory, since NCCL would lose a NaN.
class NcclGroup {
 public:
  /// Waits until NCCL has connected the devices. Throws MisuseError without devices, for a device that is not of CUDA,
  /// for times that are not positive, and if there is no plug-in or no NCCL. Throws CommError if NCCL fails, for
  /// example because two members share a device.
  explicit NcclGroup(const std::vector<Device>& devices, NcclOptions options = {});
  /// The member of this process. `exchange` and `announcements` are groups of all processes, such as two groups of an
  /// MpiWorld, and must serve nothing else. `exchange` serves Communicator::exchange(), send(), recv() and maxima of
  /// floats; `announcements` tells the members of each collective whether all can take part. All processes call it.
  /// Messages pass through the host's memory, and have the time limit of `exchange`. If one of the three groups breaks,
  /// all do.
  NcclGroup(const Device& device, const Communicator& exchange, const Communicator& announcements,
            NcclOptions options = {});

  /// The number of members in all processes.
  int size() const { return members_.front().size(); }
  /// A member of this process. Throws MisuseError for other ranks.
  const Communicator& operator[](int rank) const;

  /// Why no group can be made, in one line: there is no plug-in, or no NCCL. Empty if there are both.
  static std::string unavailable();

 private:
  std::vector<Communicator> members_;
};

}  // namespace windrow
