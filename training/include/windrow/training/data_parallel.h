// Data-parallel training: members of a group hold copies of the parameters, compute gradients of different samples, and
// take the same steps.
//
//   windrow::DataParallel parallel(group[rank], parameters);  // all begin with the parameters of rank 0
//   windrow::Minibatch minibatch = runner.differentiate(samples_of_this_member);
//   optimiser.step(parallel.combine(number_of_samples));      // along the gradient of all members' samples
//
// Gradients may come from a Runner, a LazyGraph, or a Tape with Parameters (parameters.h, "Gradients of your own");
// examples/processes.cc is such a program for mpirun. `group` is a LocalGroup (local.h), the result of
// MpiWorld::group() (mpi.h), a NestedGroup or an NcclGroup.
//
// Contract
//   Overlap  combine() pushes collectives (communicator.h). Each begins when its gradients are computed, while the
//            backward pass goes on in the layers below. The step of a parameter begins when its sum and the minibatch
//            are done.
//   Sharded  With DataParallelOptions::sharded, each parameter belongs to one member. Only this member gets the sum of
//            its gradients, takes its step, and keeps the optimiser's states of it. The step then copies the new value
//            to all members. The calls above stay the same. In a LocalGroup, the parameters have the same bits as with
//            an update that is not sharded.
//   Numbers  Members keep equal bits, if their optimisers have equal options. For a fixed number of members, results
//            have the same bits with every policy, number of workers and timing; for another number they differ by
//            rounding. Members draw different dropout masks. If the program numbers the samples
//            (Parameters::number_samples(), as Trainer does), the masks of runners are those of one member.
//   Shared   One tensor can be the gradient of several parameters, for example of the operands of a sum on a Tape. It
//            is copied, so that each parameter gets the sum over the members once. Parameters that share memory are
//            refused: make tied weights one parameter, which is used in both places.
//   Waiting  combine() waits for the threads of the other members, until they have called it for this step; it does not
//            wait for ops. Members of one process therefore run in different threads.
//   Skipping With NonFinite::skip, all members skip a step if a loss or gradient of one of them is not finite; a small
//            collective decides this. For steps between calls of average(), each member decides alone.
//   Errors   As for collectives: a failure at one member fails the step at all members. The constructor throws at all
//            members if their parameters differ in number, name or shape; the error names a parameter.
//   Threads  One at a time, together with the parameters.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <source_location>
#include <vector>

#include "windrow/batching/parameters.h"
#include "windrow/comm/communicator.h"

namespace windrow {

class Buckets;
class CompressedSums;
class Optimiser;
class Shards;

/// How dense gradients are sent. A member keeps the part of a gradient that rounding removes, and adds it to the next
/// gradient of the same parameter (error feedback: Seide et al. 2014, Karimireddy et al. 2019). Rows of tables are sent
/// unrounded. A value.
struct Compression {
  enum class Form : std::uint8_t {
    none,
    /// Rounds numbers and their sums to 16 bits, which halves the bytes. The part that rounding a sum removes is kept,
    /// too.
    bfloat16,
    largest [[deprecated("removed: DataParallel refuses it")]],
  } form = Form::none;
  double share = 0.01;  ///< deprecated: has no effect
  float threshold = 0;  ///< deprecated: has no effect
};

struct DataParallelOptions {
  /// Gradients are summed in groups of about this many bytes, beginning with the parameters that were added last,
  /// because their gradients are usually computed first. A larger gradient has a call of its own. So a model of fewer
  /// bytes has one call, after the whole backward pass; with the bytes of a layer, each layer has its own. At least 1.
  std::size_t bucket_bytes = std::size_t{4} << 20;
  /// Sums move in parts of this many bytes, so that a large one does not block those of higher priority; 0: in one
  /// part. A multiple of 4. See CollectiveOptions::part_bytes.
  std::size_t part_bytes = std::size_t{1} << 20;
  /// Gives priority to the collectives of the parameters that were added first, because the next forward pass needs
  /// them first.
  bool priority = true;
  /// For devices that share the host's memory. Checkpoints do not contain the parts of gradients that members keep.
  Compression compression = {};
  /// The optimiser of these parameters if its update is sharded (ZeRO stage 1: Rajbhandari et al. 2020); null: each
  /// member updates all parameters. Whole parameters are distributed by their bytes, so each of N members keeps about
  /// 1/N of the states, unless one parameter is larger than that. The optimiser drops its states of other members'
  /// parameters. Cannot be used with compression or average().
  Optimiser* sharded = nullptr;
};

/// An owner.
class DataParallel {
 public:
  /// Copies the parameters of rank 0 to all members. All members construct it at the same time, with the same options.
  /// Throws MisuseError for options out of range or that exclude each other, for parameters that share memory, and if
  /// the parameters are not on the communicator's device. Also throws it for compression with NonFinite::skip, and for
  /// compression or a sharded update in a NestedGroup. Throws CommError if members differ in parameters or options.
  DataParallel(Communicator communicator, Parameters& parameters, DataParallelOptions options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// Replaces the gradients of the last minibatch by their sums over all members, in place, also in tensors that were
  /// passed to Parameters::add_gradient(). The loss of the member's minibatch is a sum over `samples` samples, which
  /// may be 0. Returns the number of samples of all members. Rows of tables that were looked up are summed row by row:
  /// rows that no member looked up are not sent. A member without samples first differentiates an empty minibatch or,
  /// if its model cannot, calls Parameters::forget_gradients().
  ///
  /// With OptimiserOptions::accumulate, call it only before finish() and before calls of step() that take a step
  /// (Optimiser::takes_step()). Pass the number of samples of all members to every call of step().
  ///
  /// With a sharded update, only the owner of a parameter has the sum; the optimiser alone may use the gradients at the
  /// others.
  std::size_t combine(std::size_t samples, std::source_location from = std::source_location::current());

  /// Replaces the parameters of all members, except frozen ones, by their means. For members that take steps along
  /// their own gradients, and call this every few steps instead of combine() in each step (local SGD: McMahan et al.
  /// 2017, Stich 2019). Each member keeps its own optimiser states. Does not wait. Throws MisuseError with a sharded
  /// update.
  void average(std::source_location from = std::source_location::current());

  const Communicator& communicator() const { return communicator_; }

 private:
  void check();
  void require_equal() const;
  std::map<std::size_t, Tensor> own_sums(const std::vector<std::size_t>& which, std::source_location from) const;
  Buckets new_sums(std::source_location from) const;

  const Communicator communicator_;
  const std::shared_ptr<const Communicator> for_checks_ = std::make_shared<const Communicator>(communicator_);
  Parameters& parameters_;
  const DataParallelOptions options_;
  std::unique_ptr<CompressedSums> compressed_;  // null without compression
  std::shared_ptr<const Shards> shards_;        // null unless the update is sharded
};

}  // namespace windrow
