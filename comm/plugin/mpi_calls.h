// The functions of the plug-in library for MPI, which is the only code that sees mpi.h.
//
// MPI is optional, and differs between machines. So the plug-in links no library of ours; the rest of this room opens
// it by name when MPI is first used, and calls it through this table. A test replaces the table.
#pragma once

#include <cstddef>

#include "windrow/comm/internal/member.h"
#include "windrow/engine/internal/plug_in.h"

namespace windrow::comm {

/// A communicator and a request of MPI.
struct MpiGroup;
struct MpiRequest;

enum class MpiType : int { float32, int32, int64, byte };

/// A member's part of a collective, or its end of a message.
struct MpiTransfer {
  CallKind kind;               ///< no exchange
  const void* from = nullptr;  ///< null: `to` has the member's elements
  void* to = nullptr;          ///< only the root of a reduce writes it
  std::size_t count = 0;       ///< of elements; of each member, where the call has blocks
  MpiType type = MpiType::byte;
  Combine combine = Combine::sum;  ///< sum or max; the maximum of a float and NaN is NaN
  int peer = 0;                    ///< the root; or the other end of a message, where -1 is any sender
  int tag = 0;                     ///< of a message
};

/// Functions return 0 or MPI's error; none throws. All are called by the thread that called init().
/// begin() sets *request; buffers must stay valid until test() sets *done, which frees the request.
struct MpiCalls {
  static constexpr int current_version = 5;
  int version;

  /// Starts MPI with MPI_THREAD_FUNNELED, for the calling thread, unless the program has started it with
  /// MPI_THREAD_MULTIPLE. *world is the group of the processes of the MPI_Comm at `communicator`, or of all if it is
  /// null. Fails with already_started if MPI was started otherwise or has ended, with not_started for a communicator of
  /// an MPI that was not, and with no_threads if the library supports fewer threads.
  int (*init)(const void* communicator, MpiGroup** world);
  /// Frees what init() has made, and ends MPI if init() has started it.
  int (*finalize)(MpiGroup* world);
  /// Writes a text of at most `size` bytes.
  void (*text)(int error, char* text, std::size_t size);
  int (*rank)(MpiGroup* group, int* rank, int* size);
  /// A group of the same processes for messages of its own; all of them call it.
  int (*duplicate)(MpiGroup* group, MpiGroup** made);
  /// Frees a group that duplicate() made, on which nothing is under way; all of its processes call it, and none waits.
  int (*release)(MpiGroup* group);

  int (*begin)(MpiGroup*, const MpiTransfer*, MpiRequest**);
  int (*test)(MpiRequest** request, int* done);
  /// Cancels a receive to which no message has come.
  int (*cancel)(MpiRequest** request);
};

inline constexpr PlugIn mpi_plug_in = {.file = "windrow_mpi.so",
                                       .variable = "WINDROW_MPI_PLUGIN",
                                       .function = "windrow_mpi_calls",
                                       .version = MpiCalls::current_version,
                                       .purpose = "MPI cannot be used",
                                       .needs = "a build with an MPI library (package libopenmpi-dev)",
                                       .global = true};

/// Of init(): not errors of MPI.
inline constexpr int already_started = -1, no_threads = -2, not_started = -3;

extern "C" const MpiCalls* windrow_mpi_calls();

}  // namespace windrow::comm
