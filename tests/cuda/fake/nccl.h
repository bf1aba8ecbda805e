// A NCCL without GPUs, for tests: its functions, on the fake runtime. The ranks of a communicator may have any threads
// of this process; or, if WINDROW_FAKE_NCCL_FOLDER names a folder, they are processes, which exchange files there.
//
// What it shows: calls in a wrong order, or that differ between ranks; streams and memory that nothing orders, since
// the checker of the runtime knows what each call accesses; errors. Work of a rank waits for the work of the others, as
// that of NCCL does, until it is aborted. Communicators are non-blocking: what a group of calls issues begins when the
// state of one of them has been asked for several times.
#pragma once

#include <cstdint>
#include <string>

namespace windrow::fake {

enum class NcclFault {
  error,       ///< the call returns an error
  hang,        ///< the call does not return before release_nccl()
  late_error,  ///< communicators that exist have an error from then on, and their work does not end
  lost,        ///< the work of communicators that exist does not end
};

/// The `call`-th call from now on, counted from 1, of the function, such as "ncclCommAbort", has this fault; of any
/// function if the name is empty.
void inject_nccl(NcclFault fault, std::uint64_t call = 1, const std::string& function = "");
/// Drops the faults that have not come. Returns whether there were any.
bool forget_nccl_faults();
/// Calls that hang return an error; those that end a communicator go on. An abort that was to hang, and that a slow
/// machine has not begun, no longer hangs: it would follow the last release.
void release_nccl();
/// Communicators that exist.
int nccl_communicators();

}  // namespace windrow::fake
