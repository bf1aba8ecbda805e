// A fake of MPI for tests: ranks are threads of one process, and any function can be made to fail. A plug-in like
// windrow_mpi.so; a test links it, and names it in WINDROW_MPI_PLUGIN.
#pragma once

#include <string>
#include <vector>

namespace windrow::testing {

/// What goes wrong, once. A value.
struct MpiFault {
  enum class How {
    error,          ///< the call returns an error
    error_at_test,  ///< the call succeeds; the test of its request returns an error
    never_ends,     ///< the call succeeds; its request is never done
    never_returns   ///< the call does not return before the job ends
  };
  std::string function;  ///< of MpiCalls, or the kind of a transfer
  int rank = 0;
  int number = 0;  ///< of the calls of this function at this rank, from 0
  How how = How::error;
};
std::string to_string(const MpiFault& fault);

/// A job of some ranks: the next `ranks` threads that call init() are its ranks, in this order. One at a time. Requests
/// end in an order that depends on the seed.
class FakeMpiJob {
 public:
  FakeMpiJob(int ranks, unsigned seed, const std::vector<MpiFault>& faults = {});
  /// Lets calls return that have not, with an error.
  ~FakeMpiJob();
  FakeMpiJob(const FakeMpiJob&) = delete;
  FakeMpiJob& operator=(const FakeMpiJob&) = delete;

  /// How many of the faults have happened.
  int happened() const;
  /// Calls of collectives that do not fit each other, in words; empty if there were none.
  std::string mismatch() const;
  /// The groups that ranks have made and not freed.
  int kept_groups() const;
  /// Whether all threads that called init() have called finalize().
  bool finalized() const;
};

}  // namespace windrow::testing
