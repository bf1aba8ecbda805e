// The functions of the plug-in library for NCCL, which is the only code that sees nccl.h and the CUDA runtime.
//
// NCCL is optional. So the plug-in links no library of ours; the rest of this room opens it by name when NCCL is first
// used, and calls it through this table. Tests link the same object with a fake NCCL.
#pragma once

#include <cstddef>

#include "windrow/comm/internal/member.h"

namespace windrow::comm {

/// A communicator of NCCL, and an event of CUDA. Streams are cudaStream_t.
struct NcclComm;
struct NcclEvent;
/// Names a clique of communicators.
struct NcclId {
  static constexpr std::size_t size = 128;
  char bytes[size];
};

/// A member's part of a collective, or its end of a message.
struct NcclTransfer {
  CallKind kind;  ///< no exchange or all_to_all
  const void* from;
  void* to;
  std::size_t count;  ///< of elements; of each member, where the call has blocks
  Elements type;
  Combine combine;
  int peer;  ///< the root, or the other end
  NcclComm* comm;
  void* stream;
};

/// A result of NCCL: the communicators are non-blocking, so state() tells later how the call has ended.
inline constexpr int nccl_in_progress = 7;
/// A result of query(): work before the event is unfinished.
inline constexpr int nccl_not_reached = -600;

/// Functions return 0 or an error: of NCCL if it is positive, of CUDA if it is negative. None throws. Threads: any; one
/// at a time for a communicator, except for abort(). Calls of CUDA are for the thread's device: see use().
struct NcclCalls {
  static constexpr int current_version = 2;
  int version;

  /// Writes a text of at most `size` bytes.
  void (*text)(int error, char* text, std::size_t size);
  int (*make_id)(NcclId* made);
  /// The calls of a thread between these two are one call, which group_end() issues.
  int (*group_start)();
  int (*group_end)();
  /// A communicator of the thread's device.
  int (*init)(int size, const NcclId* id, int rank, NcclComm** made);
  /// *error is what the communicator has met so far: nccl_in_progress, an error or 0.
  int (*state)(NcclComm* comm, int* error);
  /// Begins to end a communicator; all members must have made the same calls. When state() says that it has ended,
  /// destroy() frees it.
  int (*finalize)(NcclComm* comm);
  int (*destroy)(NcclComm* comm);
  /// Ends it and its work in any state.
  int (*abort)(NcclComm* comm);

  int (*begin)(const NcclTransfer* transfer);

  /// The thread's device; and makes one the thread's.
  int (*device)(int* device);
  int (*use)(int device);
  /// A stream that orders itself with no other one.
  int (*make_stream)(void** made);
  /// Waits for its work.
  int (*drain)(void* stream);
  int (*end_stream)(void* stream);
  int (*make_event)(NcclEvent** made);
  int (*end_event)(NcclEvent* event);
  int (*record)(NcclEvent* event, void* stream);
  /// Lets later work of the stream wait for the event.
  int (*wait)(void* stream, NcclEvent* event);
  int (*query)(NcclEvent* event);
  int (*allocate)(std::size_t bytes, void** made);
  int (*free)(void* start);
  /// Copies `rows` rows of `width` bytes.
  int (*copy)(void* stream, void* to, std::size_t to_stride, const void* from, std::size_t from_stride,
              std::size_t width, std::size_t rows);
};

extern "C" const NcclCalls* windrow_nccl_calls();

}  // namespace windrow::comm
