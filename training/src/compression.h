// Sums of gradients that are rounded before they are sent.
#pragma once

#include <map>
#include <source_location>

#include "buckets.h"
#include "windrow/training/data_parallel.h"

namespace windrow {

/// Rounds and combines dense gradients, and keeps the parts that were not sent. An owner; threads as for DataParallel.
class CompressedSums {
 public:
  /// Throws MisuseError for options out of range, and for gradients in a device's memory.
  CompressedSums(const Communicator& communicator, const Compression& compression);

  /// Pushes the ops that replace the gradients by their sums over all members. The part of a gradient that is not sent
  /// is kept for its parameter.
  void push(const Buckets::Parts& parts, const CollectiveOptions& options);

 private:
  /// The parts that rounding removed from the gradient of a parameter, or from sums of it that this member rounded.
  /// They are added to its next gradient.
  const Tensor& rest_of(const OfParameter& part);
  /// If the step has failed, the rest keeps its value and is not poisoned.
  void keep(const Tensor& rest, const CollectiveOptions& options) const;

  const Communicator& communicator_;
  std::map<std::size_t, Tensor> rests_;  // by parameter, since buckets differ from step to step
};

}  // namespace windrow
