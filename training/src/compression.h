// Sums of gradients of which less than all bits travel.
#pragma once

#include <map>
#include <source_location>

#include "buckets.h"
#include "windrow/training/data_parallel.h"

namespace windrow {

/// Combines dense gradients that are rounded, and keeps what was not sent. An owner; threads as for DataParallel.
class CompressedSums {
 public:
  /// Throws MisuseError for options out of range, and for gradients in a device's memory.
  CompressedSums(const Communicator& communicator, const Compression& compression);

  /// Pushes the ops that replace the gradients by their sums over all members. What is not sent of a gradient belongs
  /// to its parameter.
  void push(const Buckets::Parts& parts, const CollectiveOptions& options);

 private:
  /// What was not sent of the gradient of a parameter, or of sums of it that this member has rounded: to be added to
  /// its next gradient.
  const Tensor& rest_of(const OfParameter& part);
  /// Lets the rests of a step that has failed go on with what they were.
  void keep(const Tensor& rest, const CollectiveOptions& options) const;

  const Communicator& communicator_;
  std::map<std::size_t, Tensor> rests_;  // by parameter, since buckets differ from step to step
};

}  // namespace windrow
