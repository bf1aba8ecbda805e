// The sharded update: which member of a group updates which parameter, and how members exchange tensors for it.
#pragma once

#include <cstddef>
#include <functional>
#include <source_location>
#include <utility>
#include <vector>

#include "buckets.h"
#include "windrow/training/data_parallel.h"

namespace windrow {

/// Each parameter belongs to one member: only this one takes its steps and keeps its states (ZeRO stage 1: Rajbhandari
/// et al. 2020). Parameters are distributed by their bytes, in the same way at all members. Shared by a DataParallel
/// and its optimiser; threads as for these. All members make the same calls, with the same parameters.
class Shards {
 public:
  Shards(const Communicator& group, const Parameters& parameters, const DataParallelOptions& options);

  const Parameters& parameters() const { return parameters_; }
  /// Throws MisuseError for a parameter that was added later.
  int owner(std::size_t parameter) const;
  bool owned(std::size_t parameter) const { return owner(parameter) == group_.rank(); }

  /// note_combined() notes that the gradients of the next step were combined. take_combined() tells whether they were,
  /// and clears the note. If one member alone took a step, its later calls of share() would not fit those of the
  /// others.
  void note_combined() const { combined_ = true; }
  bool take_combined() const { return std::exchange(combined_, false) || group_.size() == 1; }

  /// Replaces tensors of the owners by the sums over all members. There is one bucket for each owner.
  Buckets sums(std::source_location from) const;
  /// Copies the tensors of the owners to the other members. The parts are in the order in which their tensors probably
  /// become ready; the last ones have the highest priority.
  void share(const Buckets::Parts& parts, std::source_location from) const;

  /// Replaces the tensor by its sum over all members.
  void add_up(const Tensor& tensor, std::source_location from) const;
  /// Sends the tensors that owners keep for the parameters to rank 0: `own` has those of this member, by parameter.
  /// Rank 0 returns all of them, and the others `own`. Waits until rank 0 has them. `make` makes a tensor for number k
  /// of a parameter.
  std::vector<std::vector<Tensor>> collect(
      const std::vector<std::vector<Tensor>>& own,
      const std::function<Tensor(std::size_t parameter, std::size_t k)>& make) const;

 private:
  const Communicator group_;
  const Parameters& parameters_;
  const DataParallelOptions options_;
  std::vector<int> owners_;  // by parameter
  mutable bool combined_ = false;
};

}  // namespace windrow
