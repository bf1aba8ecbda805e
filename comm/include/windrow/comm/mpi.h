// Groups of processes that mpirun has started, and of several devices in each of them.
//
//   windrow::MpiWorld world;
//   const windrow::Communicator all = world.group(device);
//
//   windrow::LocalGroup inner(devices);
//   windrow::NestedGroup nested({inner[0], inner[1]}, world.group(devices[0]));
//   nested[local].all_reduce(gradients[local]);
//
// examples/processes.cc is a training program for mpirun, with the lines that compile and start it.
//
// How sums and means of floats are rounded (maxima and int32 are exact):
//   - Members: after all_reduce, all members have the same bits. MPI requires it; eager calls (MpiOptions::eager_bytes)
//     are added up in the same order everywhere.
//   - Timing: the bits of an eager call depend on the values alone, as those of a LocalGroup do. For larger calls MPI
//     only recommends this; Open MPI and MPICH choose the order by the bytes, the number and the placement of the
//     processes. Timing does not change the sums that Windrow requests, because parts are cut by part_bytes alone.
//   - Not promised: the same bits after a change of the number or placement of processes, of the MPI library or its
//     version, or of part_bytes. Rounding also differs between eager and other calls, between reduce and
//     reduce_scatter, and between in place and out of place.
//   - A mean is the sum, rounded, times 1/size, rounded.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "windrow/comm/communicator.h"

namespace windrow {

struct MpiOptions {
  /// How long a call may wait for members whose part is missing; see communicator.h. The time begins when the tensors
  /// of this call and of the calls before it are ready at this member. If all members answer and take part, the
  /// transfer of the data may take ten times as long. This does not limit a member's own ops: see
  /// EngineOptions::watchdog and PushOptions::deadline.
  std::chrono::nanoseconds patience = std::chrono::minutes(10);
  /// After how long a call that waits for members logs one line that names them; again after twice as long, and so on
  /// up to `patience`. Of the members that wait, the lowest rank logs it. If a call of MPI itself does not return, each
  /// process logs it (for example, while other processes have not called MpiWorld::group()).
  std::chrono::nanoseconds tell_after = std::chrono::seconds(30);
  /// How long a member may take to answer which calls it has made, before it counts as dead or stopped.
  std::chrono::nanoseconds answer = std::chrono::seconds(1);
  /// The most bytes that move at a time for calls with a priority or with parts; one part moves in any case. With a
  /// smaller number, calls of high priority begin sooner; below a few parts, the network idles between parts. The value
  /// of rank 0 is used.
  std::size_t window_bytes = std::size_t{4} << 20;
  /// An all_reduce, reduce or broadcast of at most this many bytes is *eager*: its data travel with its announcement.
  /// If this number times the number of members exceeds 8 KB, or is 0, no call is eager. The same at all members: see
  /// MpiWorld::group().
  std::size_t eager_bytes = 4096;
  /// The address of an MPI_Comm of the program, whose processes are then the world; null: all processes. The program
  /// may free it when the MpiWorld has been made.
  const void* communicator = nullptr;
};

/// MPI in this process. An owner. Unless the program has started MPI itself, a process can have only one in its life,
/// because MPI can be started only once.
///
/// A program may start MPI with MPI_THREAD_MULTIPLE, as Python's mpi4py does, make communicators, and call MPI beside
/// this object. Then it also ends MPI, after this object: all processes make MpiWorld objects in the same order.
///
/// A thread of its own starts MPI and makes all calls. So MPI_THREAD_FUNNELED suffices with every running policy, and
/// no worker of an engine waits. The thread begins collectives in the order of calls. A small collective, the
/// announcement, precedes each of them: it compares the calls of all members and reports failures. Rank 0 decides the
/// order of collectives that have a priority or parts (CollectiveOptions).
///
/// If a call of MPI does not return within `patience`, all groups break, and the thread is left in that call.
///
/// If a member dies, mpirun ends all processes; with `mpirun --enable-recovery`, the group breaks at the others
/// instead. After a group has broken, MPI is not called for it any more and is not finalised: the program should save
/// its results and end. Other groups go on, unless the cause was a call of MPI that did not return. MPI is not
/// finalised either if a member has ended without a call that others have made. In both cases mpirun reports it.
class MpiWorld {
 public:
  /// Opens the plug-in windrow_mpi.so, and starts MPI unless the program has. Throws MisuseError if there is no plug-in
  /// or no MPI library, if MPI was started with fewer threads or has ended, for a communicator if MPI was not started
  /// or is another library than the plug-in's, and for times that are not positive. Without mpirun, the world has one
  /// member.
  explicit MpiWorld(MpiOptions options = {});
  /// Ends MPI, if it has started it, after all calls of this process, also those whose operands are not ready yet.
  /// Waits at most `patience` for them and for the other processes; after that, unfinished calls fail and the groups
  /// break.
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  int rank() const;
  int size() const;
  /// Makes a new group of all processes; its member here has this device. All processes make these calls in the same
  /// order. MPI's resources of a group are freed when all its members have ended. Throws CommError if MPI fails, and at
  /// all members if their `eager_bytes` differ. The second form sets the patience of this group.
  Communicator group(const Device& device);
  Communicator group(const Device& device, std::chrono::nanoseconds patience);

  /// Whether mpirun has started this process.
  static bool under_mpirun();
  /// This process among those that one command has started together. A value.
  struct Started {
    int rank = 0, size = 1;
    int on_node = 0;  ///< its number among those of its node
  };
  /// Reads what mpirun, or srun of Slurm, sets in the environment; one process if neither has started this one. MPI
  /// need not be installed.
  static Started started();

  class Impl;

 private:
  const std::shared_ptr<Impl> impl_;  // shared with communicators, which may live longer
};

/// A group that consists of an inner group in each process and an outer group of the first members of all processes. A
/// call runs in the inner group, then in the outer one, then in the inner one again, so each process sends and receives
/// as much as with one device. Ranks begin with the members of the first process. If one of the two groups breaks, both
/// do. Give the inner group a longer `patience`: its members wait while the first one waits for other processes.
///
/// Supports all_reduce, broadcast() from the first member of a process, exchange() and barrier(); other calls throw
/// MisuseError. The outer group adds up the sums of the inner groups. Errors of the inner group name ranks of that
/// group.
///
/// A handle of the communicators.
class NestedGroup {
 public:
  /// `inner`: all members of a group of this process, by rank. `outer`: the member of this process in a group of all
  /// processes, on the device of inner[0]. Neither may be used for anything else. All processes call it. Throws
  /// CommError at all of them unless their inner groups have equally many members. Throws MisuseError if the ranks or
  /// sizes of `inner` are not those of a whole group; the other processes then throw CommError.
  NestedGroup(const std::vector<Communicator>& inner, const Communicator& outer);

  /// The number of members in this process.
  int local_size() const { return static_cast<int>(members_.size()); }
  /// A member of this process, by its number there. Throws MisuseError for others.
  const Communicator& operator[](int number) const;

 private:
  std::vector<Communicator> members_;
};

}  // namespace windrow
