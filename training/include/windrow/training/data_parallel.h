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
//   Overlap  combine() pushes collectives (communicator.h): each begins when its gradients are there, while the
//            backward pass goes on below them. The step of a parameter begins when its sum and the minibatch are there.
//   Sharded  With DataParallelOptions::sharded, each parameter belongs to one member, which alone gets the sum of its
//            gradients, takes its step, and keeps the states that the optimiser has for it. The step then copies the
//            new value to all members. The calls above stay the same, and so do the parameters: in a LocalGroup their
//            bits are those of an update that is not sharded.
//   Numbers  Members keep equal bits, if their optimisers have equal options. For a fixed number of members, results
//            have the same bits with every policy, number of workers and timing; for another number they differ by
//            rounding. Members draw dropout of their own, unless the program numbers the samples
//            (Parameters::number_samples(), as Trainer does): then the masks of runners are those of one member.
//   Shared   A tensor that is the gradient of several parameters, as a Tape gives it for the operands of a sum, is
//            copied, so that each parameter gets the sum over the members once. Parameters that share memory are
//            refused: weights that are tied are one parameter, which is used in both places.
//   Waiting  combine() waits until the other members have called it for this step: for their threads, and not for ops.
//            Members of one process therefore run in threads of their own.
//   Skipping With NonFinite::skip, a step is skipped at all members if a loss or gradient of one of them is not finite:
//            a small collective decides. Steps between calls of average() are skipped by each member alone.
//   Errors   As for collectives: what fails at one member fails the step at all members. Members whose parameters
//            differ in number, name or shape are refused by the constructor, at all members, by name.
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

/// How dense gradients travel. What is not sent of a parameter's gradient is kept by its member, and added to that of
/// the next step that has one, whatever other parameters a step has (error feedback: Seide et al. 2014, Karimireddy et
/// al. 2019). Rows of tables travel as they are. A value.
struct Compression {
  enum class Form : std::uint8_t {
    none,
    /// Numbers are rounded to 16 bits, and so are their sums: half of the bytes. What rounding a sum loses is kept,
    /// too.
    bfloat16,
    largest [[deprecated("removed: DataParallel refuses it")]],
  } form = Form::none;
  double share = 0.01;  ///< deprecated: has no effect
  float threshold = 0;  ///< deprecated: has no effect
};

struct DataParallelOptions {
  /// Gradients are summed in groups of about so many bytes, beginning with the parameters that were added last, whose
  /// gradients are usually there first. Larger ones have a call of their own. At least 1.
  std::size_t bucket_bytes = std::size_t{4} << 20;
  /// Sums move in parts of so many bytes, so that a large one does not block those of higher priority; 0: in one part.
  /// A multiple of 4. See CollectiveOptions::part_bytes.
  std::size_t part_bytes = std::size_t{1} << 20;
  /// Whether the collectives of the parameters that were added first, which the next forward pass needs first, have
  /// priority.
  bool priority = true;
  /// For devices that share the host's memory. What members keep of gradients is not part of checkpoints.
  Compression compression = {};
  /// The optimiser, of these parameters, whose update is sharded (ZeRO stage 1: Rajbhandari et al. 2020); null: each
  /// member updates all parameters. Parameters are dealt out as a whole, by their bytes, so a member keeps about 1/N of
  /// the states of N members unless one parameter is larger than that. States that the optimiser has of other
  /// members' parameters are dropped. Not with compression, and not with average().
  Optimiser* sharded = nullptr;
};

/// An owner.
class DataParallel {
 public:
  /// Copies the parameters of rank 0 to all members. All members construct it at the same time, with the same options.
  /// Throws MisuseError for options out of range or that exclude each other, for compression of parameters with
  /// NonFinite::skip, for compression and a sharded update in a NestedGroup, for parameters that share memory, and if
  /// the parameters are not on the communicator's device; and CommError if members differ in parameters or options.
  DataParallel(Communicator communicator, Parameters& parameters, DataParallelOptions options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// Replaces the gradients of the last minibatch by their sums over all members, in place: also the tensors that
  /// Parameters::add_gradient() was given. The loss of the member's minibatch is
  /// a sum over `samples` samples, which may be 0. Returns the number of samples of all members. Rows of tables that
  /// were looked up are summed row by row: rows that no member looked up are not sent. A member
  /// without samples whose model cannot differentiate nothing calls Parameters::forget_gradients() instead.
  ///
  /// With OptimiserOptions::accumulate, call it only before calls of step() that take a step (Optimiser::takes_step())
  /// and before finish(), and pass the number of samples of all members to every call of step().
  ///
  /// With a sharded update, only the owner of a parameter has the sum; the gradients of others are for the optimiser.
  std::size_t combine(std::size_t samples, std::source_location from = std::source_location::current());

  /// Replaces the parameters of all members, but those that are frozen, by their means. For members that take steps
  /// along their own gradients, and call this every few steps instead of combine() in each (local SGD: McMahan et al.
  /// 2017, Stich 2019). What optimisers keep stays as it is at each member. Waits for nothing. Throws MisuseError with
  /// a sharded update.
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
