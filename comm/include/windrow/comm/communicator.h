// Collectives: ops that combine or exchange tensors of the members of a group. Start here.
//
//   windrow::LocalGroup group(devices);  // local.h; see also mpi.h and nccl.h
//   for (int rank = 0; rank < group.size(); ++rank) group[rank].all_reduce(gradients[rank], windrow::Combine::mean);
//   optimiser.step(samples);             // waits for the collective as for any other op
//
// Contract
//   Calls    A group has size() members, each with a rank, a device and a communicator. A collective is called once by
//            each member. Members make the same calls in the same order, with the same shapes. A call pushes ops and
//            returns at once; the engine orders them with the member's other ops by the accesses of the tensors. Calls
//            whose tensors are ready at all members may overlap, and may finish in any order.
//   Numbers  Results have the same bits for any policy, number of workers and timing. Elements are combined in a fixed
//            tree over the ranks (LocalGroup), or as the library does it (mpi.h, nccl.h).
//   Errors   A call fails at all members if a tensor of one of them is poisoned, or if their calls differ. It then
//            poisons the tensors that it was to write; later calls are not affected. The error is a CommError; see
//            there for how to catch it. If a member does not call within `patience`, the group is broken: this call and
//            all later ones fail with a CommError that names the missing members. (After `tell_after`, a line in the
//            log says who waits for whom.) The errors of all calls that fail for one reason nest one exception
//            (std::nested_exception). A call in a capture or in the body of a Static throws MisuseError and does not
//            count, because it could not be repeated. If a member's communicator has ended, calls that need its part
//            fail, also exchange() and barrier(); other calls go on.
//   Threads  One at a time for each communicator.
//            No thread of an engine waits in a collective. exchange() and barrier() wait in the thread that calls them,
//            so they are not for ops.
//   Life     A communicator may end before its ops have run. After its engine is gone it may only be destroyed.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "windrow/ops/tensor.h"

namespace windrow {

/// How collectives combine elements. The mean of int32 is refused. The maximum of elements of which one is NaN is NaN,
/// with every back end.
enum class Combine : std::uint8_t { sum, mean, max };

/// Why a collective failed. exchange() and barrier() throw it. A wait for a tensor that a failed collective was to
/// write throws the OpError of that op, as for any op; OpError::rethrow_root() then throws the CommError.
class CommError : public Error {
 public:
  using Error::Error;
};

/// A CommError that another member reports to the user, so this one need not be printed. The reporter is the member
/// that called abort() or, if a process is missing, the lowest rank that waits for it.
class PeerError : public CommError {
 public:
  using CommError::CommError;
};
using ToldError [[deprecated("its name is PeerError")]] = PeerError;

/// Thrown after another member has called Communicator::abort() and so reports the cause.
class AbortError : public PeerError {
 public:
  using PeerError::PeerError;
};

struct CollectiveOptions {
  OpName name = {};  ///< the call's kind if empty
  /// Priority of the call's ops; see PushOptions. Among all_reduce, reduce and broadcast calls with a priority or with
  /// parts, the one of the highest priority that is ready at all members begins first. All members give the same
  /// priority.
  int priority = 0;
  /// For the same calls: moves the tensors in parts of this many bytes, so that a call of higher priority waits for a
  /// part and not for a whole call; 0: in one part. A multiple of 4, the same at all members. It may affect the
  /// rounding of sums (mpi.h). LocalGroup moves nothing and ignores it.
  std::size_t part_bytes = 0;
  std::source_location pushed_at = std::source_location::current();
};

namespace comm {
class Member;
}

/// A handle of one member. Tensors lie in the memory of its device or of the host. Calls throw MisuseError for a rank
/// that the group lacks, and for tensors that overlap or whose shapes do not fit the call. Otherwise they throw as
/// Engine::push does.
class Communicator {
 public:
  /// For the groups of local.h, mpi.h, nccl.h and of your own: see member.h.
  Communicator(Device device, std::shared_ptr<comm::Member> member);

  int rank() const;
  int size() const;
  const Device& device() const { return device_; }
  /// For groups that are built on this one: see member.h.
  const std::shared_ptr<comm::Member>& member() const { return member_; }

