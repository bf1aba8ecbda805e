// Which tensors one collective moves, and in which order collectives move.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <source_location>
#include <utility>
#include <vector>

#include "windrow/training/data_parallel.h"

namespace windrow {

/// A tensor that belongs to parameter number `parameter`, such as its gradient.
struct OfParameter {
  std::size_t parameter;
  Tensor tensor;
};

/// Collects tensors until they have about DataParallelOptions::bucket_bytes, and then moves them together. There are
/// several buckets if some tensors cannot move together, for example one bucket for each owner. A value; one thread.
class Buckets {
 public:
  using Parts = std::vector<OfParameter>;
  /// Pushes the collective of a bucket.
  using Push = std::function<void(std::size_t bucket, const Parts& parts, const CollectiveOptions& options)>;

  /// `call` has the name of the collectives, and the line that pushes them.
  Buckets(const DataParallelOptions& options, const CollectiveOptions& call, Push push)
      : bytes_(options.bucket_bytes), prioritised_(options.priority), call_(call), push_(std::move(push)) {
    call_.part_bytes = options.part_bytes;
  }

  /// Called in the order in which tensors probably become ready. Pushes a collective if the bucket is full.
  void add(std::size_t bucket, OfParameter part) {
    const auto bytes = static_cast<std::size_t>(part.tensor.rows() * part.tensor.width()) * 4;
    if (buckets_[bucket].bytes + bytes > bytes_) push(bucket);
    buckets_[bucket].parts.push_back(std::move(part));
    buckets_[bucket].bytes += bytes;
  }
  /// Pushes what is left. The last collective has the highest priority.
  void push() {
    for (const auto& [number, bucket] : buckets_) push(number);
  }

 private:
  struct Bucket {
    Parts parts = {};
    std::size_t bytes = 0;
  };
  void push(std::size_t number) {
    const Bucket full = std::exchange(buckets_[number], {});
    if (full.parts.empty()) return;
    if (prioritised_) ++call_.priority;
    push_(number, full.parts, call_);
  }

  const std::size_t bytes_;
  const bool prioritised_;
  CollectiveOptions call_;
  const Push push_;
  std::map<std::size_t, Bucket> buckets_;
};

inline std::vector<Tensor> tensors_of(const Buckets::Parts& parts) {
  std::vector<Tensor> tensors;
  for (const OfParameter& part : parts) tensors.push_back(part.tensor);
  return tensors;
}

}  // namespace windrow
