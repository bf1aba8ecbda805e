// Which gradients one collective sums, and in which order collectives move: for DataParallel and for simulations of it.
#pragma once

#include <source_location>
#include <vector>

#include "compression.h"
#include "windrow/training/data_parallel.h"

namespace windrow {

/// Pushes the sums of one step's gradients over the members of a group. A value; one thread.
class GradientSums {
 public:
  /// `compressed`: null, or how dense gradients are summed.
  GradientSums(const Communicator& communicator, const DataParallelOptions& options, std::source_location from,
               CompressedSums* compressed = nullptr)
      : communicator_(communicator), options_(options), from_(from), compressed_(compressed) {}

  /// Called for all gradients, from that of the last parameter to that of the first. Pushes a collective when a bucket
  /// is full.
  void add(const Tensor& gradient) {
    const auto bytes = static_cast<std::size_t>(gradient.rows() * gradient.width()) * 4;
    if (in_bucket_ + bytes > options_.bucket_bytes) push_plain();
    bucket_.push_back(gradient);
    in_bucket_ += bytes;
  }
  /// The same for the dense gradient of parameter number `parameter`, which may be compressed.
  void add(const Tensor& gradient, std::size_t parameter) {
    if (compressed_ == nullptr) return add(gradient);
    const auto bytes = static_cast<std::size_t>(gradient.rows() * gradient.width()) * 4;
    if (in_compressed_ + bytes > options_.bucket_bytes) push_compressed();
    to_compress_.push_back({parameter, gradient});
    in_compressed_ += bytes;
  }
  /// Pushes the last buckets. The last one has the highest priority.
  void push() {
    push_compressed();
    push_plain();
  }

 private:
  CollectiveOptions next_options() {
    return {.name = "gradients",
            .priority = options_.priority ? ++pushed_ : 0,
            .part_bytes = options_.part_bytes,
            .pushed_at = from_};
  }
  void push_plain() {
    if (bucket_.empty()) return;
    communicator_.all_reduce(bucket_, Combine::sum, next_options());
    bucket_.clear();
    in_bucket_ = 0;
  }
  void push_compressed() {
    if (to_compress_.empty()) return;
    compressed_->push(to_compress_, next_options());
    to_compress_.clear();
    in_compressed_ = 0;
  }

  const Communicator& communicator_;
  const DataParallelOptions& options_;
  const std::source_location from_;
  CompressedSums* const compressed_;
  std::vector<Tensor> bucket_;
  std::vector<CompressedSums::Part> to_compress_;
  std::size_t in_bucket_ = 0, in_compressed_ = 0;
  int pushed_ = 0;
};

}  // namespace windrow
