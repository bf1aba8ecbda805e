// Tensors: views of buffers as rows of equal width.
#pragma once

#include <memory>
#include <source_location>
#include <vector>

#include "windrow/memory/buffer.h"
#include "windrow/ops/device.h"
#include "windrow/ops/matrix.h"

namespace windrow {

/// A handle: copies and views name the same buffer, which ends with the last of them, after the ops that use it. They
/// may outlive the engine; what needs it throws MisuseError then. Views share the buffer's variable, so the engine
/// orders them as one.
///
/// Elements are float, or int32 for indices. An op that reads a tensor of which nothing was written fails; where only a
/// part was, the rest is zero. Threads: all members from any thread.
template <class T>
class TensorOf {
 public:
  /// rows x width, row_stride(width) elements apart, not yet written. Throws MisuseError for a negative size,
  /// OutOfMemory for one beyond any memory.
  TensorOf(const Device& device, Index rows, Index width, OpName name = "tensor");
  /// rows x width elements of a buffer, one behind the other from element `offset` on. Throws MisuseError if they do
  /// not lie in it.
  TensorOf(std::shared_ptr<Buffer> buffer, Index rows, Index width, Index offset = 0);
  TensorOf(const TensorOf&) = default;  // and no move: there is no tensor without a buffer
  TensorOf& operator=(const TensorOf&) = default;

  Index rows() const { return shape_.rows; }
  Index width() const { return shape_.width; }
  Var var() const { return buffer_->var(); }
  Engine& engine() const { return buffer_->engine(); }
  /// It is all of its buffer, so that overwriting it leaves nothing of what was there.
  bool whole() const { return whole_; }
  /// How an op that writes all of these elements touches the variable: overwrite if whole, else mutate.
  Access write_access() const { return whole() ? overwrite(var()) : mutate(var()); }
  /// Both name the same elements, in the same order.
  bool same_view(const TensorOf& other) const;
  /// Some element may belong to both. False for disjoint rectangles of one tensor.
  bool overlaps(const TensorOf& other) const;

  /// Views. Throw MisuseError for a range outside the tensor.
  TensorOf row_range(Index begin, Index end) const;
  TensorOf column_range(Index begin, Index end) const;

  /// The elements, for ops to capture: that read, that overwrite, or that mutate what is there; see Bytes. It does not
  /// keep the buffer alive, which the engine does until the op has run.
  class View {
   public:
    Matrix<const T> read() const;
    Matrix<T> write() const;
    Matrix<T> update() const;

   private:
    friend class TensorOf;
    View(Bytes bytes, std::size_t to_clear, Matrix<T> shape, Index offset)
        : bytes_(bytes), to_clear_(to_clear), shape_(shape), offset_(offset) {}
    bool empty() const { return shape_.rows == 0 || shape_.width == 0; }
    template <class U>
    Matrix<U> at(U* start) const {
      return {start + offset_, shape_.rows, shape_.width, shape_.stride};
    }

    Bytes bytes_;
    std::size_t to_clear_;  // of the buffer, by its first write: all unless that writes all
    Matrix<T> shape_;
    Index offset_;
  };
  View view() const { return View(buffer_->bytes(), whole() ? 0 : buffer_->size(), shape_, offset_); }

  /// Pushes an op that writes the values, row by row. Throws MisuseError for another number of them.
  void set(std::vector<T> values, std::source_location pushed_at = std::source_location::current()) const;
  /// Pushes an op that copies the values, row by row, and waits for it. Throws what a wait throws.
  std::vector<T> get(std::source_location from = std::source_location::current()) const;

 private:
  TensorOf(std::shared_ptr<Buffer> buffer, Matrix<T> shape, Index offset, bool whole)
      : buffer_(std::move(buffer)), shape_(shape), offset_(offset), whole_(whole) {}

  std::shared_ptr<Buffer> buffer_;
  Matrix<T> shape_;  // without data
  Index offset_ = 0;
  bool whole_;
};

using Tensor = TensorOf<float>;
using IntTensor = TensorOf<std::int32_t>;

extern template class TensorOf<float>;
extern template class TensorOf<std::int32_t>;

}  // namespace windrow