  /// Replaces the tensors of all members by their combination, element by element. The second form is one call for
  /// several tensors.
  void all_reduce(const Tensor& tensor, Combine combine = Combine::sum, const CollectiveOptions& options = {}) const;
  void all_reduce(std::span<const Tensor> tensors, Combine combine = Combine::sum,
                  const CollectiveOptions& options = {}) const;
  void all_reduce(const IntTensor& tensor, Combine combine = Combine::sum, const CollectiveOptions& options = {}) const;
  /// The same out of place: writes the combination to `to`, which has the shape of `from`; `from` is only read. All
  /// members must use this form. Dense tensors are not copied before the back end sees them; MPI and NCCL may copy
  /// inside.
  void all_reduce(const Tensor& from, const Tensor& to, Combine combine = Combine::sum,
                  const CollectiveOptions& options = {}) const;
  void all_reduce(const IntTensor& from, const IntTensor& to, Combine combine = Combine::sum,
                  const CollectiveOptions& options = {}) const;
  /// As all_reduce(), but only the tensors of member `root` change.
  void reduce(std::span<const Tensor> tensors, int root, Combine combine = Combine::sum,
              const CollectiveOptions& options = {}) const;
  /// Copies the tensors of member `root` to those of all others.
  void broadcast(std::span<const Tensor> tensors, int root, const CollectiveOptions& options = {}) const;
  void broadcast(const IntTensor& tensor, int root, const CollectiveOptions& options = {}) const;
  /// Block r of `to`, which has size() blocks of from.rows() rows, becomes `from` of member r.
  void all_gather(const Tensor& from, const Tensor& to, const CollectiveOptions& options = {}) const;
  void all_gather(const IntTensor& from, const IntTensor& to, const CollectiveOptions& options = {}) const;
  /// Writes to `to` the combination of block rank() of all members; `from` has size() blocks of to.rows() rows.
  void reduce_scatter(const Tensor& from, const Tensor& to, Combine combine = Combine::sum,
                      const CollectiveOptions& options = {}) const;
  /// Block r of `to` becomes block rank() of `from` of member r; both have size() blocks of equally many rows.
  void all_to_all(const Tensor& from, const Tensor& to, const CollectiveOptions& options = {}) const;
  /// The k-th send of member i to member j belongs to the k-th recv of member j from member i. Other members do not
  /// take part.
  void send(const Tensor& tensor, int to, const CollectiveOptions& options = {}) const;
  void recv(const Tensor& tensor, int from, const CollectiveOptions& options = {}) const;

  /// Exchanges numbers between the calling threads, independently of all ops. Returns the numbers of all members, by
  /// rank. Each member passes equally many. Waits for the other members' calls. Throws CommError as collectives do.
  /// Members of one process call it from different threads.
  std::vector<std::int64_t> exchange(std::span<const std::int64_t> numbers) const;
  /// Waits until all members have called it, and the ops that they pushed before have finished. Throws as exchange()
  /// and Engine::wait_all() do.
  void barrier() const;

  /// Begins to measure how long calls of this member are under way: from the moment when their tensors are ready here
  /// until they have finished. That includes the wait for other members. Applies to later calls, by all copies of this
  /// handle.
  void time_calls() const;
  /// The time measured so far. Calls that overlap count once; exchange() and barrier() do not count. Any thread may
  /// call it, after time_calls().
  std::chrono::nanoseconds time_in_calls() const;

  /// Breaks the group: all unfinished and all later calls of all members fail with an AbortError of the text `why`. An
  /// empty `why` is replaced by a text that names the rank. Other processes get the first 460 characters. Any thread
  /// may call it.
  void abort(const std::string& why) const;

 private:
  Device device_;
  std::shared_ptr<comm::Member> member_;
  std::shared_ptr<void> presence_;  // of all copies of this handle: when it ends, the group knows that no call will
                                    // follow
};

/// A hash of a text, for exchange(): the same in all processes, and almost always different for different texts. Not
/// negative.
std::int64_t fingerprint(std::string_view text);

}  // namespace windrow
