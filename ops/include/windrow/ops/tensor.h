// Tensors: views of buffers as rows of equal width.
#pragma once

#include <memory>
#include <source_location>
#include <vector>

#include "windrow/memory/buffer.h"
#include "windrow/ops/device.h"
#include "windrow/ops/matrix.h"

namespace windrow {

/// A handle: copies and views share one buffer, which ends with the last of them, after the ops that use it. They share
/// the buffer's variable too, so the engine orders accesses to all views as accesses to one value. A tensor may outlive
/// the engine; members that need the engine throw MisuseError then.
///
/// Elements are float, or int32 for indices. An op fails if it reads a tensor of which no element was written; if only
/// a part was written, the rest is zero. Threads: every member may be called from any thread.
template <class T>
class TensorOf {
 public:
  /// A new tensor of rows x width elements with stride row_stride(width), not yet written. Throws MisuseError for a
  /// negative size, OutOfMemory for a size that is not representable.
  TensorOf(const Device& device, Index rows, Index width, OpName name = "tensor");
  /// A view of rows x width contiguous elements of a buffer, from element `offset` on. Throws MisuseError if they do
  /// not lie within it.
  TensorOf(std::shared_ptr<Buffer> buffer, Index rows, Index width, Index offset = 0);
  TensorOf(const TensorOf&) = default;  // and no move: every tensor has a buffer
  TensorOf& operator=(const TensorOf&) = default;

  Index rows() const { return shape_.rows; }
  Index width() const { return shape_.width; }
  Var var() const { return buffer_->var(); }
  Engine& engine() const { return buffer_->engine(); }
  /// True if the tensor covers its buffer, so that overwriting it leaves no old elements.
  bool whole() const { return whole_; }
  /// The access of an op that writes all elements: overwrite if whole(), otherwise mutate.
  Access write_access() const { return whole() ? overwrite(var()) : mutate(var()); }
  /// True if both name the same elements in the same order.
  bool same_view(const TensorOf& other) const;
  /// True if the tensors may have an element in common. False for disjoint rectangles of one tensor.
  bool overlaps(const TensorOf& other) const;

  /// Views of rows or columns [begin, end). Throw MisuseError for a range outside the tensor.
  TensorOf row_range(Index begin, Index end) const;
  TensorOf column_range(Index begin, Index end) const;

  /// The elements, for ops to capture; see Bytes for read, write and update. A View does not keep the buffer alive; the
  /// engine does until the op has run.
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
    std::size_t to_clear_;  // bytes of the buffer that the first write clears: all, unless the view covers the buffer
    Matrix<T> shape_;
    Index offset_;
  };
  View view() const { return View(buffer_->bytes(), whole() ? 0 : buffer_->size(), shape_, offset_); }

  /// Pushes an op that writes `values`, in row-major order. Throws MisuseError if their number differs from the
  /// tensor's.
  void set(std::vector<T> values, std::source_location pushed_at = std::source_location::current()) const;
  /// Returns the elements in row-major order: pushes an op that copies them, and waits for it. Throws as Engine::wait
  /// does.
  std::vector<T> get(std::source_location from = std::source_location::current()) const;

 private:
  TensorOf(std::shared_ptr<Buffer> buffer, Matrix<T> shape, Index offset, bool whole)
      : buffer_(std::move(buffer)), shape_(shape), offset_(offset), whole_(whole) {}

  std::shared_ptr<Buffer> buffer_;
  Matrix<T> shape_;  // data is null
  Index offset_ = 0;
  bool whole_;
};

using Tensor = TensorOf<float>;
using IntTensor = TensorOf<std::int32_t>;

extern template class TensorOf<float>;
extern template class TensorOf<std::int32_t>;

}  // namespace windrow
