// Sums of gradients of which less than all bits travel.
#pragma once

#include <map>
#include <source_location>
#include <vector>

#include "windrow/training/data_parallel.h"

namespace windrow {

/// Combines dense gradients as Compression says, and keeps what was not sent. An owner; threads as for DataParallel.
class CompressedSums {
 public:
  struct Part {
    std::size_t parameter;  ///< its number: what is not sent belongs to it
    Tensor gradient;
  };

  /// Throws MisuseError for options out of range, and for gradients in a device's memory.
  CompressedSums(const Communicator& communicator, const Compression& compression);

  /// Pushes the ops that replace the gradients by their sums over all members.
  void push(const std::vector<Part>& parts, const CollectiveOptions& options);

 private:
  void push_rounded(const std::vector<Part>& parts, const CollectiveOptions& options);
  void push_largest(const std::vector<Part>& parts, const CollectiveOptions& options);
  /// What was not sent of the gradient of a parameter, to be added to the next one.
  const Tensor& rest_of(const Part& part);

  const Communicator& communicator_;
  const Compression compression_;
  std::map<std::size_t, Tensor> rests_;
};

}  // namespace windrow
