// Sums of gradients of which less than all bits travel.
#pragma once

#include <map>
#include <source_location>
#include <vector>

#include "buckets.h"
#include "windrow/training/data_parallel.h"

namespace windrow {

/// Combines dense gradients as Compression says, and keeps what was not sent. An owner; threads as for DataParallel.
class CompressedSums {
 public:
  /// Throws MisuseError for options out of range, and for gradients in a device's memory.
  CompressedSums(const Communicator& communicator, const Compression& compression);

  /// Pushes the ops that replace the gradients by their sums over all members. What is not sent of a gradient belongs
  /// to its parameter.
  void push(const Buckets::Parts& parts, const CollectiveOptions& options);

 private:
  void push_rounded(const Buckets::Parts& parts, const CollectiveOptions& options);
  void push_largest(const Buckets::Parts& parts, const CollectiveOptions& options);
  /// What was not sent of the gradient of a parameter, to be added to the next one.
  const Tensor& rest_of(const OfParameter& part);
  /// What was not sent of this member's block of a sum.
  const Tensor& rest_of_sum(const Buckets::Parts& parts, Index elements);
  /// Lets the rests of a step that has failed go on with what they were.
  void keep(const Tensor& rest, const CollectiveOptions& options) const;

  const Communicator& communicator_;
  const Compression compression_;
  std::map<std::size_t, Tensor> rests_;
  std::map<std::vector<std::size_t>, Tensor> rests_of_sums_;  // by the parameters of a bucket
};

}  // namespace windrow
