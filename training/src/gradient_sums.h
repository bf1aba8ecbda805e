// Which gradients one collective sums, and in which order collectives move: for DataParallel and for simulations of it.
#pragma once

#include <source_location>
#include <vector>

#include "windrow/training/data_parallel.h"

namespace windrow {

/// Pushes the sums of one step's gradients over the members of a group. A value; one thread.
class GradientSums {
 public:
  GradientSums(const Communicator& communicator, const DataParallelOptions& options, std::source_location from)
      : communicator_(communicator), options_(options), from_(from) {}

  /// Called for all gradients, from that of the last parameter to that of the first. Pushes a collective when a bucket
  /// is full.
  void add(const Tensor& gradient) {
    const auto bytes = static_cast<std::size_t>(gradient.rows() * gradient.width()) * 4;
    if (in_bucket_ + bytes > options_.bucket_bytes) push();
    bucket_.push_back(gradient);
    in_bucket_ += bytes;
  }
  /// Pushes the last bucket. The last one has the highest priority.
  void push() {
    if (bucket_.empty()) return;
    communicator_.all_reduce(bucket_, Combine::sum,
                             {.name = "gradients",
                              .priority = options_.priority ? ++pushed_ : 0,
                              .part_bytes = options_.part_bytes,
                              .pushed_at = from_});
    bucket_.clear();
    in_bucket_ = 0;
  }

 private:
  const Communicator& communicator_;
  const DataParallelOptions& options_;
  const std::source_location from_;
  std::vector<Tensor> bucket_;
  std::size_t in_bucket_ = 0;
  int pushed_ = 0;
};

}  // namespace windrow
