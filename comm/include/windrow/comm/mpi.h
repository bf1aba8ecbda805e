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
// What sums and means of floats promise; maxima and int32 are exact:
//   - Members: after all_reduce, all members have the same bits. MPI requires it, and eager calls
//     (MpiOptions::eager_bytes) are added up in one order everywhere.
//   - Timing: the bits of an eager call depend on the values alone, as those of a LocalGroup do. For larger calls MPI
//     only recommends it; Open MPI and MPICH choose the order by the bytes, the number and the places of the processes.
//     Windrow asks for the same sums at any timing: parts are cut by part_bytes, whatever moves first.
//   - Not promised: the same bits for another number or placement of processes, another library or version of MPI,
//     another part_bytes, an eager_bytes on the other side of the call's size, or another form (reduce and
//     reduce_scatter, in place and out of place). All of these differ by rounding.
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
  /// How long a call may wait for members whose part is missing, from the moment when its tensors, and those of the
  /// calls before it, are ready at this member; see communicator.h. If all members answer and take part, its data may
  /// take ten times as long. An op of a member's own that never ends is the engine's matter: see
  /// EngineOptions::watchdog and PushOptions::deadline.
  std::chrono::nanoseconds patience = std::chrono::minutes(10);
  /// After how long a call that waits for members logs one line that names them; again after twice as long, and so on
  /// up to `patience`. Of the members that wait, the lowest rank logs it. A call of MPI itself that does not
  /// return, as while other processes have not called MpiWorld::group(), is logged by each process.
  std::chrono::nanoseconds tell_after = std::chrono::seconds(30);
  /// How long a member that is asked may take to say where it is, before it counts as dead or stopped.
  std::chrono::nanoseconds answer = std::chrono::seconds(1);
  /// The most bytes of calls with a priority or with parts that move at a time; one part moves in any case. Less lets
  /// calls of high priority begin sooner; much less than a few parts leaves the network idle between parts. That of
  /// rank 0 counts.
  std::size_t window_bytes = std::size_t{4} << 20;
  /// An all_reduce, reduce or broadcast of at most so many bytes travels with its announcement, to all members, in
  /// groups in which that is at most 8 KB for all members together; 0: none does. The same at all members: see
  /// MpiWorld::group().
  std::size_t eager_bytes = 4096;
};

/// MPI in this process: an owner, of which there is one at a time and, since MPI starts once, one in a process's life.
///
/// A thread of its own starts MPI and makes all calls, so MPI_THREAD_FUNNELED suffices with every running policy, and
/// no worker of an engine waits. It begins each collective in the order of calls, after a small one that compares the
/// calls of all members and tells of failures. Rank 0 decides the order of those that have a priority or parts
/// (CollectiveOptions).
///
/// A call of MPI that does not return breaks the groups after `patience`, too, and its thread is left where it is.
///
/// A member that dies ends all processes, unless mpirun got --enable-recovery; then the group breaks at the others.
/// After a group has broken, MPI is called no more for this group, and not finalised: the program should save what it
/// has, and end. Other groups go on, unless it was a call of MPI that did not return. mpirun then says that MPI was not
/// finalised; and so if a member has ended without a call that others have made.
class MpiWorld {
 public:
  /// Opens the plug-in windrow_mpi.so, and starts MPI. Throws MisuseError if there is no plug-in or no MPI library, and
  /// if MPI was started before, and for times that are not positive. Without mpirun, the world has one member.
  explicit MpiWorld(MpiOptions options = {});
  /// Ends MPI after all calls of this process, also those whose operands are not ready yet. Waits for them and for the
  /// other processes, `patience` at most: calls that have not ended then fail, and the groups break.
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  int rank() const;
  int size() const;
  /// The group of all processes, whose member here has this device. Each call makes a new group; all processes make
  /// these calls in the same order. What MPI has of a group is freed when all its members have ended. Throws CommError
  /// if MPI fails, and at all members if their `eager_bytes` differ. The second form has a patience of its own.
  Communicator group(const Device& device);
  Communicator group(const Device& device, std::chrono::nanoseconds patience);

  /// Whether mpirun has started this process.
  static bool under_mpirun();
  /// This process among those that one command has started together. A value.
  struct Started {
    int rank = 0, size = 1;
    int on_node = 0;  ///< its number among those of its node
  };
  /// What mpirun, or srun of Slurm, says in the environment; one process if neither has started this one. MPI need not
  /// be there.
  static Started started();

  class Impl;

 private:
  const std::shared_ptr<Impl> impl_;  // shared with communicators, which may live longer
};

/// Each call is one of the members of this process, one of the first members of all processes, and another one of this
/// process: so each process sends and receives as much as with one device. Ranks are those of the first process first.
/// If one of the groups breaks, both do. Give the inner group a longer `patience`, since its members wait while the
/// first one waits for other processes.
///
/// There are all_reduce, broadcast() from the first member of a process, exchange() and barrier(); other calls throw
/// MisuseError. Sums are those of the inner groups, added up as the outer group does it. Errors of the inner group name
/// ranks of that group.
///
/// A handle of the communicators.
class NestedGroup {
 public:
  /// `inner`: all members of a group of this process, by rank. `outer`: the member of this process in a group of all
  /// processes, on the device of inner[0]. Neither is used for anything else. All processes call it; throws CommError
  /// at all of them unless their inner groups have equally many members, and MisuseError where ranks or sizes of
  /// `inner` are not those of a whole group, which is a CommError at the others.
  NestedGroup(const std::vector<Communicator>& inner, const Communicator& outer);

  /// The number of members in this process.
  int local_size() const { return static_cast<int>(members_.size()); }
  /// A member of this process, by its number there. Throws MisuseError for others.
  const Communicator& operator[](int number) const;

 private:
  std::vector<Communicator> members_;
};

}  // namespace windrow
