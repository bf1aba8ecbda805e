// Tensors: views of buffers as rows of equal width.
#pragma once

#include <memory>
#include <source_location>
#include <vector>

#include "windrow/memory/buffer.h"
#include "windrow/ops/device.h"
#include "windrow/ops/matrix.h"

namespace windrow {

/// A handle: copies and views name the same buffer, which ends with the last of them, after the ops that use it. Views
/// share the buffer's variable, so the engine orders them as one.
///
/// Elements are float, or int32 for indices. Until something is written, there is nothing to read: an op that does
/// fails. Threads: as for any value; the elements are touched by ops, or between waits.
template <class T>
class TensorOf {
 public:
  /// rows x width, not yet written. Throws MisuseError for a negative size, OutOfMemory for one beyond any memory.
  TensorOf(const Device& device, Index rows, Index width, OpName name = "tensor");

  Index rows() const { return shape_.rows; }
  Index width() const { return shape_.width; }
  Var var() const { return buffer_->var(); }
  Engine& engine() const { return buffer_->engine(); }
  /// It is not a part of a larger one, so that overwriting it leaves nothing of what was there.
  bool whole() const { return whole_; }
  /// Both name the same elements.
  bool same_view(const TensorOf& other) const;

  /// Views. Throw MisuseError for a range outside the tensor.
  TensorOf row_range(Index begin, Index end) const;
  TensorOf column_range(Index begin, Index end) const;

  /// The elements, for ops that read, that overwrite, and that mutate what is there; see Bytes. From outside, between
  /// a wait and the next push.
  class View {
   public:
    Matrix<const T> read() const { return at(reinterpret_cast<const T*>(bytes_.read())); }
    Matrix<T> write() const { return at(reinterpret_cast<T*>(bytes_.write())); }
    Matrix<T> update() const { return at(reinterpret_cast<T*>(bytes_.update())); }

   private:
    friend class TensorOf;
    View(Bytes bytes, Matrix<T> shape, Index offset) : bytes_(bytes), shape_(shape), offset_(offset) {}
    template <class U>
    Matrix<U> at(U* start) const {
      return {start + offset_, shape_.rows, shape_.width, shape_.stride};
    }

    Bytes bytes_;
    Matrix<T> shape_;
    Index offset_;
  };
  /// For ops to capture: it does not keep the buffer alive, which the engine does until the op has run.
  View view() const { return View(buffer_->bytes(), shape_, offset_); }

  /// Pushes an op that writes the values, row by row. Throws MisuseError for another number of them.
  void set(std::vector<T> values, std::source_location pushed_at = std::source_location::current()) const;
  /// Waits, and copies row by row. Throws what a wait throws.
  std::vector<T> get(std::source_location from = std::source_location::current()) const;

 private:
  TensorOf(std::shared_ptr<Buffer> buffer, Matrix<T> shape, Index offset, bool whole)
      : buffer_(std::move(buffer)), shape_(shape), offset_(offset), whole_(whole) {}

  std::shared_ptr<Buffer> buffer_;
  Matrix<T> shape_;  // without data
  Index offset_ = 0;
  bool whole_ = true;
};

using Tensor = TensorOf<float>;
using IntTensor = TensorOf<std::int32_t>;

extern template class TensorOf<float>;
extern template class TensorOf<std::int32_t>;

}  // namespace windrow
