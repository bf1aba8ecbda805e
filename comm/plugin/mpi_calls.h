// What the plug-in library for MPI provides: the only code that sees mpi.h.
//
// MPI is optional, and differs between machines. So the plug-in links no library of ours; the rest of this room opens
// it by name when MPI is first used, and calls it through this table. A test replaces the table.
#pragma once

#include <cstddef>

namespace windrow::comm {

/// A communicator and a request of MPI.
struct MpiGroup;
struct MpiRequest;

enum class MpiType : int { float32, int32, int64, byte };
enum class MpiOperation : int { sum, max };  // the maximum of a float and NaN is NaN

/// Functions return 0 or MPI's error; none throws. All are called by the thread that called init().
/// What begins a transfer sets *request; buffers must stay valid until test() sets *done, which frees the request.
struct MpiCalls {
  static constexpr int current_version = 3;
  int version;

  /// Starts MPI with MPI_THREAD_FUNNELED, for the calling thread. *world is the group of all processes. Fails with
  /// already_started if the program has done that, and with no_threads if the library provides less.
  int (*init)(MpiGroup** world);
  int (*finalize)();
  /// Writes a text of at most `size` bytes.
  void (*text)(int error, char* text, std::size_t size);
  int (*rank)(MpiGroup* group, int* rank, int* size);
  /// A group of the same processes for messages of its own; all of them call it.
  int (*duplicate)(MpiGroup* group, MpiGroup** made);
  /// Frees a group that was made so, on which nothing is under way; all of them call it, and none waits.
  int (*release)(MpiGroup* group);

  /// A null `from` means that `to` has the member's elements. Only the root of a reduce writes `to`.
  int (*all_reduce)(MpiGroup*, const void* from, void* to, std::size_t count, MpiType, MpiOperation, MpiRequest**);
  int (*reduce)(MpiGroup*, const void* from, void* to, std::size_t count, MpiType, MpiOperation, int root,
                MpiRequest**);
  int (*broadcast)(MpiGroup*, void* data, std::size_t count, MpiType, int root, MpiRequest**);
  /// `count` elements of each member.
  int (*all_gather)(MpiGroup*, const void* from, void* to, std::size_t count, MpiType, MpiRequest**);
  int (*reduce_scatter)(MpiGroup*, const void* from, void* to, std::size_t count, MpiType, MpiOperation, MpiRequest**);
  int (*all_to_all)(MpiGroup*, const void* from, void* to, std::size_t count, MpiType, MpiRequest**);
  int (*send)(MpiGroup*, const void* data, std::size_t count, MpiType, int to, int tag, MpiRequest**);
  /// `from` -1: of any member.
  int (*receive)(MpiGroup*, void* data, std::size_t count, MpiType, int from, int tag, MpiRequest**);
  int (*test)(MpiRequest** request, int* done);
  /// Gives up a receive that nothing has met.
  int (*cancel)(MpiRequest** request);
};

/// Of init(): not errors of MPI.
inline constexpr int already_started = -1, no_threads = -2;

extern "C" const MpiCalls* windrow_mpi_calls();

}  // namespace windrow::comm
